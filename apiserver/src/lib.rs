//! The apiserver: engines, cache, planes, registry and edge, joined. The only place that names concrete engines.
//!
//! [`Config::build`] gives an [`ApiServer`] that listens already; [`ApiServer::run`] serves until it is told to stop.
//! A core server and the apiserver of a dedicated pair are the same thing with another root plane and another store.

// Futures are boxed where they are made for the backend's trait, and copied for it: what one request in a thousand waits
// for, such as a webhook, must not make all of them large.
#![warn(clippy::large_futures)]

mod aggregation;
mod allowances;
mod audit;
mod authentication;
mod authorization;
mod backend;
pub mod backup;
mod classes;
mod clients;
mod compaction;
mod config;
mod credentials;
mod debugging;
mod etcd;
mod exports;
mod fairness;
mod host;
mod import;
mod kubelets;
mod local;
mod looks;
mod lookup;
mod measured;
mod metrics;
mod nodes;
mod organization;
mod people;
mod place;
mod policies;
mod provider;
mod reload;
mod resource_metrics;
mod rights;
mod services;
mod shared;
mod shared_limits;
mod shown_lately;
mod sleep;
mod tenancy;
mod tenant_rules;
mod tokens;
mod trails;
mod view;
mod visible;
mod webhooks;

pub use aggregation::AggregatorIdentity;
pub use audit::{AuditConfig, AuditLog, AuditWebhook};
pub use authentication::{AuthenticationConfig, TokenWebhookConfig};
pub use clients::ClientAuthority;
pub use config::{
    ApiServer, Config, KUBERNETES_VERSION, StoreConfig, Transport, open_store, plane_keys, seal,
};
pub use credentials::WebhookCredentials;
pub use freehold_apiserver_admission::{Attributes, Lookup, Plugin, Switches};
pub use freehold_apiserver_audit::{
    Batch as AuditBatch, Mode as AuditMode, Rotation as AuditRotation, Truncate as AuditTruncate,
};
pub use freehold_apiserver_cache::CacheOptions;
pub use freehold_apiserver_outbound::Networks;
pub use freehold_apiserver_planes::apis::{SYSTEM, SystemExport};
pub use freehold_apiserver_server::{
    BoxError, CertificateToken, CertificateTokens, Limits, MoreMetrics, Origins, Pages, PagesHandler,
    Payload, PlaneRead, ReadApi, ReadHandler,
};
pub use freehold_apiserver_storage::archive;
pub use freehold_apiserver_storage_embedded::Retention;
pub use freehold_apiserver_storage_etcd::{EtcdOptions, MemberStatus, members};
pub use freehold_apiserver_storage_sealed::Sealed;
pub use kubelets::KUBELET_CLIENT;
pub use local::LocalBackend;
pub use reload::{Material, Source};
