//! From the format's errors to what the user sees.

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::{Class, Error};

/// The failure of an error of the bundle's format.
pub fn failure(error: Error) -> Failure {
    let exit = match error.class() {
        Class::NotVerified => Exit::NotVerified,
        Class::NeedsNewer => Exit::NeedsNewer,
        Class::NoSpace => Exit::NoSpace,
        Class::Refused => Exit::Refused,
        Class::Failed => Exit::Failed,
    };
    let failure = Failure::new(exit, error.name(), error.to_string());
    let failure = match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    };
    match std::error::Error::source(&error) {
        Some(_) => failure.because(error),
        None => failure,
    }
}
