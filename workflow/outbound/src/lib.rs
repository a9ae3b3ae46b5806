//! Requests of the workflow subsystem to servers that are no Kubernetes API: object storage, webhooks, collectors of traces.
//!
//! - [`sign`] presigns requests to S3 (Signature Version 4). Pure.
//! - [`signature`] signs webhooks. Pure.
//! - [`Outbound`] sends requests, only to addresses that [`Networks`] allow; redirects are not followed.
//! - [`Bucket`] does both: objects of an S3-compatible store.
//!
//! This crate must not know planes, runs or tasks.

mod bucket;
mod client;
pub mod sign;
pub mod signature;
mod upload;

pub use bucket::{Bucket, BucketConfig};
pub use client::{Body, Error, Outbound, Request, Response};
pub use freehold_machinery_networks::Networks;
pub use sign::Credentials;
pub use upload::Upload;
