//! What happens to a run, and what is to be done.

use crate::NodeId;
use freehold_machinery::Value;
use freehold_workflow_api::{Decision, Phase};
use std::collections::BTreeMap;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The run can begin.
    Start,
    /// Time passed.
    Time,
    /// A Pod was seen.
    Pod {
        /// Whose.
        node: NodeId,
        /// The attempt that it is about.
        attempt: u32,
        /// What was seen.
        state: PodState,
    },
    /// The plane refused to create the Pod of a task, for good.
    Refused {
        /// Whose.
        node: NodeId,
        /// The attempt that it is about.
        attempt: u32,
        /// Why.
        message: String,
    },
    /// What the controller does itself came to its end: requests, actions on objects, child DAGs.
    Executed {
        /// For which task.
        node: NodeId,
        /// For which attempt.
        attempt: u32,
        /// Its outputs, or why it failed.
        result: Result<BTreeMap<String, Value>, Failure>,
    },
    /// A task has all the locks that it waited for.
    Granted {
        /// Which.
        node: NodeId,
    },
    /// Somebody wants something.
    Command(Command),
}

/// What somebody wants of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// No further task begins.
    Suspend,
    /// Tasks begin again.
    Resume,
    /// No further task begins but finally tasks.
    Stop,
    /// Everything ends at once.
    Terminate,
    /// Failed tasks are done again.
    Retry {
        /// How often that was asked for.
        count: u32,
        /// Tasks that are done again although they succeeded.
        tasks: Vec<String>,
    },
    /// A decision about a task that waits for one.
    Decide {
        /// The task.
        task: String,
        /// Which.
        decision: Decision,
        /// By whom and why.
        message: String,
    },
}

/// What was seen of a Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodState {
    /// It exists.
    Pending,
    /// It exists and can't start as it is.
    Blocked {
        /// Why, in CamelCase.
        reason: String,
        /// Why, for people.
        message: String,
    },
    /// It runs.
    Running,
    /// It did what it should, and gave outputs, or some that can't be read.
    Succeeded(Result<BTreeMap<String, Value>, String>),
    /// It need not be made: the result of an earlier task is taken.
    Memoized(BTreeMap<String, Value>),
    /// It failed.
    Failed(Failure),
    /// It does not exist any more, and nobody saw it end.
    Gone,
}

/// Why an attempt failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The exit code of its container.
    pub exit_code: Option<i32>,
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

impl Failure {
    /// A failure without an exit code.
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { exit_code: None, reason: reason.to_owned(), message: message.into() }
    }
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create the Pod of an attempt, unless it exists.
    CreatePod {
        /// For which task.
        node: NodeId,
        /// For which attempt.
        attempt: u32,
    },
    /// Delete the Pod of an attempt.
    DeletePod {
        /// Whose.
        node: NodeId,
        /// The attempt that it is about.
        attempt: u32,
    },
    /// Do what the task says: a request, an action on an object, a child DAG.
    Execute {
        /// Which task.
        node: NodeId,
        /// Which attempt.
        attempt: u32,
    },
    /// Stop what [`Action::Execute`] began.
    Cancel {
        /// Which task.
        node: NodeId,
        /// Which attempt.
        attempt: u32,
    },
    /// Ask for the locks of a task.
    Acquire {
        /// Which task.
        node: NodeId,
    },
    /// Give back the locks of a task, or stop waiting for them.
    Release {
        /// Which task.
        node: NodeId,
    },
    /// Tell who wants to know.
    Notify(Notice),
}

/// News.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The run started.
    RunStarted,
    /// The run is over.
    RunEnded(Phase),
    /// A task is over.
    TaskEnded {
        /// Which.
        node: NodeId,
        /// How.
        phase: Phase,
    },
    /// A task is tried again.
    TaskRetried {
        /// Which.
        node: NodeId,
        /// What failed.
        failure: Failure,
    },
    /// A task waits for a decision.
    ApprovalWanted {
        /// Which.
        node: NodeId,
    },
}
