//! Lists and watches of which a member sees objects by name.

use crate::lines::{event, line};
use bytes::Bytes;
use freehold_machinery::{Value, meta};
use freehold_tenancy_decide::visibility::Names;
use futures_util::{Stream, StreamExt as _, future::ready};

fn row_name(row: &Value) -> &str {
    row.pointer("/object/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Leaves of a list or table what is among the names.
pub(crate) fn filter_list(list: &mut Value, names: &Names) {
    if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
        items.retain(|item| names.contains(meta::name(item)));
    }
    if let Some(rows) = list.get_mut("rows").and_then(Value::as_array_mut) {
        rows.retain(|row| names.contains(row_name(row)));
    }
}

/// Leaves of a watch what is among the names. The columns of a table stand in its first event alone.
pub(crate) fn filter_watch(
    lines: impl Stream<Item = Bytes> + Send,
    names: Names,
) -> impl Stream<Item = Bytes> + Send {
    let mut columns = None;
    lines.filter_map(move |text| ready(filter_event(&text, &names, &mut columns)))
}

fn filter_event(text: &Bytes, names: &Names, columns: &mut Option<Value>) -> Option<Bytes> {
    let (kind, mut object) = event(text)?;
    if kind == "ERROR" || kind == "BOOKMARK" {
        return Some(text.clone());
    }
    if object["kind"] != "Table" {
        return names.contains(meta::name(&object)).then(|| text.clone());
    }
    filter_list(&mut object, names);
    if object["columnDefinitions"].is_array() {
        *columns = Some(object["columnDefinitions"].take());
    }
    if object["rows"].as_array().is_none_or(Vec::is_empty) {
        return None;
    }
    if let Some(columns) = columns.take() {
        object["columnDefinitions"] = columns;
    }
    Some(line(&kind, &object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_of_other_objects_are_left_out_and_columns_are_kept() {
        let names = Names::Only(["fast".to_owned()].into());
        let mut columns = None;
        let mut seen = |object: Value| filter_event(&line("ADDED", &object), &names, &mut columns);
        assert!(seen(json!({"kind": "StorageClass", "metadata": {"name": "slow"}})).is_none());
        assert!(seen(json!({"kind": "StorageClass", "metadata": {"name": "fast"}})).is_some());
        let table = |name: &str, columns: Value| json!({"kind": "Table", "columnDefinitions": columns, "rows": [{"object": {"metadata": {"name": name}}}]});
        assert!(seen(table("slow", json!([{"name": "Name"}]))).is_none());
        let shown = seen(table("fast", Value::Null)).unwrap();
        assert_eq!(event(&shown).unwrap().1["columnDefinitions"][0]["name"], "Name");
        // Without its object a row has no name.
        assert!(seen(json!({"kind": "Table", "rows": [{"cells": ["fast"], "object": null}]})).is_none());
    }
}
