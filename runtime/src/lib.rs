//! Building blocks of controllers over many planes: informers, queues, workers, leader election, shares of work.
//!
//! ```text
//!            Planes (client + scope)
//!               |
//!  Informer ----+---> Store (what is there, projected, indexed)
//!     |  one watch per interest, over all planes or in one
//!     v  on_change handlers
//!   Queue  ---------> run_controller: reconcile(key) -> Result<Outcome>
//!   dedup, fair between planes, delays, backoff          bounded workers, graceful drain, metrics
//! ```
//!
//! A controller in short:
//! ```no_run
//! # use freehold_runtime::*;
//! # use freehold_client::{Client, Resource};
//! # use tokio_util::sync::CancellationToken;
//! # async fn example(client: Client, token: CancellationToken) {
//! let planes = Planes::all(client);
//! let queue = Queue::<Key>::new();
//! let interest = Interest::objects(Resource::cluster("", "v1", "namespaces"));
//! let mut informer = Informer::new(&planes, interest);
//! informer.enqueue_into(&queue);
//! let store = informer.store();
//! tokio::spawn(informer.run(token.clone()));
//! store.synced(&token).await;
//! let controller = Controller::new("example", queue).workers(4);
//! controller
//!     .run(token, move |key| {
//!         let (planes, store) = (planes.clone(), store.clone());
//!         async move {
//!             let Some(namespace) = store.get(&key) else { return Ok(Outcome::Done) };
//!             // decide, then act with planes.client(&key.plane)
//!             let _ = namespace;
//!             Ok(Outcome::Done)
//!         }
//!     })
//!     .await;
//! # }
//! ```
//!
//! Guarantees: a key is never worked on twice at once; a change that comes while its key is worked on makes it come
//! again; a plane with much to do does not keep the others waiting; a panic in one reconcile is a failure of that key
//! alone; nothing here costs per plane but the objects themselves.
//!
//! This crate must not know any kind.

mod accept;
pub mod conditions;
mod controller;
mod division;
mod events;
mod exposition;
mod informer;
mod key;
mod leader;
mod metrics;
pub mod object;
mod parts;
mod planes;
mod queue;
mod reconcile;
mod shares;
mod store;
mod subsystem;

pub use accept::accept;
pub use controller::{Controller, Outcome, Reconciled, resync};
pub use division::Division;
pub use events::{EventType, Recorder};
pub use exposition::{Format, Render, serve_metrics};
pub use informer::{Change, Informer, Interest, Seen};
pub use key::{Key, QueueKey};
pub use leader::{Election, Times};
pub use metrics::{Figures, Metrics};
pub use planes::{Control, Planes, Presence};
pub use queue::{Counts, Queue};
pub use reconcile::{Reconcile, Synced};
pub use shares::{Shared, Shares, Sharing};
pub use store::Store;
pub use subsystem::{Admission, Find, ReadHandler, ReadRequest, Reads, Scope, Subsystem};

/// Why a reconcile failed: anything that can be displayed. The key is retried after its backoff.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
