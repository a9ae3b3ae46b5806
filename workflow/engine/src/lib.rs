//! The workflow engine: a run's state and an event give the next state and the actions, without I/O.
//!
//! ```text
//!   DAG, shared tasks --inline--> definition --compile--> Plan (immutable, shared by runs)
//!                                                           |
//!   Event (Pod, time, command, grant, result) ---> Run::apply(plan, event, now) ---> Actions
//!                                                           |
//!                                       encode / decode: the state in a DAGRun's status
//! ```
//!
//! Guarantees: an event that was applied changes nothing when it comes again; a task has one Pod for each attempt, with a
//! name that follows from run, task and attempt; every run ends when its Pods do; the cost of an event does not depend on
//! the size of the run (commands aside).
//!
//! This crate must not know HTTP, clients or the time of day.

mod commands;
mod encode;
mod event;
mod fan;
pub mod inline;
pub mod locks;
pub mod names;
mod outputs;
mod paging;
mod plan;
mod retry;
mod run;
pub mod schedule;
mod settle;
mod state;
mod status;
pub mod values;

pub use event::{Action, Command, Event, Failure, Notice, PodState};
pub use paging::Page;
pub use plan::{LockNeed, Plan, PlanTask};
pub use run::{Info, Run};
pub use state::{ItemId, Node, NodeId, State};

#[cfg(test)]
mod tests;
