//! Hints: which endpoints proxies should prefer, as a Service's `trafficDistribution` asks
//! (<https://kubernetes.io/docs/concepts/services-networking/service/#traffic-distribution>).
//!
//! Each ready endpoint is hinted to its own zone, and to its own node where `PreferSameNode` is asked. Hints by the
//! share of each zone's processors (`service.kubernetes.io/topology-mode: Auto`) are not made: they are taken away.

use super::slices::Plan;
use freehold_controllers_context::object::{items, text};
use freehold_machinery::{Map, Value, meta};
use serde_json::json;

/// What a Service asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wish {
    /// No hints.
    Nothing,
    Zone,
    /// Zone and node.
    Node,
}

fn wish(service: &Value) -> Wish {
    let by_zones = ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];
    let asked = by_zones.iter().find_map(|key| meta::annotation(service, key));
    if asked.is_some_and(|value| matches!(value, "Auto" | "auto")) {
        return Wish::Nothing;
    }
    match text(service, "/spec/trafficDistribution") {
        "PreferClose" | "PreferSameZone" => Wish::Zone,
        "PreferSameNode" => Wish::Node,
        _ => Wish::Nothing,
    }
}

/// The hints of an endpoint; `None`: those that it has stay.
fn hints(wish: Wish, endpoint: &Value) -> Option<Value> {
    if wish == Wish::Nothing {
        return Some(Value::Null);
    }
    if endpoint["conditions"]["ready"] != true {
        return None;
    }
    let mut hints = Map::new();
    let node = if wish == Wish::Node { text(endpoint, "/nodeName") } else { "" };
    for (field, name) in [("forZones", text(endpoint, "/zone")), ("forNodes", node)] {
        if !name.is_empty() {
            hints.insert(field.to_owned(), json!([{ "name": name }]));
        }
    }
    Some(if hints.is_empty() { Value::Null } else { hints.into() })
}

/// Gives the endpoints of a slice their hints; whether any had others.
fn hint(wish: Wish, slice: &mut Value) -> bool {
    let mut changed = false;
    for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
        let Some(wanted) = hints(wish, endpoint).filter(|wanted| *wanted != endpoint["hints"]) else {
            continue;
        };
        changed = true;
        match wanted {
            Value::Null => drop(endpoint.as_object_mut().map(|endpoint| endpoint.remove("hints"))),
            wanted => endpoint["hints"] = wanted,
        }
    }
    changed
}

/// Gives all slices their hints: those of a plan, and others that have to change for it.
pub(super) fn complete(service: &Value, plan: &mut Plan, existing: &[Value]) {
    let wish = wish(service);
    let named = |slices: &[Value], slice: &Value| slices.iter().any(|s| meta::name(s) == meta::name(slice));
    for slice in existing {
        let touched = named(&plan.update, slice) || named(&plan.delete, slice);
        if touched
            || (wish == Wish::Nothing && items(slice, "/endpoints").iter().all(|e| e["hints"].is_null()))
        {
            continue;
        }
        let mut slice = slice.clone();
        if hint(wish, &mut slice) {
            plan.update.push(slice);
        }
    }
    for slice in plan.create.iter_mut().chain(&mut plan.update) {
        hint(wish, slice);
    }
}
