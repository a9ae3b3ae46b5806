//! What people do to runs: stop, terminate, retry, decide.

use crate::event::{Action, Failure};
use crate::run::{Run, Stage, Tally, WakeFor};
use crate::{Node, NodeId, Plan, State};
use freehold_workflow_api::{Decision, Phase};
use std::collections::BTreeMap;

impl Run {
    /// No further task begins but finally tasks.
    pub(crate) fn stop(&mut self, plan: &Plan, now: i64) {
        match self.stage {
            Stage::Pending => self.terminate(plan, now),
            Stage::Main if !self.stopping => {
                self.ended_as = Some(Phase::Stopped);
                self.suspended = false;
                (self.reason, self.message) = ("Stopped".into(), "it was stopped".into());
                self.cancel_main(plan, false);
            }
            _ => {}
        }
    }

    /// The run took too long: what is under way ends, finally tasks follow.
    pub(crate) fn time_out(&mut self, plan: &Plan) {
        if self.stage == Stage::Main {
            self.failed = true;
            (self.reason, self.message) = ("Timeout".into(), "the run took too long".into());
            self.cancel_main(plan, true);
        }
    }

    /// Ends tasks that are not finally tasks: those under way too, or those alone that are not.
    pub(crate) fn cancel_main(&mut self, plan: &Plan, active: bool) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        for task in 0..plan.main() {
            self.cancel(plan, task, active);
        }
    }

    fn cancel(&mut self, plan: &Plan, task: u32, active: bool) {
        let is_fanned = self.nodes[task as usize].state == State::Fanned;
        let items = self.fans.get(&task).filter(|_| is_fanned).map_or(0, |fan| fan.nodes.len());
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        let ids = (0..items).map(|item| NodeId::item(task, item)).chain([NodeId::task(task)]);
        for id in ids {
            let Some(node) = self.node(id).copied() else { continue };
            if node.state.is_over() || node.state == State::Fanned || (node.state.is_active() && !active) {
                continue;
            }
            self.withdraw(plan, id);
            self.ready.remove(&(std::cmp::Reverse(plan.task(task).task.priority), id));
            self.settle(plan, id, State::Stopped);
        }
    }

    /// Everything ends at once.
    pub(crate) fn terminate(&mut self, plan: &Plan, now: i64) {
        if self.stage == Stage::Over {
            return;
        }
        self.ended_as = Some(Phase::Stopped);
        (self.reason, self.message) =
            ("Terminated".into(), "terminated: spec.state asks for it, as stop --now does".into());
        self.stopping = true;
        if self.stage != Stage::Pending {
            for task in 0..u32::try_from(plan.tasks().len()).unwrap_or(u32::MAX) {
                self.cancel(plan, task, true);
            }
        }
        self.settled.clear();
        if self.started == 0 {
            self.started = now;
        }
        self.end(now);
    }

    /// Does failed tasks of an ended run again, and those after them, beside others that are named.
    pub(crate) fn retry(&mut self, plan: &Plan, count: u32, named: &[String]) {
        if count <= self.retries {
            return;
        }
        self.retries = count;
        self.dirty = true;
        if self.stage != Stage::Over {
            return;
        }
        let mut again = vec![false; self.nodes.len()];
        for (n, node) in self.nodes.iter().enumerate() {
            let task = &plan.tasks()[n];
            again[n] = matches!(node.state, State::Failed | State::Stopped | State::Waiting)
                || plan.is_finally(u32::try_from(n).unwrap_or(u32::MAX))
                || named.iter().any(|name| name == task.name());
        }
        self.spread(plan, &mut again);
        for (n, again) in (0..).zip(&again) {
            if *again {
                self.reset(n, named.iter().any(|name| *name == plan.task(n).task.name));
            }
        }
        self.reopen(plan);
    }

    /// What comes after tasks that are done again is done again as well.
    fn spread(&self, plan: &Plan, again: &mut [bool]) {
        let mut open: Vec<usize> = (0..again.len()).filter(|n| again[*n]).collect();
        while let Some(n) = open.pop() {
            for after in &plan.tasks()[n].after {
                if !std::mem::replace(&mut again[*after as usize], true) {
                    open.push(*after as usize);
                }
            }
        }
    }

    fn reset(&mut self, task: u32, all_items: bool) {
        let fresh = |node: &Node| {
            let attempt =
                node.attempt.saturating_add(u16::from(node.since > 0 || node.state != State::Waiting));
            Node { attempt, base: attempt, ..Node::default() }
        };
        self.nodes[task as usize] = fresh(&self.nodes[task as usize]);
        self.outputs.remove(&task);
        self.details.retain(|id, _| id.task != task);
        // Items that succeeded stay, the others keep their attempts, so that Pods have new names.
        for node in self.fans.get_mut(&task).iter_mut().flat_map(|fan| &mut fan.nodes) {
            if all_items || node.state != State::Succeeded {
                *node = fresh(node);
            }
        }
    }

    fn reopen(&mut self, plan: &Plan) {
        (self.stopping, self.failed, self.suspended, self.ended_as) = (false, false, false, None);
        (self.reason, self.message) = (String::new(), String::new());
        self.stage = Stage::Main;
        self.finished = 0;
        self.recount(plan);
        if let Some(timeout) = plan.timeout {
            let at = self.clock.saturating_add(timeout);
            self.wakes.insert((at, NodeId::task(0), 0, WakeFor::RunTimeout));
        }
        for task in 0..plan.main() {
            self.consider(plan, task);
        }
    }

    /// Computes what follows from the states of tasks: what is open, counts, what is ready.
    pub(crate) fn recount(&mut self, plan: &Plan) {
        let retries = self.counts.retries;
        self.tally = vec![Tally::default(); self.nodes.len()];
        self.open =
            plan.tasks().iter().map(|task| u32::try_from(task.before.len()).unwrap_or(u32::MAX)).collect();
        self.counts = freehold_workflow_api::RunCounts { retries, ..Default::default() };
        (self.active, self.left) = (0, 0);
        self.ready.clear();
        for task in 0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX) {
            let state = self.nodes[task as usize].state;
            let is_finally = plan.is_finally(task);
            if !state.is_over() && is_finally == (self.stage == Stage::Finally) {
                self.left += 1;
            }
            if state.is_over() {
                for after in &plan.task(task).after {
                    self.count_before(*after, state, plan.task(task).task.allow_failure);
                }
            }
            self.count_nodes(plan, task);
        }
        self.recount_outputs();
    }

    fn count_nodes(&mut self, plan: &Plan, task: u32) {
        let priority = std::cmp::Reverse(plan.task(task).task.priority);
        let single = [self.nodes[task as usize]];
        let fan = self.fans.get(&task).filter(|_| single[0].state != State::Waiting);
        let (nodes, is_fan) = match fan {
            Some(fan) => (fan.nodes.as_slice(), true),
            None => (single.as_slice(), false),
        };
        let (mut counts, mut active) = (self.counts, self.active);
        for (item, node) in (0..).zip(nodes) {
            let id = if is_fan { NodeId::item(task, item) } else { NodeId::task(task) };
            counts.total += 1;
            *crate::run::count_of(&mut counts, node.state) += 1;
            active += u32::from(node.state.is_active());
            if node.state == State::Ready {
                self.ready.insert((priority, id));
            }
        }
        (self.counts, self.active) = (counts, active);
    }

    /// The task of this name, where it waits for a decision.
    fn deciding(&self, plan: &Plan, task: &str) -> Option<NodeId> {
        let id = plan.number(task).map(NodeId::task)?;
        self.node(id).filter(|node| node.state == State::Deciding).map(|_| id)
    }

    /// Whether a task waits for a decision.
    pub fn waits_for_decision(&self, plan: &Plan, task: &str) -> bool {
        self.deciding(plan, task).is_some()
    }

    /// Takes a decision about a task that waits for one.
    pub(crate) fn decide(&mut self, plan: &Plan, task: &str, decision: Decision, message: &str) {
        let Some(id) = self.deciding(plan, task) else { return };
        match decision {
            Decision::Approved => {
                let outputs = BTreeMap::from([("message".to_owned(), message.into())]);
                self.succeeded(plan, id, outputs);
            }
            Decision::Rejected => {
                let failure = Failure::new("Rejected", message);
                // A decision is not made again by itself.
                self.note(id, failure);
                self.settle(plan, id, State::Failed);
            }
        }
    }

    /// Takes up a run whose state was read: what was under way is begun again where it is not known to exist, which `exists`
    /// answers for Pods.
    pub fn recover(&mut self, plan: &Plan, exists: impl Fn(NodeId, u32) -> bool, now: i64) -> Vec<Action> {
        let mut events = Vec::new();
        let mut actions = Vec::new();
        for (id, node) in self.under_way() {
            let attempt = u32::from(node.attempt);
            let is_pod = plan.task(id.task).kind == freehold_workflow_api::TaskKind::Pod;
            match node.state {
                State::Locking => actions.push(Action::Acquire { node: id }),
                State::Starting if !exists(id, attempt) => {
                    actions.push(Action::CreatePod { node: id, attempt })
                }
                State::Running if is_pod && !exists(id, attempt) => {
                    let state = crate::PodState::Gone;
                    events.push(crate::Event::Pod { node: id, attempt, state });
                }
                State::Running
                    if !is_pod && plan.task(id.task).kind != freehold_workflow_api::TaskKind::Wait =>
                {
                    actions.push(Action::Execute { node: id, attempt });
                }
                _ => {}
            }
        }
        events.push(crate::Event::Time);
        for event in events {
            actions.extend(self.apply(plan, &event, now));
        }
        actions
    }

    /// Tasks that are neither over nor waiting for others.
    pub fn under_way(&self) -> Vec<(NodeId, Node)> {
        let is_under_way =
            |node: &Node| !node.state.is_over() && !matches!(node.state, State::Waiting | State::Fanned);
        let mut found = Vec::new();
        for (task, node) in (0..).zip(&self.nodes) {
            if is_under_way(node) {
                found.push((NodeId::task(task), *node));
            }
            for (item, node) in self.fans.get(&task).iter().flat_map(|fan| (0..).zip(&fan.nodes)) {
                if is_under_way(node) {
                    found.push((NodeId::item(task, item), *node));
                }
            }
        }
        found
    }
}
