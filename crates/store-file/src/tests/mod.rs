//! Tests of the whole.

mod basic;
