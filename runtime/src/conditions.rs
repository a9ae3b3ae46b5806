//! `status.conditions` of an object that is a [`Value`].

use freehold_machinery::{Value, time};
use jiff::Timestamp;
use serde_json::json;

/// A condition to be set.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// Its type.
    pub type_: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// Why, in CamelCase.
    pub reason: &'a str,
    /// The reason in words, for people.
    pub message: &'a str,
    /// The `metadata.generation` that it was observed at; `None` leaves that out.
    pub generation: Option<i64>,
}

/// A condition by its type.
pub fn find<'a>(conditions: &'a Value, type_: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|c| c["type"] == type_)
}

/// Whether the condition `type_` is `True` in a list of conditions.
pub fn is_true(conditions: &Value, type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c["status"] == "True")
}

/// Sets a condition in a list, which is made where it is absent. The time of its last transition changes only with its
/// status. Gives whether anything changed.
pub fn set(conditions: &mut Value, new: Set<'_>, now: Timestamp) -> bool {
    if !conditions.is_array() {
        *conditions = Value::Array(Vec::new());
    }
    let Some(list) = conditions.as_array_mut() else { return false };
    let mut condition = json!({
        "type": new.type_, "status": new.status, "reason": new.reason, "message": new.message,
        "lastTransitionTime": time::format_seconds(now),
    });
    if let Some(generation) = new.generation {
        condition["observedGeneration"] = generation.into();
    }
    let Some(old) = list.iter_mut().find(|c| c["type"] == new.type_) else {
        list.push(condition);
        return true;
    };
    if old["status"] == condition["status"] && old["lastTransitionTime"].is_string() {
        condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    if *old == condition {
        return false;
    }
    *old = condition;
    true
}

/// Removes a condition from a list. Gives whether it was there.
pub fn remove(conditions: &mut Value, type_: &str) -> bool {
    let Some(list) = conditions.as_array_mut() else { return false };
    let before = list.len();
    list.retain(|c| c["type"] != type_);
    list.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_with_the_status_alone() {
        let mut list = Value::Null;
        let ready = Set { type_: "Ready", status: "False", reason: "A", message: "", generation: Some(1) };
        let later = Timestamp::from_second(100).unwrap();
        assert!(set(&mut list, ready, Timestamp::UNIX_EPOCH));
        assert!(!set(&mut list, ready, later));
        assert!(set(&mut list, Set { reason: "B", ..ready }, later));
        assert_eq!(list[0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert!(set(&mut list, Set { status: "True", ..ready }, later));
        assert_eq!(list[0]["lastTransitionTime"], "1970-01-01T00:01:40Z");
        assert!(is_true(&list, "Ready") && remove(&mut list, "Ready") && !remove(&mut list, "Ready"));
    }
}
