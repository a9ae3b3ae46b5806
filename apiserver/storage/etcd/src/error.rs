//! Errors, both ways: what etcd says as the port has it, and the other way round for the server.
//!
//! etcd tells many errors apart only by their text, which is part of its API (`api/v3rpc/rpctypes/error.go`).

use freehold_apiserver_storage::{Revision, StoreError};
use tonic::{Code, Status};

pub(crate) const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
pub(crate) const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
pub(crate) const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
pub(crate) const TOO_LARGE: &str = "etcdserver: request is too large";
/// Said by the server of this crate alone, to a client that is over its rate.
pub(crate) const TOO_MANY: &str = "freehold: this plane asks for too much at a time";
pub(crate) const DENIED: &str = "etcdserver: permission denied";
/// Said by the server of this crate alone, before what is missing.
pub(crate) const UNREADABLE: &str = "freehold: a sealed value: ";

/// How members refuse what they have not proposed to the others.
const BEFORE_PROPOSAL: [&str; 3] =
    ["etcdserver: no leader", "etcdserver: too many requests", "raft proposal dropped"];

/// What an error means, by a part of its text.
const BY_TEXT: [(&str, Meaning); 12] = [
    (COMPACTED, Meaning::Compacted),
    (FUTURE, Meaning::Future),
    (NO_SPACE, Meaning::Full),
    (UNREADABLE, Meaning::Unreadable),
    (TOO_MANY, Meaning::Busy),
    (TOO_LARGE, Meaning::TooLarge),
    ("too many operations in txn request", Meaning::TooLarge),
    ("larger than max", Meaning::TooLarge),
    ("invalid auth token", Meaning::TokenExpired),
    ("revision of auth store is old", Meaning::TokenExpired),
    ("user name is empty", Meaning::Denied),
    ("authentication failed", Meaning::Denied),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Compacted,
    Future,
    Full,
    Busy,
    TooLarge,
    Denied,
    /// A new token, and it may work.
    TokenExpired,
    Corrupt,
    Unreadable,
    Unavailable,
}

/// What an error of etcd means.
pub(crate) fn meaning(code: Code, text: &str) -> Meaning {
    if let Some((_, meaning)) = BY_TEXT.iter().find(|(part, _)| text.contains(part)) {
        return *meaning;
    }
    match code {
        Code::PermissionDenied | Code::Unauthenticated => Meaning::Denied,
        Code::DataLoss => Meaning::Corrupt,
        _ if text.contains(DENIED) => Meaning::Denied,
        _ => Meaning::Unavailable,
    }
}

/// The port's error, given which revision was asked for and which one is the store's (where that matters).
pub(crate) fn store_error(meaning: Meaning, text: &str, asked: Revision, current: Revision) -> StoreError {
    let text = text.to_owned();
    match meaning {
        // etcd does not tell the oldest; it is later than this one.
        Meaning::Compacted => StoreError::Compacted { asked, oldest: asked + 1 },
        Meaning::Future => StoreError::Future { asked, current },
        Meaning::Full => StoreError::Full(text),
        Meaning::Busy => StoreError::Busy(text),
        Meaning::TooLarge => StoreError::TooLarge(text),
        Meaning::Denied | Meaning::TokenExpired => StoreError::Denied(text),
        Meaning::Corrupt => StoreError::Corrupt(text),
        Meaning::Unreadable => StoreError::Unreadable(text.replacen(UNREADABLE, "", 1)),
        Meaning::Unavailable => StoreError::Unavailable(text),
    }
}

/// Whether a request can't have reached the server.
pub(crate) fn was_not_sent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    BEFORE_PROPOSAL.iter().any(|text| status.message().contains(text))
}

/// An error with its causes, where it is one of the connection: "transport error" alone tells nobody anything.
pub(crate) fn in_words(status: &Status) -> String {
    let mut words = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let cause = error.to_string();
        if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
        source = error.source();
    }
    words
}

/// What etcd would say.
pub(crate) fn to_status(error: &StoreError) -> Status {
    match error {
        StoreError::Compacted { .. } => Status::out_of_range(COMPACTED),
        StoreError::Future { .. } => Status::out_of_range(FUTURE),
        StoreError::Unavailable(text) => Status::unavailable(text),
        StoreError::Full(_) => Status::resource_exhausted(NO_SPACE),
        StoreError::Busy(_) => Status::resource_exhausted(TOO_MANY),
        StoreError::TooLarge(_) => Status::invalid_argument(TOO_LARGE),
        StoreError::Denied(_) => Status::permission_denied(DENIED),
        StoreError::Corrupt(text) => Status::data_loss(text),
        StoreError::Unreadable(text) => Status::failed_precondition(format!("{UNREADABLE}{text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_back_as_what_it_was() {
        let errors = [
            StoreError::Compacted { asked: 3, oldest: 4 },
            StoreError::Future { asked: 3, current: 2 },
            StoreError::Unavailable("no leader".into()),
            StoreError::Full(NO_SPACE.into()),
            StoreError::Busy(TOO_MANY.into()),
            StoreError::TooLarge(TOO_LARGE.into()),
            StoreError::Denied(DENIED.into()),
            StoreError::Corrupt("checksum".into()),
            StoreError::Unreadable("data key 7".into()),
        ];
        for error in errors {
            let status = to_status(&error);
            let meaning = meaning(status.code(), status.message());
            let back = store_error(meaning, status.message(), 3, 2);
            assert_eq!(back.to_string(), error.to_string());
        }
    }
}
