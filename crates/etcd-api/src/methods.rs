//! All methods, for routing and counting.

/// Service, method, and which sides are streams (in the words of gRPC's metrics).
pub const METHODS: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));
