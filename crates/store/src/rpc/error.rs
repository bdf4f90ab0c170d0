//! The one table from what `mvcc` refuses to what clients are told.

use quantykube_etcd_api::errors;
use tonic::Status;

use crate::engine::chain;
use crate::log::log;
use crate::mvcc::Error;

/// etcd's code and text for an error.
pub fn status(error: Error) -> Status {
    let known = match error {
        Error::EmptyKey => errors::EMPTY_KEY,
        Error::KeyNotFound => errors::KEY_NOT_FOUND,
        Error::ValueProvided => errors::VALUE_PROVIDED,
        Error::LeaseProvided => errors::LEASE_PROVIDED,
        Error::TooManyOps => errors::TOO_MANY_OPS,
        Error::DuplicateKey => errors::DUPLICATE_KEY,
        Error::InvalidSort => errors::INVALID_SORT_OPTION,
        Error::RequestTooLarge => errors::REQUEST_TOO_LARGE,
        Error::Compacted => errors::COMPACTED,
        Error::FutureRevision => errors::FUTURE_REV,
        Error::NoSpace => errors::NO_SPACE,
        Error::Corrupt => errors::CORRUPT,
        Error::LeaseNotFound => errors::LEASE_NOT_FOUND,
        Error::LeaseExists => errors::LEASE_EXIST,
        Error::TtlTooLarge => errors::LEASE_TTL_TOO_LARGE,
        Error::Stopped => errors::STOPPED,
        Error::TooManyStreams => {
            return Status::resource_exhausted(
                "quantykube-store: too many watch streams: end some, or raise --max-watch-streams",
            );
        }
        Error::File(error) => {
            log!(error, "{}", chain(&error));
            return Status::data_loss(format!("quantykube-store: {}", chain(&error)));
        }
    };
    known.into()
}
