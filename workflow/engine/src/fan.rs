//! Fan-outs: a task that is done for each of several items.

use crate::event::Failure;
use crate::run::{MAX_ACTIVE, Run};
use crate::values;
use crate::{Node, NodeId, Plan, State};
use freehold_machinery::Value;
use freehold_workflow_api::validate::MAX_ITEMS;
use freehold_workflow_api::{ForEach, Range};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Items, made when they are wanted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Items {
    List(Arc<Vec<Value>>),
    Range(Range),
    /// Names with their values; the last name changes fastest.
    Matrix(Arc<Vec<(String, Vec<Value>)>>),
}

/// The items of a task under way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fan {
    pub(crate) items: Items,
    pub(crate) nodes: Vec<Node>,
    /// The first item that was not made ready.
    pub(crate) next: u32,
    /// Items that were made ready.
    pub(crate) begun: u32,
    /// Items that had succeeded before.
    pub(crate) kept: u32,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    /// Items that are over.
    pub(crate) over: u32,
    pub(crate) outputs: BTreeMap<u32, BTreeMap<String, Value>>,
}

impl Items {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::List(items) => items.len(),
            Self::Range(range) => range.count as usize,
            Self::Matrix(axes) => axes.iter().map(|(_, values)| values.len()).product(),
        }
    }

    /// One of them.
    pub(crate) fn get(&self, n: usize) -> Option<Value> {
        match self {
            Self::List(items) => items.get(n).cloned(),
            Self::Range(range) => {
                let n = i64::try_from(n).ok().filter(|n| *n < i64::from(range.count))?;
                Some(range.start.wrapping_add(range.step.wrapping_mul(n)).into())
            }
            Self::Matrix(axes) => {
                let mut rest = n;
                let mut item = freehold_machinery::Map::new();
                for (name, values) in axes.iter().rev() {
                    item.insert(name.clone(), values.get(rest % values.len().max(1))?.clone());
                    rest /= values.len().max(1);
                }
                (rest == 0).then_some(Value::Object(item))
            }
        }
    }
}

impl Fan {
    /// Items to be done after those of an earlier time, of which those stay that succeeded.
    fn after(earlier: Option<Self>, items: Items) -> Self {
        let mut fan = Self {
            nodes: vec![Node::default(); items.len()],
            items,
            next: 0,
            begun: 0,
            kept: 0,
            succeeded: 0,
            failed: 0,
            over: 0,
            outputs: BTreeMap::new(),
        };
        let Some(earlier) = earlier else { return fan };
        if earlier.items == fan.items {
            (fan.nodes, fan.outputs) = (earlier.nodes, earlier.outputs);
            let succeeded = fan.nodes.iter().filter(|node| node.state == State::Succeeded).count();
            fan.succeeded = u32::try_from(succeeded).unwrap_or(u32::MAX);
            (fan.over, fan.kept) = (fan.succeeded, fan.succeeded);
        } else {
            let attempt = earlier.nodes.iter().map(|node| node.attempt).max().unwrap_or(0).saturating_add(1);
            fan.nodes.fill(Node { attempt, base: attempt, ..Node::default() });
        }
        fan
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }
}

impl Run {
    /// The items of a task, as its definition and the outputs of other tasks have them.
    pub(crate) fn items(&self, plan: &Plan, task: u32, for_each: &ForEach) -> Result<Items, String> {
        let items = if let Some(range) = for_each.range {
            Items::Range(range)
        } else if !for_each.matrix.is_empty() {
            let axes = for_each.matrix.iter().map(|(name, values)| (name.clone(), values.clone()));
            Items::Matrix(Arc::new(axes.collect()))
        } else if let Some(program) = &plan.task(task).items {
            match values::evaluate(self, plan, NodeId::task(task), program)? {
                Value::Array(items) => Items::List(Arc::new(items)),
                other => return Err(format!("forEach.expression gives no list but {other}")),
            }
        } else {
            let mut items = Value::Array(for_each.items.clone());
            values::expand(self, plan, NodeId::task(task), 0, &mut items)?;
            Items::List(Arc::new(items.as_array().cloned().unwrap_or_default()))
        };
        match items.len() {
            count if count > MAX_ITEMS => {
                Err(format!("forEach has {count} items; at most {MAX_ITEMS} are allowed"))
            }
            _ => Ok(items),
        }
    }

    /// Begins a task with items.
    pub(crate) fn fan_out(&mut self, plan: &Plan, task: u32, for_each: &ForEach) {
        let id = NodeId::task(task);
        let items = match self.items(plan, task, for_each) {
            Ok(items) => items,
            Err(error) => {
                self.note(id, Failure::new("InvalidItems", error));
                return self.settle(plan, id, State::Failed);
            }
        };
        let fan = Fan::after(self.fans.remove(&task), items);
        let (count, over) = (fan.len(), fan.over);
        let clock = self.clock;
        let node = &mut self.nodes[task as usize];
        (node.first, node.since) = (clock, clock);
        self.set_state(id, State::Fanned);
        // From here on its items count in its place.
        self.counts.running -= 1;
        self.counts.total = self.counts.total - 1 + count;
        self.counts.pending += count - over;
        self.counts.succeeded += over;
        self.fans.insert(task, fan);
        if over == count {
            return self.end_fan(plan, task);
        }
        self.refill(plan, task);
    }

    /// Makes further items ready, as many as may be under way.
    pub(crate) fn refill(&mut self, plan: &Plan, task: u32) {
        let window = match plan.task(task).task.for_each.as_ref().map_or(0, |f| f.parallelism) {
            0 => MAX_ACTIVE,
            window => window,
        };
        while let Some(fan) = self.fans.get_mut(&task)
            && fan.next < fan.len()
            && fan.begun.saturating_sub(fan.over - fan.kept) < window
        {
            let item = fan.next;
            fan.next += 1;
            if fan.nodes[item as usize].state == State::Waiting {
                fan.begun += 1;
                self.make_ready(plan, NodeId::item(task, item));
            }
        }
    }

    /// An item came to its end.
    pub(crate) fn item_over(&mut self, plan: &Plan, id: NodeId, state: State) {
        let Some(fan) = self.fans.get_mut(&id.task) else { return };
        fan.over += 1;
        match state {
            State::Succeeded => fan.succeeded += 1,
            State::Failed => fan.failed += 1,
            _ => {}
        }
        let is_over = fan.over == fan.len();
        if is_over {
            self.end_fan(plan, id.task);
        } else if !self.stopping {
            self.refill(plan, id.task);
        }
    }

    fn end_fan(&mut self, plan: &Plan, task: u32) {
        let Some(fan) = self.fans.get_mut(&task) else { return };
        let allowed = plan.task(task).task.for_each.as_ref().map_or(0, |f| f.max_failures);
        let stopped = fan.over - fan.succeeded - fan.failed;
        let state = match (fan.failed > allowed, stopped > 0) {
            (true, _) => State::Failed,
            (false, true) => State::Stopped,
            (false, false) => State::Succeeded,
        };
        let failed = fan.failed;
        let outputs = &fan.outputs;
        let declared: Vec<&String> = plan.task(task).task.template.output_names().collect();
        if !declared.is_empty() && state == State::Succeeded {
            let count = fan.len();
            let list = |name: &str| -> Vec<Value> {
                (0..count)
                    .map(|n| outputs.get(&n).and_then(|of| of.get(name)).cloned().unwrap_or_default())
                    .collect()
            };
            let lists: BTreeMap<String, Value> =
                declared.into_iter().map(|name| (name.clone(), Value::Array(list(name)))).collect();
            self.put_outputs(NodeId::task(task), lists);
        }
        if state == State::Failed {
            self.note(NodeId::task(task), Failure::new("ItemsFailed", format!("{failed} items failed")));
        }
        self.settle(plan, NodeId::task(task), state);
    }
}
