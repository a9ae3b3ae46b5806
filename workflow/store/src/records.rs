//! What controllers report: plain data, times in milliseconds since 1970.

use crate::{Error, Phase, Result};
use serde::{Deserialize, Serialize};

/// The longest message that is kept, in bytes; the rest is cut off.
const MAX_MESSAGE: usize = 4096;
/// The longest parameters that are kept, in bytes of JSON.
const MAX_PARAMETERS: usize = 64 << 10;
/// The longest name of anything.
const MAX_NAME: usize = 512;
/// 2000-01-01 and 2100-01-01: times out of this range come from a broken clock.
const TIMES: std::ops::Range<i64> = 946_684_800_000..4_102_444_800_000;

/// A run, as it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// The plane or cluster.
    pub plane: String,
    /// The namespace.
    pub namespace: String,
    /// The namespace's uid: who gets its name later is not who had it. Empty where it is not known.
    #[serde(skip)]
    pub namespace_uid: String,
    /// The DAGRun's uid.
    pub uid: String,
    /// The DAGRun's name.
    pub name: String,
    /// The DAG's name; empty for a run that carries its definition.
    pub dag: String,
    /// Where it stands.
    pub phase: Phase,
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// What started it: `schedule`, `user`, `backfill`, `dag`.
    pub trigger: String,
    /// How often it was retried after its end. A higher number reopens an ended run.
    pub restart: i64,
    /// A number that grows with each transition: a late record with a smaller one changes nothing.
    pub revision: i64,
    /// When the DAGRun was created. Never changes.
    pub created_at: i64,
    /// When its first task could begin.
    pub started_at: Option<i64>,
    /// When it was over.
    pub ended_at: Option<i64>,
    /// Tasks by outcome.
    pub counts: Counts,
    /// Its parameters, as a JSON object; empty for none. Never values of Secrets.
    pub parameters: String,
}

/// Tasks by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All tasks known.
    pub total: i64,
    /// Tasks that succeeded.
    pub succeeded: i64,
    /// Tasks that failed.
    pub failed: i64,
    /// Tasks that were left out or stopped.
    pub skipped: i64,
}

/// An attempt of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRecord {
    /// The plane or cluster.
    pub plane: String,
    /// The namespace.
    pub namespace: String,
    /// The namespace's uid: who gets its name later is not who had it. Empty where it is not known.
    #[serde(skip)]
    pub namespace_uid: String,
    /// The run's uid.
    pub run: String,
    /// When the run was created; PostgreSQL finds the partition by it.
    pub run_created_at: i64,
    /// The task's name; `NAME[ITEM]` for an item of a fan-out.
    pub task: String,
    /// How often the run was retried before.
    pub restart: i64,
    /// Attempts before this one.
    pub attempt: i64,
    /// Where it stands.
    pub phase: Phase,
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// The Pod's name; empty where there is none.
    pub pod: String,
    /// The Pod's uid.
    pub pod_uid: String,
    /// The node's name.
    pub node: String,
    /// The exit code of its main container.
    pub exit_code: Option<i64>,
    /// When it was ready to begin.
    pub queued_at: Option<i64>,
    /// When it began.
    pub started_at: Option<i64>,
    /// When it was over.
    pub ended_at: Option<i64>,
}

/// The kept log of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogRecord {
    /// The plane or cluster.
    pub plane: String,
    /// The namespace.
    pub namespace: String,
    /// The namespace's uid: who gets its name later is not who had it. Empty where it is not known.
    #[serde(skip)]
    pub namespace_uid: String,
    /// The run's uid.
    pub run: String,
    /// When the run was created.
    pub run_created_at: i64,
    /// The task's name.
    pub task: String,
    /// Attempts before this one.
    pub attempt: i64,
    /// How often the run was retried before.
    pub restart: i64,
    /// The Pod's name.
    pub pod: String,
    /// The Pod's uid.
    pub pod_uid: String,
    /// The container's name.
    pub container: String,
    /// Where the log store has it.
    pub location: String,
    /// Its length in bytes.
    pub bytes: i64,
    /// Its length in lines.
    pub lines: i64,
    /// Whether it was read to its end.
    pub complete: bool,
}

/// Something to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A run.
    Run(RunRecord),
    /// An attempt of a task.
    Task(TaskRecord),
    /// A kept log.
    Log(LogRecord),
}

impl From<RunRecord> for Record {
    fn from(record: RunRecord) -> Self {
        Self::Run(record)
    }
}

impl From<TaskRecord> for Record {
    fn from(record: TaskRecord) -> Self {
        Self::Task(record)
    }
}

impl From<LogRecord> for Record {
    fn from(record: LogRecord) -> Self {
        Self::Log(record)
    }
}

impl RunRecord {
    /// Returns how long it waited before it started, in milliseconds.
    pub fn queue_millis(&self) -> Option<i64> {
        self.started_at.or(self.ended_at).map(|at| (at - self.created_at).max(0))
    }

    /// Returns how long it took from its start to its end, in milliseconds.
    pub fn duration_millis(&self) -> Option<i64> {
        Some((self.ended_at? - self.started_at.unwrap_or(self.ended_at?)).max(0))
    }

    /// Checks identifiers and times, and cuts texts to their limits.
    ///
    /// # Errors
    /// [`Error::Record`] for empty or long identifiers, times out of range, and an end that does not fit the phase.
    pub fn check(mut self) -> Result<Self> {
        let what = format!("run {}/{}", self.namespace, self.name);
        let refuse = |why: &str| Err(Error::Record { what: what.clone(), why: why.to_owned() });
        if self.uid.is_empty() || self.namespace.is_empty() {
            return refuse("uid and namespace are wanted");
        }
        if [&self.plane, &self.namespace, &self.uid, &self.name, &self.dag, &self.trigger]
            .iter()
            .any(|s| s.len() > MAX_NAME)
        {
            return refuse("a name is longer than 512 bytes");
        }
        if !TIMES.contains(&self.created_at) {
            return refuse("createdAt is not between the years 2000 and 2100");
        }
        if self.phase.is_over() != self.ended_at.is_some() {
            return refuse("endedAt goes with a phase that is over, and with no other");
        }
        if self.parameters.len() > MAX_PARAMETERS {
            self.parameters = String::new();
        }
        cut(&mut self.message, MAX_MESSAGE);
        cut(&mut self.reason, MAX_NAME);
        Ok(self)
    }
}

impl Record {
    /// Checks identifiers and times, and cuts texts to their limits.
    ///
    /// # Errors
    /// [`Error::Record`] for the reasons of [`RunRecord::check`].
    pub fn check(self) -> Result<Self> {
        match self {
            Self::Run(run) => run.check().map(Self::Run),
            Self::Task(mut task) => {
                check_child(&task.run, &task.namespace, &task.task, task.run_created_at)?;
                if task.phase.is_over() && task.ended_at.is_none() {
                    return Err(Error::Record {
                        what: format!("task {}", task.task),
                        why: "it is over without endedAt".into(),
                    });
                }
                cut(&mut task.message, MAX_MESSAGE);
                cut(&mut task.reason, MAX_NAME);
                Ok(Self::Task(task))
            }
            Self::Log(log) => {
                check_child(&log.run, &log.namespace, &log.task, log.run_created_at)?;
                Ok(Self::Log(log))
            }
        }
    }

    /// Returns plane and run, by which records of a batch are ordered.
    pub(crate) fn run(&self) -> (&str, &str) {
        match self {
            Self::Run(run) => (&run.plane, &run.uid),
            Self::Task(task) => (&task.plane, &task.run),
            Self::Log(log) => (&log.plane, &log.run),
        }
    }

    /// Returns when the run was created.
    pub(crate) fn run_created_at(&self) -> i64 {
        match self {
            Self::Run(run) => run.created_at,
            Self::Task(task) => task.run_created_at,
            Self::Log(log) => log.run_created_at,
        }
    }
}

fn check_child(run: &str, namespace: &str, task: &str, run_created_at: i64) -> Result<()> {
    let refuse =
        |why: &str| Err(Error::Record { what: format!("task {task} of run {run}"), why: why.to_owned() });
    if run.is_empty() || namespace.is_empty() || task.is_empty() {
        return refuse("run, namespace and task are wanted");
    }
    if [run, namespace, task].iter().any(|s| s.len() > MAX_NAME) {
        return refuse("a name is longer than 512 bytes");
    }
    if !TIMES.contains(&run_created_at) {
        return refuse("runCreatedAt is not between the years 2000 and 2100");
    }
    Ok(())
}

/// Cuts a text to at most `limit` bytes, at a character's border.
fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
    }
    // PostgreSQL has no NUL in texts.
    if text.contains('\0') {
        *text = text.replace('\0', "\u{fffd}");
    }
}
