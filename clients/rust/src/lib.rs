//! Controllers over all consumers of an `APIExport` of Freehold, with `kube`.
//!
//! [`Consumers`] has clients for the provider's view: one over all consumers, and one for each. [`run`] lists and watches a
//! type once, whatever the number of consumers, keeps its objects by consumer, and calls a reconciler with a [`Request`] that
//! names the consumer besides the object. `kube`'s own controller knows objects by namespace and name alone, so that equal
//! names of two consumers would be one object.

mod consumers;
mod controller;
mod queue;
mod store;

pub use consumers::{Consumers, Error, PROJECT};
pub use controller::{Action, run};
pub use store::{Request, Store};
