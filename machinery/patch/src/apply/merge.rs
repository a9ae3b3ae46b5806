//! Merging a configuration into an object, and taking fields out of one.

use super::{
    element::PathElement,
    set::FieldSet,
    shape::{Form, ListForm, MapForm, Relation, Shape},
};
use freehold_machinery::Value;
use std::collections::BTreeMap;

/// Merges `config` into `live`: maps by key, associative lists by item, all else replaced. Items keep the order of
/// `live` where the order of `config` allows it. Fails where an item of a list can't be told from others.
pub(super) fn merge_into(live: &mut Value, config: &Value, shape: Shape<'_>) -> Result<(), String> {
    match shape.form(Some(config)) {
        Form::Map(map) if !map.atomic => merge_maps(live, config, map),
        Form::List(list) if !matches!(list.relation, Relation::Atomic) => merge_lists(live, config, list),
        _ => {
            *live = config.clone();
            Ok(())
        }
    }
}

fn merge_maps(live: &mut Value, config: &Value, form: MapForm<'_>) -> Result<(), String> {
    let fields = config.as_object().filter(|map| !map.is_empty());
    let Some(live) = live.as_object_mut().filter(|map| !map.is_empty()) else {
        *live = config.clone();
        return Ok(());
    };
    for (name, value) in fields.into_iter().flatten() {
        match live.get_mut(name) {
            Some(live) => merge_into(live, value, form.child(name).unwrap_or(Shape::Deduced))
                .map_err(|e| format!(".{name}{e}"))?,
            None => {
                live.insert(name.clone(), value.clone());
            }
        }
    }
    Ok(())
}

fn merge_lists(live: &mut Value, config: &Value, form: ListForm<'_>) -> Result<(), String> {
    let items = config.as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(live) = live.as_array_mut().filter(|list| !list.is_empty()) else {
        *live = config.clone();
        return Ok(());
    };
    if items.is_empty() {
        return Ok(());
    }
    let mut merger = ListMerger::new(std::mem::take(live), items, form)?;
    merger.run(form)?;
    *live = merger.out;
    Ok(())
}

/// Interleaves the items of two associative lists.
///
/// Items of both lists come in the order of the configuration, items of the object alone stay before the item that
/// they preceded, as far as both can be had.
struct ListMerger<'c> {
    /// Items of the object; taken when merged.
    live: Vec<(PathElement, Option<Value>)>,
    config: Vec<(PathElement, &'c Value)>,
    /// Where an item of the object with that name is; `None` when there are several, which are never merged.
    live_at: BTreeMap<PathElement, Option<usize>>,
    config_at: BTreeMap<PathElement, usize>,
    /// Places in `config` of the items that are in both lists, from the next one on, last first.
    shared: Vec<usize>,
    /// Whether an item of the configuration has been merged.
    merged: Vec<bool>,
    out: Vec<Value>,
}

impl<'c> ListMerger<'c> {
    fn new(live: Vec<Value>, config: &'c [Value], form: ListForm<'_>) -> Result<Self, String> {
        let named =
            |(i, item): (usize, &Value)| form.element(item).map_err(|e| format!(": element {i}: {e}"));
        let config_names = config.iter().enumerate().map(named).collect::<Result<Vec<_>, _>>()?;
        let live_names = live.iter().enumerate().map(named).collect::<Result<Vec<_>, _>>()?;
        let mut live_at = BTreeMap::new();
        for (i, name) in live_names.iter().enumerate() {
            live_at.entry(name.clone()).and_modify(|at| *at = None).or_insert(Some(i));
        }
        let shared = (0..config.len()).rev().filter(|i| live_at.contains_key(&config_names[*i])).collect();
        Ok(Self {
            config_at: config_names.iter().cloned().enumerate().map(|(i, name)| (name, i)).collect(),
            live_at,
            shared,
            merged: vec![false; config.len()],
            out: Vec::with_capacity(live.len().max(config.len())),
            live: live_names.into_iter().zip(live.into_iter().map(Some)).collect(),
            config: config_names.into_iter().zip(config).collect(),
        })
    }

    fn run(&mut self, form: ListForm<'_>) -> Result<(), String> {
        let (mut l, mut r) = (0, 0);
        while l < self.live.len() || r < self.config.len() {
            if let Some((name, _)) = self.live.get(l) {
                let Some(&at) = self.config_at.get(name) else {
                    self.out.extend(self.live[l].1.take());
                    l += 1;
                    continue;
                };
                if r < self.config.len() && at == r {
                    self.take(r, form)?;
                    (l, r) = (l + 1, r + 1);
                    continue;
                }
                let awaited = self.shared.last().is_some_and(|next| *next != at);
                if r < self.config.len() && awaited {
                    l += 1;
                    continue;
                }
                l += usize::from(self.merged[at]);
            }
            if r < self.config.len() {
                self.take(r, form)?;
                r += 1;
            }
        }
        Ok(())
    }

    /// Merges the item of the configuration at `at` with the object's, if there is one of that name.
    fn take(&mut self, at: usize, form: ListForm<'_>) -> Result<(), String> {
        let (name, item) = &self.config[at];
        let live = self.live_at.get(name).copied().flatten().and_then(|i| self.live[i].1.take());
        self.out.push(match live {
            Some(mut live) => {
                merge_into(&mut live, item, form.items).map_err(|e| format!("{name}{e}"))?;
                live
            }
            None => (*item).clone(),
        });
        self.merged[at] = true;
        if self.shared.last() == Some(&at) {
            self.shared.pop();
        }
        Ok(())
    }
}

/// Takes fields, with all that is below them, out of a value; what is inside atomic lists and maps stays.
///
/// Maps and associative lists that become empty by that go too. They are given back: structured-merge-diff leaves
/// `null` in their place, so to it they are not removed, and neither is what they were in.
pub(super) fn remove_fields(value: &mut Value, fields: &FieldSet, shape: Shape<'_>) -> FieldSet {
    let mut emptied = FieldSet::default();
    match (shape.form(Some(value)), value) {
        (Form::Map(form), Value::Object(map)) if !form.atomic => map.retain(|name, value| {
            if fields.has_field(name) {
                return false;
            }
            let Some(inner) = fields.field_child(name) else { return true };
            let shape = form.child(name).unwrap_or(Shape::Deduced);
            stays(value, inner, shape, || PathElement::field(name), &mut emptied)
        }),
        (Form::List(form), Value::Array(list)) if !matches!(form.relation, Relation::Atomic) => list
            .retain_mut(|item| {
                let Ok(element) = form.element(item) else { return true };
                if fields.has_member(&element) {
                    return false;
                }
                let Some(inner) = fields.child(&element) else { return true };
                stays(item, inner, form.items, || element, &mut emptied)
            }),
        _ => {}
    }
    emptied
}

/// Takes fields out of a value, and tells whether it is to stay.
fn stays(
    value: &mut Value,
    fields: &FieldSet,
    shape: Shape<'_>,
    element: impl FnOnce() -> PathElement,
    emptied: &mut FieldSet,
) -> bool {
    let was_empty = is_empty(value);
    let below = remove_fields(value, fields, shape);
    let stays = was_empty || !is_empty(value) || !below.is_empty();
    if !stays {
        emptied.add_member(element());
    } else if !below.is_empty() {
        emptied.add_child(element(), below);
    }
    stays
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}
