//! Sleep and waking of namespaces: the state that schedules ask for, and the steps that lead there.
//!
//! ```text
//!  schedule + exceptions + override + now --> wish        (schedule, supervisor)
//!  wish + observed objects + record       --> plan        (plan)
//!     plan: record to be written first, then patches with the observed resource versions
//! ```
//!
//! A plan is computed anew after each interruption. It needs nothing but objects and record, so that a process may end
//! between any two writes.

mod plan;
mod record;
mod rules;
mod schedule;
mod supervisor;

pub use plan::{ObjectRef, Plan, Step, sleep, wake};
pub use record::{Chunk, ChunkWrite, pack};
pub use rules::{Observed, Rule, Selection, builtin_rules, scalable_rule};
pub use schedule::{Calendar, Transition};
pub use supervisor::{Settings, Supervisor, Wish, Wisher, choose};
