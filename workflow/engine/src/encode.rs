//! The state of a run as its status keeps it: a few bits for a task that is over, compressed.
//!
//! What follows from the definition is not kept: names, order, items, what is open.

use crate::event::Failure;
use crate::fan::{Fan, Items};
use crate::outputs::{Outputs, PageName};
use crate::run::{Run, Stage, WakeFor};
use crate::{Info, Node, NodeId, Plan, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use freehold_machinery::Value;
use freehold_workflow_api::{EncodedState, Phase, TaskKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// States up to this many bytes are kept as they are.
const SMALL: usize = 512;
/// Bytes that a state may have once it is decompressed.
const MAX_DECODED: usize = 64 << 20;

/// What is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    stage: u8,
    started: i64,
    finished: i64,
    clock: u32,
    #[serde(skip_serializing_if = "is_default")]
    suspended: bool,
    #[serde(skip_serializing_if = "is_default")]
    stopping: bool,
    #[serde(skip_serializing_if = "is_default")]
    failed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_as: Option<Phase>,
    #[serde(skip_serializing_if = "is_default")]
    reason: String,
    #[serde(skip_serializing_if = "is_default")]
    message: String,
    #[serde(skip_serializing_if = "is_default")]
    retries: u32,
    #[serde(skip_serializing_if = "is_default")]
    attempts: u32,
    /// Tasks, each as [`write`] has it, in Base64.
    nodes: String,
    /// Items of fan-outs by the number of their task.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    fans: BTreeMap<u32, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    outputs: BTreeMap<u32, Outputs>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    item_outputs: BTreeMap<u32, BTreeMap<u32, Outputs>>,
    /// Where other outputs are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pages: Vec<PageName>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    details: BTreeMap<String, (Option<i32>, String, String)>,
    /// Values that were looked up when the run began.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    params: BTreeMap<String, Value>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Run {
    /// Encodes the state of a run as text.
    pub fn encode(&self) -> EncodedState {
        let kept = Kept {
            stage: self.stage as u8,
            started: self.started,
            finished: self.finished,
            clock: self.clock,
            suspended: self.suspended,
            stopping: self.stopping,
            failed: self.failed,
            ended_as: self.ended_as,
            reason: self.reason.clone(),
            message: self.message.clone(),
            retries: self.retries,
            attempts: self.counts.retries,
            nodes: BASE64.encode(write(&self.nodes, true)),
            fans: self
                .fans
                .iter()
                .map(|(task, fan)| (*task, BASE64.encode(write(&fan.nodes, false))))
                .collect(),
            outputs: self.inline_outputs(),
            item_outputs: self.inline_item_outputs(),
            pages: self.paging.pages.clone(),
            details: self
                .details
                .iter()
                .map(|(id, f)| (id.to_string(), (f.exit_code, f.reason.clone(), f.message.clone())))
                .collect(),
            params: if self.paging.params { BTreeMap::new() } else { self.info.params.clone() },
        };
        // Plain data: it can't fail.
        let json = serde_json::to_string(&kept).unwrap_or_default();
        if json.len() <= SMALL {
            return EncodedState { encoding: "json".into(), data: json };
        }
        match zstd::bulk::compress(json.as_bytes(), 3) {
            Ok(compressed) => EncodedState { encoding: "zstd".into(), data: BASE64.encode(compressed) },
            Err(_) => EncodedState { encoding: "json".into(), data: json },
        }
    }

    /// Outputs of tasks that the state has itself.
    fn inline_outputs(&self) -> BTreeMap<u32, Outputs> {
        let tasks = self.paging.inline.iter().filter(|id| id.item.number().is_none());
        tasks.filter_map(|id| Some((id.task, self.outputs_of(*id)?.clone()))).collect()
    }

    /// Outputs of items that the state has itself.
    fn inline_item_outputs(&self) -> BTreeMap<u32, BTreeMap<u32, Outputs>> {
        let mut all = BTreeMap::<u32, BTreeMap<u32, Outputs>>::new();
        for id in &self.paging.inline {
            let item = id.item.number().and_then(|n| u32::try_from(n).ok());
            if let Some((item, outputs)) = item.zip(self.outputs_of(*id)) {
                all.entry(id.task).or_default().insert(item, outputs.clone());
            }
        }
        all
    }

    /// The names of what is kept beside a state, which [`decode`](Self::decode) wants the texts of.
    ///
    /// # Errors
    /// Data that is no state.
    pub fn kept_beside(state: &EncodedState) -> Result<Vec<String>, String> {
        Ok(Self::piece_names(&unpack(state)?.pages))
    }

    /// Reads a state that [`encode`](Self::encode) wrote, of a run of this plan, with what is [kept beside
    /// it](Self::kept_beside).
    ///
    /// # Errors
    /// Data that is no state, or that of a run of another plan.
    pub fn decode(
        plan: &Plan,
        info: Info,
        state: &EncodedState,
        pieces: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let kept = unpack(state)?;
        let mut run = Self::new(plan, Info { params: kept.params, ..info });
        run.stage = match kept.stage {
            0 => Stage::Pending,
            1 => Stage::Main,
            2 => Stage::Finally,
            _ => Stage::Over,
        };
        (run.started, run.finished, run.clock) = (kept.started, kept.finished, kept.clock);
        (run.suspended, run.stopping, run.failed, run.ended_as) =
            (kept.suspended, kept.stopping, kept.failed, kept.ended_as);
        (run.reason, run.message, run.retries) = (kept.reason, kept.message, kept.retries);
        run.counts.retries = kept.attempts;
        let count = run.nodes.len();
        run.nodes = read(&kept.nodes, Some(count))?;
        // Outputs of tasks are there before items, which may follow from them.
        run.paging.pages = kept.pages;
        run.read_pages(pieces)?;
        kept.outputs.into_iter().for_each(|(task, of)| run.put_outputs(NodeId::task(task), of));
        for (id, (exit_code, reason, message)) in kept.details {
            let id = id.parse().map_err(|()| format!("no task: {id:?}"))?;
            run.details.insert(id, Failure { exit_code, reason, message });
        }
        for (task, nodes) in &kept.fans {
            run.restore_fan(plan, *task, nodes)?;
        }
        if !kept.fans.is_empty() {
            run.read_pages(pieces)?;
        }
        for (task, items) in kept.item_outputs {
            items.into_iter().for_each(|(item, of)| run.put_outputs(NodeId::item(task, item), of));
        }
        run.recount(plan);
        run.restore_wakes(plan);
        Ok(run)
    }

    fn restore_fan(&mut self, plan: &Plan, task: u32, nodes: &str) -> Result<(), String> {
        let for_each = plan.tasks().get(task as usize).and_then(|of| of.task.for_each.clone());
        let for_each = for_each.ok_or_else(|| format!("task {task} has no items"))?;
        let (items, nodes) = match self.items(plan, task, &for_each) {
            Ok(items) => {
                let nodes = read(nodes, Some(items.len()))?;
                (items, nodes)
            }
            // A task before it is done again, and what its items follow from is not there. None of them is kept then.
            Err(_) if self.nodes[task as usize].state == State::Waiting => {
                let nodes = read(nodes, None)?;
                (Items::List(Arc::new(vec![Value::Null; nodes.len()])), nodes)
            }
            Err(error) => return Err(error),
        };
        let count = |wanted: fn(&Node) -> bool| {
            u32::try_from(nodes.iter().filter(|node| wanted(node)).count()).unwrap_or(u32::MAX)
        };
        let waiting = nodes.iter().rposition(|node| node.state != State::Waiting).map_or(0, |n| n + 1);
        let fan = Fan {
            items,
            next: u32::try_from(waiting).unwrap_or(u32::MAX),
            begun: count(|node| node.state != State::Waiting),
            kept: 0,
            succeeded: count(|node| node.state == State::Succeeded),
            failed: count(|node| node.state == State::Failed),
            over: count(|node| node.state.is_over()),
            outputs: BTreeMap::new(),
            nodes,
        };
        self.fans.insert(task, fan);
        Ok(())
    }

    fn restore_wakes(&mut self, plan: &Plan) {
        if let Some(timeout) = plan.timeout.filter(|_| !self.is_over()) {
            self.wakes.insert((timeout, NodeId::task(0), 0, WakeFor::RunTimeout));
        }
        for (id, node) in self.under_way() {
            let task = plan.task(id.task);
            if let Some(timeout) =
                task.timeout.filter(|_| node.state.is_active() || node.state == State::Deciding)
            {
                self.wakes.insert((node.since.saturating_add(timeout), id, node.attempt, WakeFor::Timeout));
            }
            match node.state {
                State::Backoff => drop(self.wakes.insert((node.ended, id, node.attempt, WakeFor::Retry))),
                State::Running if task.kind == TaskKind::Wait => {
                    let at = self.wait_end(plan, id).unwrap_or(self.clock);
                    self.wakes.insert((at, id, node.attempt, WakeFor::Waited));
                }
                State::Starting if task.waits_for_start || self.details.contains_key(&id) => {
                    let at = node.since.saturating_add(task.start_timeout);
                    self.wakes.insert((at, id, node.attempt, WakeFor::StartTimeout));
                }
                _ => {}
            }
        }
    }
}

fn unpack(state: &EncodedState) -> Result<Kept, String> {
    let json = match state.encoding.as_str() {
        "json" => state.data.clone().into_bytes(),
        "zstd" => {
            let compressed = BASE64.decode(&state.data).map_err(|e| e.to_string())?;
            zstd::bulk::decompress(&compressed, MAX_DECODED).map_err(|e| e.to_string())?
        }
        other => return Err(format!("unknown encoding {other:?}")),
    };
    serde_json::from_slice(&json).map_err(|e| e.to_string())
}

/// Writes tasks: a byte of state and flags, then numbers as they are needed.
fn write(nodes: &[Node], with_times: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(nodes.len() * 4);
    for node in nodes {
        let has_attempts = node.attempt > 0 || node.base > 0 || node.free > 0;
        let has_times = node.since > 0 || node.ended > 0 || node.first > 0;
        let has_times = has_times && (with_times || !node.state.is_over());
        bytes.push(node.state as u8 | u8::from(has_attempts) << 4 | u8::from(has_times) << 5);
        if has_attempts {
            [u32::from(node.attempt), u32::from(node.base), u32::from(node.free)]
                .iter()
                .for_each(|n| number(&mut bytes, *n));
        }
        if has_times {
            let length = node.ended.saturating_sub(node.since);
            [node.since, node.since.saturating_sub(node.first), length]
                .iter()
                .for_each(|n| number(&mut bytes, *n));
        }
    }
    bytes
}

/// Reads so many tasks, or all that there are.
fn read(text: &str, count: Option<usize>) -> Result<Vec<Node>, String> {
    let bytes = BASE64.decode(text).map_err(|e| e.to_string())?;
    let mut bytes = bytes.into_iter();
    let mut nodes = Vec::with_capacity(count.unwrap_or(0));
    let truncated = || "the state is cut off".to_owned();
    while count.map_or(bytes.len() > 0, |count| nodes.len() < count) {
        let head = bytes.next().ok_or_else(truncated)?;
        let mut node = Node { state: State::of(head & 0xf).ok_or("unknown state")?, ..Node::default() };
        let mut next = || parse(&mut bytes).ok_or_else(truncated);
        if head & 0x10 != 0 {
            let short = |n: u32| u16::try_from(n).map_err(|e| e.to_string());
            (node.attempt, node.base) = (short(next()?)?, short(next()?)?);
            node.free = u8::try_from(next()?).map_err(|e| e.to_string())?;
        }
        if head & 0x20 != 0 {
            node.since = next()?;
            node.first = node.since.saturating_sub(next()?);
            node.ended = node.since.saturating_add(next()?);
        }
        nodes.push(node);
    }
    match bytes.next() {
        None => Ok(nodes),
        Some(_) => Err("the state has more tasks than the definition".into()),
    }
}

/// Seven bits a byte, the lowest first.
fn number(bytes: &mut Vec<u8>, mut n: u32) {
    while n > 0x7f {
        bytes.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
}

fn parse(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut n = 0u32;
    for shift in (0..35).step_by(7) {
        let byte = bytes.next()?;
        n |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}
