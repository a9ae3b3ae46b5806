//! What cannot be read as a Kubernetes object in protobuf.

/// What can't be read as a Kubernetes object in protobuf, in words for the client.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

pub(crate) type Result<T> = std::result::Result<T, Malformed>;

pub(crate) fn malformed(why: impl Into<String>) -> Malformed {
    Malformed(why.into())
}

/// What each body begins with.
pub(crate) const MAGIC: &[u8; 4] = b"k8s\0";
