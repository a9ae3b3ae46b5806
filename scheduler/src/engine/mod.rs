//! Where a Pod goes: from a snapshot of nodes and Pods to the nodes that it may be on, the best of them, or the Pods that have
//! to leave first. Pure: no I/O and no clock.

mod filter;
mod near;
mod pod;
mod preempt;
mod read;
mod refusal;
mod score;
mod snapshot;
mod spread;
mod terms;
mod volumes;

pub use filter::{Verdict, filter};
pub use pod::{HostPort, Pod};
pub use preempt::{Eviction, preempt};
pub use read::{Amounts, LabelMap};
pub use score::{best, scores};
pub(crate) use snapshot::has_ended;
pub use snapshot::{Budget, Group, Node, Snapshot};
pub use terms::{NodeTerm, PodTerm, Spread, Taint, Toleration};
pub use volumes::{Claim, Class, SELECTED_NODE, Volume, Volumes};
