//! What a write costs: ResourceQuotas of its namespace, limits that its namespace shares with others, allowances of its
//! organization and project, limits of its plane.
//! It is charged, and given back, in the commit of the write itself, so that no number of writers together get more than
//! there is, and nothing stays charged for what is not there.
//!
//! A [`Posting`] is what a write makes of an object. [`Ledger::commit_posted`] finds out which accounts that touches,
//! waits for its turn with them, and commits them with the object on the condition that they are as they were read.
//!
//! This crate must not know: HTTP, verbs, what is special about a kind beyond what its objects hold.

mod accounts;
mod ahead;
mod allocations;
mod allowances;
mod commit;
mod counted;
mod held;
mod holding;
mod kinds;
mod ledger;
mod limits;
mod meters;
mod plan;
mod providers;
mod shared;
mod tenancy;
mod turns;
mod usage;

pub use ahead::Ahead;
pub use allocations::{Allocations, place};
pub use counted::{ProviderLimit, ProviderLimits};
pub use held::Held;
pub use kinds::settle;
pub use ledger::{Holds, Ledger};
pub use limits::{PlaneLimits, Usage};
pub use meters::{Amounts, Meter, SharedGroup, SharedKinds, SharedLimits};
pub use plan::{Also, Posting, newest, path};
pub use tenancy::{Owner, Tenancy};
