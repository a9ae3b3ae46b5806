//! Outputs and parameters beyond what a run's state has room for: they go into pages, of which the state has the names alone.
//!
//! A page is written once, before the first state that names it, and never changes. What a later page says of a task holds; an
//! entry counts only for the attempt that it is of, so that a task that is done again has nothing of before.

use crate::names::digest;
use crate::outputs::{Outputs, PageName, size};
use crate::{NodeId, Run, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use freehold_machinery::Value;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of outputs that a state has itself.
const INLINE: usize = 32 << 10;
/// Bytes that all outputs of a run may have.
pub(crate) const MAX_BYTES: usize = 16 << 20;
/// Characters of a piece of a page: one object.
const PIECE: usize = 160 << 10;
/// Bytes that a page may have once it is decompressed: all outputs, and the lists that fan-outs make of theirs.
const MAX_PAGE: usize = 64 << 20;

/// Outputs that have to be kept beside the state before the state is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    name: PageName,
    /// Names with texts of 160 KiB at most.
    pub pieces: Vec<(String, String)>,
    of: BTreeSet<NodeId>,
    params: bool,
}

/// What a page says.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Entries {
    /// By task or item, each with the attempt that it is of.
    outputs: BTreeMap<String, (u16, Outputs)>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    params: BTreeMap<String, Value>,
}

impl Run {
    /// Keeps the outputs of a task or item.
    pub(crate) fn put_outputs(&mut self, id: NodeId, outputs: Outputs) {
        if outputs.is_empty() {
            return;
        }
        let bytes = size(&outputs);
        self.paging.add(id, bytes);
        match id.item.number().and_then(|n| u32::try_from(n).ok()) {
            None => drop(self.outputs.insert(id.task, outputs)),
            Some(item) => {
                if let Some(fan) = self.fans.get_mut(&id.task) {
                    fan.outputs.insert(item, outputs);
                }
            }
        }
        if id.item.number().is_some() || !self.fans.contains_key(&id.task) {
            self.paging.bytes += bytes;
        }
    }

    /// The outputs of a task or item.
    pub(crate) fn outputs_of(&self, id: NodeId) -> Option<&Outputs> {
        match id.item.number().and_then(|n| u32::try_from(n).ok()) {
            None => self.outputs.get(&id.task),
            Some(item) => self.fans.get(&id.task)?.outputs.get(&item),
        }
    }

    /// Counts the bytes of outputs anew: a retry takes some back.
    pub(crate) fn recount_outputs(&mut self) {
        let of_tasks = self.outputs.iter().filter(|(task, _)| !self.fans.contains_key(task));
        let of_tasks: usize = of_tasks.map(|(_, outputs)| size(outputs)).sum();
        let of_items: usize = self.fans.values().flat_map(|fan| fan.outputs.values()).map(size).sum();
        self.paging.bytes = of_tasks + of_items;
        let inline = std::mem::take(&mut self.paging.inline);
        self.paging.inline = inline.into_iter().filter(|id| self.outputs_of(*id).is_some()).collect();
        self.paging.inline_bytes =
            self.paging.inline.iter().filter_map(|id| self.outputs_of(*id)).map(size).sum();
    }

    /// What is to be kept beside the state before it is written, if that is too much for it. Once it is kept,
    /// [`paged`](Self::paged) is to be told.
    pub fn page(&self) -> Option<Page> {
        let params = !self.paging.params && size(&self.info.params) > INLINE;
        if self.paging.inline_bytes <= INLINE && !params {
            return None;
        }
        let of = &self.paging.inline;
        let outputs = of.iter().filter_map(|id| {
            Some((id.to_string(), (self.node(*id)?.attempt, self.outputs_of(*id)?.clone())))
        });
        let entries = Entries {
            outputs: outputs.collect(),
            params: if params { self.info.params.clone() } else { BTreeMap::new() },
        };
        // Plain data: it can't fail.
        let text = serde_json::to_string(&entries).unwrap_or_default();
        let packed = BASE64.encode(zstd::bulk::compress(text.as_bytes(), 3).unwrap_or_default());
        let pieces = packed.as_bytes().chunks(PIECE).map(|piece| String::from_utf8_lossy(piece).into_owned());
        let pieces: Vec<String> = pieces.collect();
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let name = PageName(digest(&[&self.info.uid, &text]), count);
        let pieces = name.pieces().zip(pieces).collect();
        Some(Page { name, pieces, of: of.clone(), params })
    }

    /// A page is kept: the state names it from now on.
    pub fn paged(&mut self, page: Page) {
        self.paging.inline.retain(|id| !page.of.contains(id));
        self.paging.inline_bytes = 0;
        self.paging.params |= page.params;
        self.paging.pages.push(page.name);
    }

    /// The names of the pieces of all pages, in order.
    pub(crate) fn piece_names(pages: &[PageName]) -> Vec<String> {
        pages.iter().flat_map(PageName::pieces).collect()
    }

    /// Takes in what pages say.
    pub(crate) fn read_pages(&mut self, pieces: &BTreeMap<String, String>) -> Result<(), String> {
        for page in self.paging.pages.clone() {
            let mut packed = String::new();
            for name in page.pieces() {
                packed += pieces.get(&name).ok_or_else(|| format!("outputs {name:?} are gone"))?;
            }
            let packed = BASE64.decode(&packed).map_err(|error| error.to_string())?;
            let text = zstd::bulk::decompress(&packed, MAX_PAGE).map_err(|error| error.to_string())?;
            let entries: Entries = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
            if !entries.params.is_empty() {
                (self.info.params, self.paging.params) = (entries.params, true);
            }
            for (id, (attempt, outputs)) in entries.outputs {
                let id: NodeId = id.parse().map_err(|()| format!("no task: {id:?}"))?;
                self.read_entry(id, attempt, outputs);
            }
        }
        Ok(())
    }

    /// Takes in what a page says of a task. Items have no place before their fan-out has one.
    fn read_entry(&mut self, id: NodeId, attempt: u16, outputs: Outputs) {
        let is_current = |run: &Self| {
            run.node(id).is_some_and(|node| node.attempt == attempt && node.state == State::Succeeded)
        };
        match id.item.number().and_then(|n| u32::try_from(n).ok()) {
            None if is_current(self) => drop(self.outputs.insert(id.task, outputs)),
            Some(item) if is_current(self) => {
                if let Some(fan) = self.fans.get_mut(&id.task) {
                    fan.outputs.insert(item, outputs);
                }
            }
            _ => {}
        }
    }
}
