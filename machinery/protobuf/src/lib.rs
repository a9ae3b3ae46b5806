//! Kubernetes' protobuf encoding of the built-in kinds
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>), to and from JSON.
//!
//! Clients built with client-go send it for built-in kinds without being asked. The messages are data (`messages.txt`):
//! one decoder and one encoder read it for all kinds. The encoder goes over the bytes of the JSON once.
//!
//! Guarantees: input is read with limits on depth and on what repeated fields can blow up to; unknown fields are
//! skipped, as protobuf wants. This crate must not know: schemas, defaults, HTTP.

mod decode;
mod encode;
mod messages;
mod plan;
mod special;
mod wire;

pub use decode::decode;
pub use encode::{Kind, encode, frame, item_head};

/// The media type, for requests and answers.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// What each body begins with.
pub(crate) const MAGIC: &[u8; 4] = b"k8s\0";

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
