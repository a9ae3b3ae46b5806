//! Requests of the workflow subsystem to servers that are no Kubernetes API: object storage, webhooks, collectors of traces.
//!
//! - [`signature`] signs webhooks. Pure.
//! - [`Outbound`] sends requests, only to addresses that [`Networks`] allow; redirects are not followed.
//! - [`Bucket`] presigns and sends requests to objects of an S3-compatible store. Their signatures are those of [`sign`].
//!
//! This crate must not know planes, runs or tasks.

mod bucket;
mod client;
pub mod signature;
mod upload;

pub use bucket::{Bucket, BucketConfig};
pub use client::{Body, Error, Outbound, Request, Response};
pub use freehold_machinery_networks::Networks;
pub use freehold_s3::sign::{self, Credentials};
pub use upload::Upload;
