//! A small client of the S3 API, for stores of Amazon and of everybody else who speaks it.
//!
//! [`sign`] is pure: AWS Signature Version 4 in headers and in presigned URLs, held against Amazon's published examples.
//! [`Bucket`] makes the requests that Freehold needs: put, get, list, delete, and uploads in parts.
//!
//! Guarantees: keys and answers that a store sends have limits; secrets reach neither `Debug` nor errors; a request that is
//! repeated means the same as one that is not. This crate must not know what is kept there.

mod address;
mod bucket;
mod connection;
mod error;
pub mod sign;
mod upload;
mod xml;

pub use address::{Address, Config};
pub use bucket::{Bucket, Object, ObjectStream};
pub use error::{Error, Result};
pub use sign::Credentials;
pub use upload::Upload;
