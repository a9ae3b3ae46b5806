//! Which volume a claim may have, and which of them it gets
//! (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/#binding>).

use freehold_machinery::quantity::Quantity;
use freehold_machinery::selector::Labels;
use freehold_machinery::{Value, meta};
use freehold_runtime::object::{items, labels, selects, text};
use std::cmp::Ordering;
use std::sync::Arc;

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns the class that a claim or volume names: by the old annotation, or by its field.
pub(super) fn class_of(object: &Value) -> &str {
    meta::annotation(object, CLASS_ANNOTATION).unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

/// Reports whether a claim says which class it wants, the empty one included.
pub(super) fn has_class(claim: &Value) -> bool {
    meta::annotation(claim, CLASS_ANNOTATION).is_some() || claim["spec"]["storageClassName"].is_string()
}

/// Reports whether a volume is bound to, or reserved for, a claim.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let uid = text(volume, "/spec/claimRef/uid");
    text(volume, "/spec/claimRef/name") == meta::name(claim)
        && text(volume, "/spec/claimRef/namespace") == meta::namespace(claim)
        && (uid.is_empty() || uid == meta::uid(claim))
}

/// Reports whether a volume's mode is not the one that a claim asks for.
pub(super) fn mode_differs(volume: &Value, claim: &Value) -> bool {
    let mode = |object: &Value| match text(object, "/spec/volumeMode") {
        "" => "Filesystem".to_owned(),
        mode => mode.to_owned(),
    };
    mode(volume) != mode(claim)
}

fn quantity(object: &Value, pointer: &str) -> Option<Quantity> {
    text(object, pointer).parse().ok()
}

fn capacity(volume: &Value) -> Option<Quantity> {
    quantity(volume, "/spec/capacity/storage")
}

fn is_large_enough(volume: &Value, claim: &Value) -> bool {
    let wanted = quantity(claim, "/spec/resources/requests/storage");
    wanted.is_none_or(|wanted| capacity(volume).is_some_and(|has| has >= wanted))
}

fn has_modes(volume: &Value, claim: &Value) -> bool {
    let has = items(volume, "/spec/accessModes");
    items(claim, "/spec/accessModes").iter().all(|mode| has.contains(mode))
}

fn attributes_differ(volume: &Value, claim: &Value) -> bool {
    let class = |object: &Value| text(object, "/spec/volumeAttributesClassName").to_owned();
    class(volume) != class(claim)
}

/// Returns why a volume that a claim names does not do for it.
pub(super) fn mismatch(volume: &Value, claim: &Value) -> Option<&'static str> {
    if !is_large_enough(volume, claim) {
        Some("requested PV is too small")
    } else if class_of(volume) != class_of(claim) {
        Some("storageClassName does not match")
    } else if attributes_differ(volume, claim) {
        Some("volumeAttributesClassName does not match")
    } else if mode_differs(volume, claim) {
        Some("incompatible volumeMode")
    } else if !has_modes(volume, claim) {
        Some("incompatible accessMode")
    } else {
        None
    }
}

/// Returns the volume that a claim gets: one that is reserved for it, or else the smallest of those with the fewest modes. A
/// claim that waits for its Pod to be placed (`delayed`) gets a reserved one alone.
pub(super) fn find(claim: &Value, volumes: &[Arc<Value>], delayed: bool) -> Option<Arc<Value>> {
    let selector = claim.pointer("/spec/selector").filter(|s| !s.is_null()).map(Labels::from_value);
    // A selector that makes no sense selects nothing.
    let Ok(selector) = selector.transpose() else { return None };
    let free = |volume: &Value| {
        !delayed
            && text(volume, "/status/phase") == "Available"
            && selector.as_ref().is_none_or(|s| selects(s, labels(volume)))
            && class_of(volume) == class_of(claim)
    };
    let fits = |volume: &&Arc<Value>| {
        let reserved = volume["spec"]["claimRef"].is_object();
        !meta::is_deleting(volume)
            && is_large_enough(volume, claim)
            && has_modes(volume, claim)
            && !mode_differs(volume, claim)
            && !attributes_differ(volume, claim)
            && if reserved { is_for(volume, claim) } else { free(volume) }
    };
    volumes.iter().filter(fits).min_by(|a, b| better(a, b)).cloned()
}

/// Orders volumes by number of modes, reservation, size and name.
fn better(a: &Value, b: &Value) -> Ordering {
    let modes = |volume: &Value| items(volume, "/spec/accessModes").len();
    let free = |volume: &Value| !volume["spec"]["claimRef"].is_object();
    modes(a)
        .cmp(&modes(b))
        .then_with(|| free(a).cmp(&free(b)))
        .then_with(|| capacity(a).partial_cmp(&capacity(b)).unwrap_or(Ordering::Equal))
        .then_with(|| meta::name(a).cmp(meta::name(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(name: &str, size: &str, change: impl Fn(&mut Value)) -> Arc<Value> {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"disk": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"},
            "status": {"phase": "Available"},
        });
        change(&mut volume);
        Arc::new(volume)
    }

    fn claim(change: impl Fn(&mut Value)) -> Value {
        let mut claim = json!({
            "metadata": {"name": "data", "namespace": "n", "uid": "u"},
            "spec": {"resources": {"requests": {"storage": "2Gi"}}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"},
        });
        change(&mut claim);
        claim
    }

    fn found(claim: &Value, volumes: &[Arc<Value>], delayed: bool) -> String {
        find(claim, volumes, delayed).map(|v| meta::name(&v).to_owned()).unwrap_or_default()
    }

    #[test]
    fn the_smallest_volume_that_fits_is_found() {
        let volumes =
            ["1Gi", "5Gi", "3Gi"].map(|size| volume(&format!("v{}", size.to_lowercase()), size, |_| {}));
        assert_eq!(found(&claim(|_| {}), &volumes, false), "v3gi");
        assert_eq!(found(&claim(|_| {}), &volumes, true), "", "its Pod is placed first");
        let picky = claim(|c| c["spec"]["selector"] = json!({"matchLabels": {"disk": "v5gi"}}));
        assert_eq!(found(&picky, &volumes, false), "v5gi");
        let broken = claim(|c| c["spec"]["selector"] = json!({"matchLabels": {"disk": "no/t/valid"}}));
        assert_eq!(found(&broken, &volumes, false), "");
    }

    #[test]
    fn a_volume_that_differs_in_anything_is_passed_over() {
        let changes: [fn(&mut Value); 8] = [
            |v| v["spec"]["storageClassName"] = "other".into(),
            |v| v["spec"]["volumeMode"] = "Block".into(),
            |v| v["spec"]["accessModes"] = json!(["ReadOnlyMany"]),
            |v| v["spec"]["volumeAttributesClassName"] = "gold".into(),
            |v| v["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
            |v| v["status"]["phase"] = "Released".into(),
            |v| v["spec"]["claimRef"] = json!({"namespace": "n", "name": "other"}),
            |v| v["spec"]["claimRef"] = json!({"namespace": "n", "name": "data", "uid": "an older one"}),
        ];
        for change in changes {
            let volume = volume("v", "3Gi", change);
            assert_eq!(found(&claim(|_| {}), std::slice::from_ref(&volume), false), "", "{volume}");
        }
    }

    #[test]
    fn a_reserved_volume_comes_first_and_may_be_of_another_class() {
        let reserved = |v: &mut Value| {
            v["spec"]["claimRef"] = json!({"namespace": "n", "name": "data"});
            v["spec"]["storageClassName"] = "other".into();
            v["status"]["phase"] = "Pending".into();
        };
        let volumes = [volume("small", "2Gi", |_| {}), volume("kept", "9Gi", reserved)];
        assert_eq!(found(&claim(|_| {}), &volumes, false), "kept");
        assert_eq!(found(&claim(|_| {}), &volumes, true), "kept");
    }

    #[test]
    fn fewer_modes_go_before_size() {
        let many = |v: &mut Value| v["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadWriteMany"]);
        let volumes = [volume("many", "2Gi", many), volume("one", "8Gi", |_| {})];
        assert_eq!(found(&claim(|_| {}), &volumes, false), "one");
    }

    #[test]
    fn a_named_volume_is_refused_for_the_first_difference() {
        type Change = fn(&mut Value);
        let rows: [(Change, Option<&str>); 6] = [
            (|_| {}, None),
            (|v| v["spec"]["capacity"]["storage"] = "1Gi".into(), Some("requested PV is too small")),
            (|v| v["spec"]["storageClassName"] = "x".into(), Some("storageClassName does not match")),
            (|v| v["spec"]["volumeMode"] = "Block".into(), Some("incompatible volumeMode")),
            (|v| v["spec"]["accessModes"] = json!([]), Some("incompatible accessMode")),
            (
                |v| v["spec"]["volumeAttributesClassName"] = "x".into(),
                Some("volumeAttributesClassName does not match"),
            ),
        ];
        for (change, why) in rows {
            assert_eq!(mismatch(&volume("v", "3Gi", change), &claim(|_| {})), why);
        }
    }
}
