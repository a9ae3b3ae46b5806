//! How tasks come to their end, and what that means for those after them.

use crate::event::{Action, Failure, Notice};
use crate::plan::Rule;
use crate::run::{Run, WakeFor};
use crate::{NodeId, Plan, State, outputs, paging, retry, values};
use freehold_machinery::Value;
use freehold_workflow_api::TriggerRule;
use freehold_workflow_api::depends::Outcome;
use std::collections::BTreeMap;

/// Tasks that the message of a skipped one names.
const MAX_NAMED: usize = 3;

impl Run {
    /// Decides about a task that waits: whether it begins, is left out, or goes on waiting.
    pub(crate) fn consider(&mut self, plan: &Plan, task: u32) {
        let id = NodeId::task(task);
        if self.nodes[task as usize].state != State::Waiting {
            return;
        }
        match self.verdict(plan, task) {
            None => return,
            Some(false) => {
                let ended = self.ended_before(plan, task);
                return self.skip(plan, id, "UpstreamEnded", &ended);
            }
            Some(true) => {}
        }
        if let Some(program) = &plan.task(task).when {
            match values::evaluate(self, plan, id, program) {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return self.skip(plan, id, "WhenFalse", ""),
                Ok(other) => {
                    return self.refuse(plan, id, format!("when is neither true nor false but {other}"));
                }
                Err(error) => return self.refuse(plan, id, format!("when: {error}")),
            }
        }
        match &plan.task(task).task.for_each {
            Some(for_each) => self.fan_out(plan, task, for_each),
            None => self.make_ready(plan, id),
        }
    }

    fn skip(&mut self, plan: &Plan, id: NodeId, reason: &str, message: &str) {
        self.note(id, Failure::new(reason, message));
        self.settle(plan, id, State::Skipped);
    }

    fn refuse(&mut self, plan: &Plan, id: NodeId, message: String) {
        self.note(id, Failure::new("InvalidExpression", message));
        self.settle(plan, id, State::Failed);
    }

    /// Whether the tasks before a task let it begin; `None`: that is not known yet.
    fn verdict(&self, plan: &Plan, task: u32) -> Option<bool> {
        if plan.is_finally(task) {
            return Some(true);
        }
        let tally = self.tally[task as usize];
        let all_over = self.open[task as usize] == 0;
        match &plan.task(task).rule {
            Rule::Depends(depends) => {
                all_over.then(|| depends.holds(&|name, outcome| self.has(plan, name, outcome)))
            }
            Rule::Trigger(rule) => {
                let count = u32::try_from(plan.task(task).before.len()).unwrap_or(u32::MAX);
                triggered(*rule, count, tally.succeeded, (tally.failed, tally.excused), tally.skipped)
            }
        }
    }

    fn has(&self, plan: &Plan, name: &str, outcome: Outcome) -> bool {
        let Some(state) = plan.number(name).map(|n| self.nodes[n as usize].state) else { return false };
        match outcome {
            Outcome::Succeeded => state == State::Succeeded,
            Outcome::Failed => state == State::Failed,
            Outcome::Skipped => matches!(state, State::Skipped | State::Stopped),
            Outcome::Done => state.is_over(),
        }
    }

    /// How tasks before a task ended, for people: those that did not succeed, or else those that did.
    fn ended_before(&self, plan: &Plan, task: u32) -> String {
        let state = |before: &u32| self.nodes[*before as usize].state;
        let over: Vec<u32> =
            plan.task(task).before.iter().copied().filter(|before| state(before).is_over()).collect();
        let (succeeded, others): (Vec<u32>, Vec<u32>) =
            over.into_iter().partition(|before| state(before) == State::Succeeded);
        let named = if others.is_empty() { succeeded } else { others };
        let ended = |before: &u32| {
            let word = match state(before) {
                State::Succeeded => "succeeded",
                State::Failed => "failed",
                State::Stopped => "was stopped",
                _ => "was skipped",
            };
            format!("task {} {word}", plan.task(*before).task.name)
        };
        let shown: Vec<String> = named.iter().take(MAX_NAMED).map(ended).collect();
        let more = if named.len() > MAX_NAMED { ", ..." } else { "" };
        format!("{}{more}", shown.join(", "))
    }

    /// Tells the tasks after a task how it ended.
    pub(crate) fn tell_dependents(&mut self, plan: &Plan, task: u32) {
        let state = self.nodes[task as usize].state;
        let excused = plan.task(task).task.allow_failure;
        for after in &plan.task(task).after {
            self.count_before(*after, state, excused);
            self.consider(plan, *after);
        }
    }

    pub(crate) fn count_before(&mut self, task: u32, state: State, excused: bool) {
        let tally = &mut self.tally[task as usize];
        match state {
            State::Succeeded => tally.succeeded += 1,
            State::Failed => {
                tally.failed += 1;
                tally.excused += u32::from(excused);
            }
            _ => tally.skipped += 1,
        }
        self.open[task as usize] -= 1;
    }

    /// An attempt did what it should.
    pub(crate) fn succeeded(&mut self, plan: &Plan, id: NodeId, outputs: BTreeMap<String, Value>) {
        if self.paging.bytes + outputs::size(&outputs) > paging::MAX_BYTES {
            let message = format!("the outputs of the run have more than {} bytes", paging::MAX_BYTES);
            self.note(id, Failure::new("OutputsTooLarge", message));
            return self.settle(plan, id, State::Failed);
        }
        self.put_outputs(id, outputs);
        self.details.remove(&id);
        self.settle(plan, id, State::Succeeded);
    }

    /// An attempt failed: the task is tried again, or failed with it.
    pub(crate) fn failed_attempt(&mut self, plan: &Plan, id: NodeId, attempt: u32, failure: Failure) {
        let Some(node) = self.node(id).copied() else { return };
        if u32::from(node.attempt) != attempt || !(node.state.is_active() || node.state == State::Deciding) {
            return;
        }
        let seed = [self.info.uid.as_str(), &id.to_string()];
        let again = if self.stopping {
            None
        } else {
            retry::again(plan.task(id.task), &node, &failure, self.clock, &seed)
        };
        let Some(again) = again else {
            self.note(id, failure);
            return self.settle(plan, id, State::Failed);
        };
        self.actions.push(Action::Notify(Notice::TaskRetried { node: id, failure: failure.clone() }));
        self.note(id, failure);
        self.release(plan, id);
        self.set_state(id, State::Backoff);
        self.counts.retries += 1;
        let at = self.clock.saturating_add(again.delay);
        if let Some(node) = self.node_mut(id) {
            node.attempt += 1;
            node.free += u8::from(again.is_free);
            // Until it begins again this is when it is due.
            node.ended = at;
            let number = node.attempt;
            self.wakes.insert((at, id, number, WakeFor::Retry));
        }
    }

    fn release(&mut self, plan: &Plan, id: NodeId) {
        let holds = self.node(id).is_some_and(|node| {
            node.state.is_active() || matches!(node.state, State::Locking | State::Deciding)
        });
        if holds && plan.task(id.task).has_locks() {
            self.actions.push(Action::Release { node: id });
        }
    }

    /// Ends a task or item for good.
    pub(crate) fn settle(&mut self, plan: &Plan, id: NodeId, state: State) {
        self.release(plan, id);
        self.set_state(id, state);
        self.actions.push(Action::Notify(Notice::TaskEnded { node: id, phase: state.phase() }));
        if id.item.number().is_some() {
            return self.item_over(plan, id, state);
        }
        self.left = self.left.saturating_sub(1);
        self.settled.push_back(id.task);
        if state == State::Failed && !plan.task(id.task).task.allow_failure {
            self.failed = true;
            if self.reason.is_empty() {
                self.reason = "TaskFailed".into();
                self.message = format!("task {} failed", plan.task(id.task).name());
            }
            if plan.spec().fail_fast && !plan.is_finally(id.task) {
                self.cancel_main(plan, true);
            }
        }
    }
}

/// Whether a rule lets a task begin, of whose `count` tasks before so many ended this or that way. Failures that were allowed
/// stand beside all failures.
fn triggered(
    rule: TriggerRule,
    count: u32,
    succeeded: u32,
    (failed, excused): (u32, u32),
    skipped: u32,
) -> Option<bool> {
    let over = succeeded + failed + skipped == count;
    let unless = |broken: bool, holds: bool| if broken { Some(false) } else { over.then_some(holds) };
    let once = |holds: bool| if holds { Some(true) } else { over.then_some(false) };
    match rule {
        TriggerRule::Always => Some(true),
        TriggerRule::AllSuccess => unless(failed - excused + skipped > 0, true),
        TriggerRule::AllFailed => unless(succeeded + skipped > 0, true),
        TriggerRule::AllDone => unless(false, true),
        TriggerRule::AllSkipped => unless(succeeded + failed > 0, true),
        TriggerRule::OneFailed => once(failed > 0),
        TriggerRule::OneSuccess => once(succeeded > 0),
        TriggerRule::OneDone => once(succeeded + failed > 0),
        TriggerRule::NoneFailed => unless(failed - excused > 0, true),
        TriggerRule::NoneFailedMinOneSuccess => unless(failed - excused > 0, succeeded + excused > 0),
        TriggerRule::NoneSkipped => unless(skipped > 0, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_decide_as_soon_as_they_can() {
        use TriggerRule::*;
        // Rule, tasks before, succeeded, (failed, excused), skipped.
        let rows = [
            (AllSuccess, 2, 1, (0, 0), 0, None),
            (AllSuccess, 2, 2, (0, 0), 0, Some(true)),
            (AllSuccess, 3, 0, (1, 0), 0, Some(false)),
            (AllSuccess, 2, 1, (1, 1), 0, Some(true)),
            (AllSuccess, 0, 0, (0, 0), 0, Some(true)),
            (AllFailed, 2, 0, (2, 0), 0, Some(true)),
            (AllDone, 3, 1, (1, 0), 0, None),
            (AllDone, 3, 1, (1, 0), 1, Some(true)),
            (OneFailed, 3, 0, (1, 0), 0, Some(true)),
            (OneFailed, 1, 1, (0, 0), 0, Some(false)),
            (OneSuccess, 3, 1, (0, 0), 0, Some(true)),
            (OneDone, 2, 0, (0, 0), 2, Some(false)),
            (NoneFailed, 2, 0, (0, 0), 2, Some(true)),
            (NoneFailedMinOneSuccess, 2, 0, (0, 0), 2, Some(false)),
            (NoneSkipped, 2, 1, (1, 0), 0, Some(true)),
            (AllSkipped, 1, 0, (0, 0), 1, Some(true)),
            (Always, 5, 0, (0, 0), 0, Some(true)),
        ];
        for (rule, count, succeeded, failed, skipped, wanted) in rows {
            assert_eq!(triggered(rule, count, succeeded, failed, skipped), wanted, "{rule:?} of {count}");
        }
    }
}
