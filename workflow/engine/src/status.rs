//! What a run's status says to people.

use crate::run::{Run, Stage};
use crate::{Node, NodeId, Plan, State, names};
use freehold_machinery::time;
use freehold_workflow_api::Condition;
use freehold_workflow_api::{DagRunStatus, Phase, RunCounts, TaskKind, TaskStatus};
use jiff::Timestamp;

/// Tasks that a status shows.
const MAX_SHOWN: usize = 100;
/// Tasks that are looked through for those to show; beyond it a run is shown by its counts.
const MAX_SEARCHED: usize = 2000;

impl Run {
    /// Where the run stands.
    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Pending => Phase::Pending,
            Stage::Over => self.ended_as.unwrap_or_default(),
            _ if self.suspended => Phase::Suspended,
            _ => Phase::Running,
        }
    }

    /// Where the run would stand if it were over.
    pub(crate) fn phase_so_far(&self) -> Phase {
        self.ended_as.unwrap_or(if self.failed { Phase::Failed } else { Phase::Succeeded })
    }

    /// Tasks by where they stand.
    pub fn counts(&self) -> RunCounts {
        self.counts
    }

    /// Why the run stands where it does: CamelCase, and for people.
    pub fn reason(&self) -> (&str, &str) {
        (&self.reason, &self.message)
    }

    /// When it began and ended, in milliseconds since 1970; 0: it did not.
    pub fn times(&self) -> (i64, i64) {
        (self.started, self.finished)
    }

    /// Fills in a status, but for what only the controller knows.
    pub fn status(&self, plan: &Plan, status: &mut DagRunStatus) {
        let time = |millis: i64| Some(millis).filter(|m| *m > 0).map(format);
        status.phase = self.phase();
        (status.reason, status.message) = (self.reason.clone(), self.message.clone());
        (status.started_at, status.finished_at) = (time(self.started), time(self.finished));
        status.counts = self.counts;
        let counts = self.counts;
        status.progress = format!("{}/{}", counts.succeeded + counts.failed + counts.skipped, counts.total);
        status.tasks = self.shown(plan);
        if self.is_over() {
            let succeeded = self.phase() == Phase::Succeeded;
            status.conditions = vec![Condition {
                type_: "Succeeded".into(),
                status: if succeeded { "True" } else { "False" }.into(),
                reason: if self.reason.is_empty() { "Succeeded".into() } else { self.reason.clone() },
                message: self.message.clone(),
                last_transition_time: time::format_seconds(
                    Timestamp::from_millisecond(self.finished).unwrap_or_default(),
                ),
                observed_generation: status.observed_generation,
            }];
        } else {
            status.conditions.clear();
        }
    }

    /// Tasks that a status shows: failed ones first, then those under way, then others.
    fn shown(&self, plan: &Plan) -> Vec<TaskStatus> {
        let mut found: Vec<(u8, NodeId, Node)> = Vec::new();
        let rank = |node: &Node| match node.state {
            State::Failed => 0,
            State::Waiting | State::Ready => 3,
            State::Succeeded | State::Skipped | State::Stopped => 2,
            _ => 1,
        };
        for (task, node) in (0..).zip(&self.nodes).take(MAX_SEARCHED) {
            found.push((rank(node), NodeId::task(task), *node));
        }
        // Of items, those that people look for.
        for (id, _) in self.details.iter().filter(|(id, _)| id.item.number().is_some()).take(MAX_SHOWN) {
            if let Some(node) = self.node(*id) {
                found.push((rank(node), *id, *node));
            }
        }
        found.sort_by_key(|(rank, id, _)| (*rank, *id));
        found.truncate(MAX_SHOWN);
        found.sort_by_key(|(_, id, _)| *id);
        found.into_iter().map(|(_, id, node)| self.task_status(plan, id, &node)).collect()
    }

    /// What a status says of a task.
    pub fn task_status(&self, plan: &Plan, id: NodeId, node: &Node) -> TaskStatus {
        let task = plan.task(id.task);
        let began = node.since > 0 || !matches!(node.state, State::Waiting | State::Ready | State::Skipped);
        let at = |tenths: u32| format(self.started + i64::from(tenths) * 100);
        let detail = self.details.get(&id).cloned().unwrap_or_default();
        let attempt = u32::from(node.attempt);
        let is_pod =
            task.kind == TaskKind::Pod && !self.fans.contains_key(&id.task) || id.item.number().is_some();
        TaskStatus {
            name: self.title(plan, id),
            phase: node.state.phase(),
            reason: detail.reason,
            message: detail.message,
            attempt,
            pod: if is_pod && task.kind == TaskKind::Pod && began {
                self.pod_name(plan, id, attempt)
            } else {
                String::new()
            },
            exit_code: detail.exit_code,
            started_at: began.then(|| at(node.since)),
            finished_at: (began && node.state.is_over()).then(|| at(node.ended)),
        }
    }

    /// A task's name, with the number of its item.
    pub fn title(&self, plan: &Plan, id: NodeId) -> String {
        match id.item.number() {
            Some(item) => format!("{}[{item}]", plan.task(id.task).name()),
            None => plan.task(id.task).name().to_owned(),
        }
    }

    /// The name of the Pod of an attempt.
    pub fn pod_name(&self, plan: &Plan, id: NodeId, attempt: u32) -> String {
        names::pod(&self.info.name, &self.info.uid, plan.task(id.task).name(), id, attempt)
    }
}

fn format(millis: i64) -> String {
    let time = Timestamp::from_millisecond(millis).unwrap_or_default();
    // A time as metav1.Time has it, with the part of a second that durations of short tasks need.
    let text = time::format_micro(time);
    text.get(..text.len().saturating_sub(4)).map_or(text.clone(), |short| format!("{short}Z"))
}
