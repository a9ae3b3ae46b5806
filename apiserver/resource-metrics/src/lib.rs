//! The resource metrics API (`metrics.k8s.io`), as metrics-server has it: what nodes and Pods use of CPU and memory.
//!
//! Its types are here as data ([`types`]), and so is how the summary of a kubelet becomes their objects: which Pods a node may
//! speak of ([`PlacedPods`]), what it says of them ([`read`]), which of them a request selects ([`Selection`]) and how they are
//! written ([`node_metrics`], [`pod_metrics`]). A kubelet is not trusted: it is believed about its own node and the Pods that
//! the plane has bound to it, and what is kept of its answer is no larger than these Pods are.
//!
//! Pure: no I/O and no clock. Who asks kubelets, and for how long the answers count, this crate must not know.

mod objects;
mod pods;
mod selection;
mod summary;
mod types;

pub use objects::{node_metrics, pod_metrics};
pub use pods::{NodePods, PlacedPods};
pub use selection::Selection;
pub use summary::{ContainerUsage, NodeUsage, PATH, PodUsage, Unreadable, Usage, read};
pub use types::{GROUP, VERSION, is_served, types};
