//! A run that is under way, between two looks at it.

use crate::outputs;
use crate::runs::Known;
use crate::view::{PodSeen, PodView};
use freehold_client::{Client, RawRequest};
use freehold_runtime::Key;
use freehold_workflow_api::{DAGRun, DagRunStatus, OutputSource};
use freehold_workflow_engine::{Action, Event, NodeId, Plan, PodState, Run};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;

/// Bytes of a log that are read for an output.
const MAX_LOG: usize = outputs::MAX_BYTES + 1;

/// A run that is under way.
pub(crate) struct Live {
    pub(crate) plane: freehold_machinery::PlaneId,
    /// The uid of its namespace, where something is kept by it.
    pub(crate) namespace_uid: String,
    pub(crate) run: Run,
    pub(crate) plan: Arc<Plan>,
    pub(crate) revision: String,
    /// The object as it was last seen: labels, spec, generation.
    pub(crate) object: DAGRun,
    /// Whether the object's spec has been acted on.
    pub(crate) seen_generation: Option<i64>,
    /// Actions that are still to be done.
    pub(crate) todo: VecDeque<Action>,
    /// Pods whose end was counted, to be let go when that is written.
    pub(crate) ended: HashSet<(NodeId, u32)>,
    /// Actions on objects that wait for a condition.
    pub(crate) polled: HashSet<(NodeId, u32)>,
    /// Whether the status has something to say that was not written.
    pub(crate) dirty: bool,
    pub(crate) written: Option<Instant>,
    /// A digest of what the status says since then, without how often it was written.
    pub(crate) said: Option<String>,
    pub(crate) began: Instant,
    /// Whether it has its own locks.
    pub(crate) locked: bool,
    /// What is known of the status that is to be replaced.
    pub(crate) known: Known,
    /// Whether another controller has written its status: it has to be taken up anew.
    pub(crate) lost: bool,
}

impl Live {
    /// Forgets the status, but for what is still to be delivered: it is made anew, and written whole.
    pub(crate) fn rewrite(&mut self) {
        let deliveries = std::mem::take(&mut self.object.status.deliveries);
        self.object.status = DagRunStatus { deliveries, ..DagRunStatus::default() };
        self.said = None;
    }

    /// Takes an event and keeps what is to be done.
    pub(crate) fn apply(&mut self, event: &Event) {
        let actions = self.run.apply(&self.plan, event, now());
        self.todo.extend(actions);
        self.dirty |= self.run.take_dirty();
    }

    /// Reads what a Pod's status says, with its log where an output is there.
    pub(crate) async fn pod_event(
        &self,
        client: &Client,
        key: &Key,
        pod: &PodView,
    ) -> Result<Event, freehold_client::Error> {
        let state = match &pod.seen {
            PodSeen::Pending => PodState::Pending,
            PodSeen::Blocked { reason, message } => {
                PodState::Blocked { reason: reason.clone(), message: message.clone() }
            }
            PodSeen::Running => PodState::Running,
            PodSeen::Failed(failure) => PodState::Failed(failure.clone()),
            PodSeen::Gone => PodState::Gone,
            PodSeen::Succeeded(message) => {
                let declared =
                    &self.plan.tasks().get(pod.node.task as usize).map(|task| &task.task.template.outputs);
                let declared = declared.map(Vec::as_slice).unwrap_or_default();
                let wants_log = declared.iter().any(|output| output.from == OutputSource::Log);
                let log = match wants_log {
                    true => log(client, key, &self.run.pod_name(&self.plan, pod.node, pod.attempt)).await?,
                    false => String::new(),
                };
                let of_container = outputs::of_container(declared, message, &log);
                PodState::Succeeded(of_container.and_then(|mut read| {
                    read.extend(crate::artifacts::outputs(&self.run, &self.plan, pod.node, pod.attempt)?);
                    Ok(read)
                }))
            }
        };
        Ok(Event::Pod { node: pod.node, attempt: pod.attempt, state })
    }
}

async fn log(client: &Client, key: &Key, pod: &str) -> Result<String, freehold_client::Error> {
    let path = format!(
        "/api/v1/namespaces/{}/pods/{pod}/log?container={}&limitBytes={MAX_LOG}",
        key.namespace,
        crate::pods::MAIN
    );
    let answer = client.request(&RawRequest { accept: "*/*", ..RawRequest::get(path) }).await?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

/// Milliseconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
