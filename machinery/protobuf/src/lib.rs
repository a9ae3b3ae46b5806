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
mod error;
mod messages;
mod names;
mod plan;
mod special;
mod wire;

pub use decode::decode;
pub use encode::{Kind, encode, frame, item_head};
pub use error::Malformed;

/// The media type, for requests and answers.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
