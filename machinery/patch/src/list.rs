//! Lists in strategic merge patches: merged by key or as sets, and put in order.
//!
//! Of the orders that are known, `$setElementOrder` comes first, then the patch's, then the object's.

use crate::strategic::{PATCH, cleaned, failed, merge_map, no_merge_key, unknown_directive, wrong_type};
use crate::words::{go_text, rejected};
use freehold_machinery::{Value, schema::Schema, status::Result};
use std::collections::{HashMap, HashSet};

/// How a list is merged.
#[derive(Clone, Copy)]
pub(super) struct Rules<'s> {
    /// Whether items are merged; otherwise the patch's list replaces the object's.
    pub(super) merge: bool,
    key: Option<&'s str>,
    items: Option<&'s Schema>,
    name: &'s str,
}

impl<'s> Rules<'s> {
    /// What the schema says of the list `name`.
    pub(super) fn of(schema: Option<&'s Schema>, name: &'s str) -> Self {
        Self {
            merge: schema.is_some_and(|s| s.patch_strategies.merge),
            key: schema.and_then(|s| s.patch_merge_key.as_deref()),
            items: schema.and_then(|s| s.items.as_deref()),
            name,
        }
    }

    fn merge_key(&self) -> Result<&'s str> {
        self.key.ok_or_else(|| failed(format!("cannot merge lists without merge key for {}", self.name)))
    }

    /// What tells an item from others: the value of its merge key, or the item itself.
    fn id(&self, item: &Value) -> Result<String> {
        match (self.key, item) {
            (None, _) => Ok(item.to_string()),
            (Some(key), Value::Object(map)) => {
                map.get(key).map(Value::to_string).ok_or_else(|| no_merge_key(item, key))
            }
            (Some(_), other) => Err(wrong_type("map[string]interface {}", other)),
        }
    }

    fn ids(&self, items: &[Value]) -> Result<Vec<String>> {
        items.iter().map(|item| self.id(item)).collect()
    }
}

/// Merges a list and puts it in the order that the patch gives besides. At least one of the lists is there.
pub(super) fn merge_in_order(
    original: Option<Vec<Value>>,
    patch: Option<Vec<Value>>,
    order: Vec<Value>,
    rules: Rules<'_>,
) -> Result<Vec<Value>> {
    check_order(patch.as_deref().unwrap_or_default(), &order, rules)?;
    let before = rules.ids(original.as_deref().unwrap_or_default())?;
    let before = order_before(before, patch.as_deref().unwrap_or_default(), rules)?;
    let merged = match (original, patch) {
        (Some(original), Some(patch)) if rules.merge => merge(original, patch, rules)?,
        (_, Some(patch)) => patch.into_iter().filter_map(cleaned).collect(),
        (original, None) => original.unwrap_or_default(),
    };
    arrange(merged, &rules.ids(&order)?, &before, rules)
}

/// The order of the object's items that counts besides the one that the patch gives.
///
/// Where the patch deletes items, its new items take their places at the end: in Kubernetes because the two lists share
/// memory, but the order that comes of it is the one that clients know.
fn order_before(before: Vec<String>, patch: &[Value], rules: Rules<'_>) -> Result<Vec<String>> {
    let is_deletion = |item: &&Value| item.get(PATCH).is_some_and(|directive| directive == "delete");
    let gone = patch.iter().filter(is_deletion).map(|item| rules.id(item)).collect::<Result<HashSet<_>>>()?;
    if !rules.merge || gone.is_empty() {
        return Ok(before);
    }
    let places = before.len();
    let known: HashSet<String> = before.iter().cloned().collect();
    let mut order: Vec<String> = before.into_iter().filter(|id| !gone.contains(id)).collect();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let id = rules.id(item)?;
        if order.len() < places && !known.contains(&id) {
            order.push(id);
        }
    }
    Ok(order)
}

/// The items of a patch must be in the order that it gives besides, and all of them.
fn check_order(patch: &[Value], order: &[Value], rules: Rules<'_>) -> Result<()> {
    if order.is_empty() {
        return Ok(());
    }
    let ids = rules.ids(order)?;
    let mut ids = ids.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let id = rules.id(item)?;
        if !ids.any(|other| *other == id) {
            let (patch, order) = (go_text(&Value::from(patch)), go_text(&Value::from(order)));
            let text = format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            );
            return Err(failed(text));
        }
    }
    Ok(())
}

/// Merges two lists whose items are merged.
pub(super) fn merge(original: Vec<Value>, patch: Vec<Value>, rules: Rules<'_>) -> Result<Vec<Value>> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !holds_maps(&original, &patch)? {
        let rules = Rules { key: None, ..rules };
        let (before, order) = (rules.ids(&original)?, rules.ids(&patch)?);
        let mut seen = HashMap::new();
        let all = original.into_iter().chain(patch).zip(before.iter().chain(&order));
        let each_once =
            all.filter(|(_, id)| seen.insert(id.as_str(), ()).is_none()).map(|(item, _)| item).collect();
        return arrange(each_once, &order, &before, rules);
    }
    rules.merge_key()?;
    let (original, patch) = follow_directives(original, patch, rules)?;
    let (before, order) = (rules.ids(&original)?, rules.ids(&patch)?);
    let merged = merge_items(original, &before, patch, rules)?;
    arrange(merged, &order, &before, rules)
}

/// Takes items out of a list of scalars.
pub(super) fn delete(original: Vec<Value>, gone: Vec<Value>, rules: Rules<'_>) -> Result<Vec<Value>> {
    if original.is_empty() && gone.is_empty() {
        return Ok(original);
    }
    if holds_maps(&original, &gone)? {
        return merge(original, gone, rules);
    }
    let gone: HashSet<String> = gone.iter().map(Value::to_string).collect();
    Ok(original.into_iter().filter(|item| !gone.contains(&item.to_string())).collect())
}

/// Whether the items are maps. All must be of one type, and none a list.
fn holds_maps(original: &[Value], patch: &[Value]) -> Result<bool> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else {
        return Err(failed("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(rejected());
    }
    let kind = |item: &Value| (std::mem::discriminant(item), item.is_f64());
    if items.any(|item| kind(item) != kind(first)) {
        let both = go_text(&Value::from(vec![Value::from(original), Value::from(patch)]));
        return Err(failed(format!("list element types are not identical: {both}")));
    }
    Ok(first.is_object())
}

/// Follows `$patch` in items: drops what is deleted, and everything when the list is replaced. Gives what remains of
/// both lists.
fn follow_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    rules: Rules<'_>,
) -> Result<(Vec<Value>, Vec<Value>)> {
    let (mut replace, mut gone, mut rest) = (false, HashSet::new(), Vec::with_capacity(patch.len()));
    for item in patch {
        let Some(directive) = item.get(PATCH) else {
            rest.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => drop(gone.insert(rules.id(&item)?)),
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(failed("merging lists cannot yet be specified in the patch".to_owned()));
            }
            _ => return Err(unknown_directive(directive, &item)),
        }
    }
    if replace {
        return Ok((rest.into_iter().filter_map(cleaned).collect(), Vec::new()));
    }
    if !gone.is_empty() {
        original.retain(|item| rules.id(item).map_or(true, |id| !gone.contains(&id)));
    }
    Ok((original, rest))
}

/// Merges each item of the patch into the item of the same key, or adds it.
fn merge_items(
    mut merged: Vec<Value>,
    ids: &[String],
    patch: Vec<Value>,
    rules: Rules<'_>,
) -> Result<Vec<Value>> {
    let mut at: HashMap<String, usize> = HashMap::new();
    for (i, id) in ids.iter().enumerate() {
        at.entry(id.clone()).or_insert(i);
    }
    for item in patch {
        let id = rules.id(&item)?;
        match (at.get(&id), item) {
            (Some(i), Value::Object(changes)) => {
                let before = std::mem::take(&mut merged[*i]);
                let Value::Object(before) = before else {
                    return Err(failed(format!("value for key {i} is not a map")));
                };
                merged[*i] = Value::Object(merge_map(before, changes, rules.items)?);
            }
            (_, item) => {
                if let Some(item) = cleaned(item) {
                    at.insert(id, merged.len());
                    merged.push(item);
                }
            }
        }
    }
    Ok(merged)
}

/// Puts items in order: those that `order` names in that order, the rest as they were, and both interleaved so that the
/// order in which they were is broken as little as can be.
fn arrange(items: Vec<Value>, order: &[String], before: &[String], rules: Rules<'_>) -> Result<Vec<Value>> {
    let places = |ids: &[String]| -> HashMap<String, usize> {
        ids.iter().enumerate().rev().map(|(i, id)| (id.clone(), i)).collect()
    };
    let (wanted, was) = (places(order), places(before));
    let mut named: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut others: Vec<(usize, Value)> = Vec::new();
    for item in items {
        let id = rules.id(&item)?;
        match wanted.get(&id) {
            Some(place) => named.push((*place, was.get(&id).copied(), item)),
            None => others.push((was.get(&id).copied().unwrap_or(usize::MAX), item)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(place, _)| *place);

    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, was, item) in named {
        while let Some((_, other)) = others.next_if(|(place, _)| was.is_some_and(|was| *place < was)) {
            result.push(other);
        }
        result.push(item);
    }
    result.extend(others.map(|(_, other)| other));
    Ok(result)
}
