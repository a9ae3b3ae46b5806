//! Why a store's values cannot be opened.

use freehold_apiserver_storage::StoreError;

/// Why a store's values can't be opened. Never tells a key.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It has encrypted values, and no keys were given.
    #[error("the store has encrypted values, and no encryption keys were given")]
    NoKeys,
    /// A key-encryption key is missing.
    #[error(
        "data key {data_key} of the store is sealed with the encryption key {key:?}, which is not among those given ({given})"
    )]
    UnknownKey {
        /// The data key.
        data_key: u32,
        /// The name of the key-encryption key.
        key: String,
        /// The names of those that are there.
        given: String,
    },
    /// A key-encryption key is another than it was.
    #[error("the encryption key {key:?} is not the one that sealed data key {data_key} of the store")]
    WrongKey {
        /// The data key.
        data_key: u32,
        /// The name of the key-encryption key.
        key: String,
    },
    /// A value names a data key that the store does not have.
    #[error("the store has no data key {0}")]
    NoDataKey(u32),
    /// The store does not answer.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The library refuses, or data keys ran out.
    #[error("the cryptographic library failed")]
    Library,
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => error,
            other => StoreError::Unreadable(other.to_string()),
        }
    }
}
