//! A run's state, and what an event does to it.

use crate::event::{Action, Command, Event, Failure, Notice, PodState};
use crate::fan::Fan;
use crate::outputs::Paging;
use crate::plan::tenths;
use crate::{Node, NodeId, Plan, State, values};
use freehold_machinery::{Value, time};
use freehold_workflow_api::{Phase, RunCounts, TaskKind, ValueSource};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// How many tasks of a run are under way at once where its DAG does not say.
pub(crate) const MAX_ACTIVE: u32 = 1000;
/// How many details of failures a run keeps.
const MAX_DETAILS: usize = 200;
/// Characters of a message that are kept.
const MAX_MESSAGE: usize = 256;

/// What a run is, and was given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// The uid of its object.
    pub uid: String,
    /// The name of its object.
    pub name: String,
    /// The namespace of its object.
    pub namespace: String,
    /// The name of its DAG.
    pub dag: String,
    /// The time of the schedule that it is for; empty for runs on demand.
    pub scheduled_at: String,
    /// Values of parameters.
    pub params: BTreeMap<String, Value>,
    /// Parameters whose values Pods alone read.
    pub secrets: BTreeMap<String, ValueSource>,
    /// Its own priority, beside that of its tasks.
    pub priority: i32,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    #[default]
    Pending,
    Main,
    Finally,
    Over,
}

/// How the tasks before a task ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    /// How many of the failed ones were allowed to fail.
    pub(crate) excused: u32,
    pub(crate) skipped: u32,
}

/// What a time is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WakeFor {
    /// The next attempt.
    Retry,
    /// The end of a wait.
    Waited,
    /// An attempt may take no longer.
    Timeout,
    /// A Pod may be unable to start no longer.
    StartTimeout,
    /// The run may take no longer.
    RunTimeout,
}

/// When a task has to be looked at, in which attempt, and what for.
pub(crate) type Wake = (u32, NodeId, u16, WakeFor);

/// A run: everything that is known of it between two events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// What it is, and was given.
    pub info: Info,
    pub(crate) stage: Stage,
    pub(crate) suspended: bool,
    pub(crate) stopping: bool,
    pub(crate) failed: bool,
    pub(crate) ended_as: Option<Phase>,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) retries: u32,
    /// Milliseconds since 1970.
    pub(crate) started: i64,
    pub(crate) finished: i64,
    /// Tenths of a second since `started`.
    pub(crate) clock: u32,
    pub(crate) nodes: Vec<Node>,
    pub(crate) open: Vec<u32>,
    pub(crate) tally: Vec<Tally>,
    pub(crate) fans: HashMap<u32, Fan>,
    pub(crate) outputs: HashMap<u32, BTreeMap<String, Value>>,
    pub(crate) paging: Paging,
    pub(crate) details: BTreeMap<NodeId, Failure>,
    pub(crate) ready: BTreeSet<(Reverse<i32>, NodeId)>,
    pub(crate) wakes: BTreeSet<Wake>,
    pub(crate) active: u32,
    /// Tasks of the stage that are not over.
    pub(crate) left: u32,
    pub(crate) counts: RunCounts,
    pub(crate) settled: VecDeque<u32>,
    pub(crate) actions: Vec<Action>,
    pub(crate) dirty: bool,
}

impl Run {
    /// A run of a plan that has not begun.
    pub fn new(plan: &Plan, info: Info) -> Self {
        let tasks = plan.tasks();
        let count = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        Self {
            info,
            nodes: vec![Node::default(); tasks.len()],
            open: tasks.iter().map(|task| u32::try_from(task.before.len()).unwrap_or(u32::MAX)).collect(),
            tally: vec![Tally::default(); tasks.len()],
            counts: RunCounts { total: count, pending: count, ..RunCounts::default() },
            ..Self::default()
        }
    }

    /// Takes an event at a time (milliseconds since 1970), and returns what is to be done.
    pub fn apply(&mut self, plan: &Plan, event: &Event, now: i64) -> Vec<Action> {
        self.set_clock(now);
        // What was due before the event comes before it.
        self.fire(plan);
        self.advance(plan, now);
        match event {
            Event::Start => self.start(plan, now),
            Event::Time => {}
            Event::Pod { node, attempt, state } => self.pod(plan, *node, *attempt, state),
            Event::Refused { node, attempt, message } => {
                let failure = Failure::new("PodRefused", message.clone());
                self.failed_attempt(plan, *node, *attempt, failure);
            }
            Event::Executed { node, attempt, result } => self.executed(plan, *node, *attempt, result),
            Event::Granted { node } => {
                if self.node(*node).is_some_and(|n| n.state == State::Locking) {
                    self.begin(plan, *node);
                }
            }
            Event::Command(command) => self.command(plan, command, now),
        }
        self.fire(plan);
        self.advance(plan, now);
        std::mem::take(&mut self.actions)
    }

    /// When the run has to be looked at again though nothing happens, in milliseconds since 1970.
    pub fn next_wake(&self) -> Option<i64> {
        let (at, ..) = self.wakes.first()?;
        Some(self.started + i64::from(*at) * 100)
    }

    /// Whether something changed that its status has to say, since this was asked last.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Whether nothing more comes.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Returns whether the run has begun.
    pub fn is_started(&self) -> bool {
        self.stage != Stage::Pending
    }

    /// Returns the state of a task.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        match id.item.number() {
            None => self.nodes.get(id.task as usize),
            Some(item) => self.fans.get(&id.task)?.nodes.get(item),
        }
    }

    /// The value of an item of a fan-out.
    pub fn item(&self, id: NodeId) -> Option<Value> {
        self.fans.get(&id.task)?.items.get(id.item.number()?)
    }

    /// Values that a task gave.
    pub fn outputs(&self, task: u32) -> Option<&BTreeMap<String, Value>> {
        self.outputs.get(&task)
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        match id.item.number() {
            None => self.nodes.get_mut(id.task as usize),
            Some(item) => self.fans.get_mut(&id.task)?.nodes.get_mut(item),
        }
    }

    fn set_clock(&mut self, now: i64) {
        if self.started != 0 {
            let passed = (now - self.started).max(0) / 100;
            self.clock = u32::try_from(passed).unwrap_or(u32::MAX).max(self.clock);
        }
    }

    fn start(&mut self, plan: &Plan, now: i64) {
        if self.stage != Stage::Pending {
            return;
        }
        self.stage = Stage::Main;
        self.started = now;
        self.left = plan.main();
        self.dirty = true;
        self.actions.push(Action::Notify(Notice::RunStarted));
        if let Some(timeout) = plan.timeout {
            self.wakes.insert((timeout, NodeId::task(0), 0, WakeFor::RunTimeout));
        }
        for task in 0..plan.main() {
            self.consider(plan, task);
        }
    }

    /// Moves on as far as that goes without anything further happening.
    fn advance(&mut self, plan: &Plan, now: i64) {
        loop {
            while let Some(task) = self.settled.pop_front() {
                self.tell_dependents(plan, task);
            }
            if self.pump(plan) || !self.settled.is_empty() {
                continue;
            }
            if self.left > 0 || !self.next_stage(plan, now) {
                return;
            }
        }
    }

    /// Whether there is a next stage.
    fn next_stage(&mut self, plan: &Plan, now: i64) -> bool {
        let count = u32::try_from(plan.tasks().len()).unwrap_or(u32::MAX);
        match self.stage {
            Stage::Main => {
                self.stage = Stage::Finally;
                self.left = count - plan.main();
                for task in plan.main()..count {
                    self.consider(plan, task);
                }
                true
            }
            Stage::Finally => {
                self.end(now);
                false
            }
            Stage::Pending | Stage::Over => false,
        }
    }

    pub(crate) fn end(&mut self, now: i64) {
        self.stage = Stage::Over;
        self.finished = now;
        self.wakes.clear();
        self.ready.clear();
        self.dirty = true;
        let phase = self.ended_as.unwrap_or(if self.failed { Phase::Failed } else { Phase::Succeeded });
        self.ended_as = Some(phase);
        self.actions.push(Action::Notify(Notice::RunEnded(phase)));
    }

    /// Begins tasks that are ready, as long as there are slots. Whether one did.
    fn pump(&mut self, plan: &Plan) -> bool {
        let limit = match plan.spec().parallelism {
            0 => MAX_ACTIVE,
            limit => limit,
        };
        let mut any = false;
        while !self.is_held() && self.active < limit {
            let Some((_, node)) = self.ready.pop_first() else { break };
            any = true;
            if plan.task(node.task).has_locks() {
                self.set_state(node, State::Locking);
                self.actions.push(Action::Acquire { node });
            } else {
                self.begin(plan, node);
            }
        }
        any
    }

    /// Whether no task begins now.
    fn is_held(&self) -> bool {
        self.suspended || matches!(self.stage, Stage::Pending | Stage::Over)
    }

    /// Begins the current attempt of a task.
    pub(crate) fn begin(&mut self, plan: &Plan, id: NodeId) {
        let task = plan.task(id.task);
        let clock = self.clock;
        let Some(node) = self.node_mut(id) else { return };
        if node.attempt == node.base {
            node.first = clock;
        }
        (node.since, node.ended) = (clock, 0);
        let (attempt, number) = (u32::from(node.attempt), node.attempt);
        if let Some(timeout) = task.timeout {
            self.wakes.insert((clock.saturating_add(timeout), id, number, WakeFor::Timeout));
        }
        match task.kind {
            TaskKind::Pod => {
                self.set_state(id, State::Starting);
                if task.waits_for_start {
                    self.wakes.insert((
                        clock.saturating_add(task.start_timeout),
                        id,
                        number,
                        WakeFor::StartTimeout,
                    ));
                }
                self.actions.push(Action::CreatePod { node: id, attempt });
            }
            TaskKind::Http | TaskKind::Resource | TaskKind::Dag => {
                self.set_state(id, State::Running);
                self.actions.push(Action::Execute { node: id, attempt });
            }
            TaskKind::Approval => {
                self.set_state(id, State::Deciding);
                self.actions.push(Action::Notify(Notice::ApprovalWanted { node: id }));
            }
            TaskKind::Wait => match self.wait_end(plan, id) {
                Ok(at) => {
                    self.set_state(id, State::Running);
                    self.wakes.insert((at, id, number, WakeFor::Waited));
                    self.fire(plan);
                }
                Err(error) => {
                    self.set_state(id, State::Running);
                    self.failed_attempt(plan, id, attempt, Failure::new("InvalidReference", error));
                }
            },
        }
    }

    /// Changes a task's state, and with it the counts.
    pub(crate) fn set_state(&mut self, id: NodeId, state: State) {
        let (clock, is_parent) = (self.clock, id.item.number().is_none() && self.fans.contains_key(&id.task));
        let Some(node) = self.node_mut(id) else { return };
        let before = std::mem::replace(&mut node.state, state);
        if state.is_over() {
            node.ended = clock;
        }
        if before.is_active() {
            self.active -= 1;
        }
        if state.is_active() {
            self.active += 1;
        }
        self.dirty = true;
        if !is_parent {
            *count_of(&mut self.counts, before) -= 1;
            *count_of(&mut self.counts, state) += 1;
        }
    }

    fn pod(&mut self, plan: &Plan, id: NodeId, attempt: u32, state: &PodState) {
        let Some(node) = self.node(id).copied() else { return };
        if u32::from(node.attempt) != attempt || node.state.is_over() || self.is_over() {
            return;
        }
        if plan.tasks().get(id.task as usize).is_none_or(|task| task.kind != TaskKind::Pod) {
            return;
        }
        match node.state {
            // Its beginning was lost with a controller.
            State::Ready | State::Locking | State::Backoff if *state != PodState::Gone => {
                self.ready.remove(&(Reverse(self.priority(plan, id)), id));
                self.begin(plan, id);
                self.actions.retain(|action| *action != Action::CreatePod { node: id, attempt });
            }
            State::Starting | State::Running => {}
            _ => return,
        }
        match state {
            PodState::Pending => {}
            PodState::Blocked { reason, message } => self.blocked(plan, id, reason, message),
            PodState::Running => {
                if self.node(id).is_some_and(|node| node.state == State::Starting) {
                    self.details.remove(&id);
                    self.set_state(id, State::Running);
                }
            }
            PodState::Succeeded(Ok(outputs)) => self.succeeded(plan, id, outputs.clone()),
            PodState::Succeeded(Err(error)) => {
                self.failed_attempt(plan, id, attempt, Failure::new("InvalidOutput", error.clone()));
            }
            PodState::Memoized(outputs) => {
                self.succeeded(plan, id, outputs.clone());
                // Failures have to have room beside these.
                if self.details.len() < MAX_DETAILS / 2 {
                    self.note(id, Failure::new("Memoized", "the result of an earlier task was taken"));
                }
            }
            PodState::Failed(failure) => self.failed_attempt(plan, id, attempt, failure.clone()),
            PodState::Gone => {
                let failure = Failure::new("PodDeleted", "the Pod was deleted before it ended");
                self.failed_attempt(plan, id, attempt, failure);
            }
        }
    }

    /// Notes why a Pod can't start, and how long that may last.
    fn blocked(&mut self, plan: &Plan, id: NodeId, reason: &str, message: &str) {
        let Some(node) = self.node(id).copied() else { return };
        let known = self.details.get(&id).is_some_and(|detail| detail.reason == reason);
        if node.state != State::Starting || known {
            return;
        }
        let first = !self.details.contains_key(&id);
        self.note(id, Failure::new(reason, message));
        if first && !plan.task(id.task).waits_for_start {
            let at = self.clock.saturating_add(plan.task(id.task).start_timeout);
            self.wakes.insert((at, id, node.attempt, WakeFor::StartTimeout));
        }
    }

    fn executed(
        &mut self,
        plan: &Plan,
        id: NodeId,
        attempt: u32,
        result: &Result<BTreeMap<String, Value>, Failure>,
    ) {
        let Some(node) = self.node(id).copied() else { return };
        if u32::from(node.attempt) != attempt || node.state != State::Running {
            return;
        }
        match result {
            Ok(outputs) => self.succeeded(plan, id, outputs.clone()),
            Err(failure) => self.failed_attempt(plan, id, attempt, failure.clone()),
        }
    }

    /// Does what is due.
    fn fire(&mut self, plan: &Plan) {
        while let Some(wake) =
            self.wakes.first().copied().filter(|(at, ..)| *at <= self.clock && !self.is_over())
        {
            self.wakes.remove(&wake);
            let (_, id, attempt, what) = wake;
            if what == WakeFor::RunTimeout {
                self.time_out(plan);
                continue;
            }
            let Some(node) = self.node(id).copied() else { continue };
            if node.attempt != attempt || node.state.is_over() {
                continue;
            }
            match (what, node.state) {
                (WakeFor::Retry, State::Backoff) => self.make_ready(plan, id),
                (WakeFor::Waited, State::Running) => self.succeeded(plan, id, BTreeMap::new()),
                (WakeFor::Timeout, state) if state.is_active() || state == State::Deciding => {
                    self.withdraw(plan, id);
                    self.failed_attempt(
                        plan,
                        id,
                        u32::from(attempt),
                        Failure::new("Timeout", "it took too long"),
                    );
                }
                (WakeFor::StartTimeout, State::Starting) => {
                    let failure = self.details.get(&id).cloned();
                    let failure = failure
                        .unwrap_or_else(|| Failure::new("StartTimeout", "its Pod could not start in time"));
                    self.withdraw(plan, id);
                    self.failed_attempt(plan, id, u32::from(attempt), failure);
                }
                _ => {}
            }
        }
    }

    /// When a wait is over.
    pub(crate) fn wait_end(&self, plan: &Plan, id: NodeId) -> Result<u32, String> {
        let Some(wait) = &plan.task(id.task).task.template.wait else { return Ok(self.clock) };
        let since = self.node(id).map_or(self.clock, |node| node.since);
        if !wait.duration.is_empty() {
            let text = values::expand_text(self, plan, id, 0, &wait.duration)?;
            let length = tenths(&text).ok_or_else(|| format!("{text:?} is no duration"))?;
            return Ok(since.saturating_add(length));
        }
        let text = values::expand_text(self, plan, id, 0, &wait.until)?;
        let until = time::parse(&text).ok_or_else(|| format!("{text:?} is no time"))?;
        let tenths = (until.as_millisecond() - self.started).max(0).unsigned_abs().div_ceil(100);
        Ok(u32::try_from(tenths).unwrap_or(u32::MAX))
    }

    /// Ends what an attempt has under way.
    pub(crate) fn withdraw(&mut self, plan: &Plan, id: NodeId) {
        let Some(node) = self.node(id).copied().filter(|node| node.state.is_active()) else { return };
        let attempt = u32::from(node.attempt);
        match plan.task(id.task).kind {
            TaskKind::Pod => self.actions.push(Action::DeletePod { node: id, attempt }),
            TaskKind::Http | TaskKind::Resource | TaskKind::Dag => {
                self.actions.push(Action::Cancel { node: id, attempt })
            }
            TaskKind::Wait | TaskKind::Approval => {}
        }
    }

    pub(crate) fn make_ready(&mut self, plan: &Plan, id: NodeId) {
        self.set_state(id, State::Ready);
        self.ready.insert((Reverse(self.priority(plan, id)), id));
    }

    fn priority(&self, plan: &Plan, id: NodeId) -> i32 {
        plan.task(id.task).task.priority
    }

    /// Keeps why an attempt failed, or can't start.
    pub(crate) fn note(&mut self, id: NodeId, mut failure: Failure) {
        if failure.message.chars().count() > MAX_MESSAGE {
            failure.message = failure.message.chars().take(MAX_MESSAGE).collect();
        }
        if self.details.len() < MAX_DETAILS || self.details.contains_key(&id) {
            self.details.insert(id, failure);
            self.dirty = true;
        }
    }

    fn command(&mut self, plan: &Plan, command: &Command, now: i64) {
        match command {
            Command::Suspend | Command::Resume => {
                let suspended = *command == Command::Suspend;
                if self.suspended != suspended && !self.is_over() {
                    self.suspended = suspended;
                    self.dirty = true;
                }
            }
            Command::Stop => self.stop(plan, now),
            Command::Terminate => self.terminate(plan, now),
            Command::Retry { count, tasks } => self.retry(plan, *count, tasks),
            Command::Decide { task, decision, message } => self.decide(plan, task, *decision, message),
        }
    }
}

/// The counter of tasks in a state.
pub(crate) fn count_of(counts: &mut RunCounts, state: State) -> &mut u32 {
    match state {
        State::Waiting | State::Ready | State::Locking => &mut counts.pending,
        State::Starting | State::Running | State::Backoff | State::Deciding | State::Fanned => {
            &mut counts.running
        }
        State::Succeeded => &mut counts.succeeded,
        State::Failed => &mut counts.failed,
        State::Skipped | State::Stopped => &mut counts.skipped,
    }
}
