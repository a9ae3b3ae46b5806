//! A small Kubernetes client, with which Freehold's own programs reach an apiserver.
//!
//! One [`Client`] multiplexes all its requests over few HTTP/2 connections (HTTP/1.1 where the server speaks nothing
//! else), and [`Client::at`] gives a view of another base path, which is how planes are addressed. Objects are JSON
//! [`Value`](serde_json::Value)s.
//!
//! Guarantees: every answer has a size limit and every request a deadline; reads are retried when a connection breaks,
//! writes never after they may have arrived; `429` is waited out.
//!
//! This crate must not know any kind.

mod client;
mod config;
mod error;
mod kubeconfig;
mod request;
mod resource;
mod tls;
mod transport;
mod watch;

pub use client::{Client, List};
pub use config::{Config, Identity};
pub use error::{Error, Result};
pub use kubeconfig::{Kubeconfig, kubeconfig_as, yaml};
pub use request::{DeleteOptions, ListOptions, Patch, PatchOptions, Propagation, RawRequest, WatchOptions};
pub use resource::Resource;
pub use transport::RawResponse;
pub use watch::{Download, WatchEvent, WatchStream};
