//! Objects that the server makes: claims, grants of policies, events of corrections.

use crate::{CONSUMERS, Claim, Consumer, ConsumerKind, GROUP, Grant, bucket};
use freehold_machinery::{Value, meta};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// On claims and grants that a policy made: the plane of their object.
pub const PLANE_LABEL: &str = "quota.freehold.dev/plane";
/// On a bucket: who corrected it last.
pub const CORRECTED_BY: &str = "quota.freehold.dev/corrected-by";
/// On a bucket: when it was corrected last.
pub const CORRECTED_AT: &str = "quota.freehold.dev/corrected-at";

/// On a claim that was made before its object: above which record of its plane, and when.
pub const AHEAD: &str = "quota.freehold.dev/ahead-of";

/// What a claim or grant is for.
#[derive(Clone, Copy, Debug)]
pub struct For<'a> {
    /// The plane of the object.
    pub plane: &'a str,
    /// Its API group.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace; empty without one.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// A new object of quota, without a uid and version.
pub fn new(kind: &str, (namespace, name): (&str, &str), spec: Value, now: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": now, "generation": 1},
        "spec": spec,
    })
}

fn digest(parts: &[&str]) -> String {
    hex::encode(Sha256::digest(parts.join("/")))[..20].to_owned()
}

/// The name of an object's claim on consumers of a kind.
pub fn claim_name(of: For<'_>, consumer: ConsumerKind) -> String {
    let For { plane, group, kind, namespace, name } = of;
    let digest = digest(&[plane, group, kind, namespace, name, consumer.as_str()]);
    format!("{}-{digest}", kind.to_lowercase())
}

/// The name of the grant that a policy makes for an object.
pub fn grant_name(of: For<'_>, policy: &str) -> String {
    let For { plane, group, kind, namespace, name } = of;
    let readable: String = policy.chars().take(100).collect();
    let digest = digest(&[plane, group, kind, namespace, name, policy]);
    format!("{}-{digest}", readable.trim_end_matches(['-', '.']))
}

fn reference(consumer: &Consumer) -> Value {
    json!({"apiGroup": CONSUMERS, "kind": consumer.kind.as_str(), "name": consumer.name})
}

/// The conditions of an object of which one says `True`; the time is that of before where it said so before.
pub fn conditions(
    old: Option<&Value>,
    [kind, reason, message]: [&str; 3],
    generation: i64,
    now: &str,
) -> Value {
    let before = old.and_then(|old| old.pointer("/status/conditions/0/lastTransitionTime"));
    json!([{
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": before.cloned().unwrap_or_else(|| now.into()), "observedGeneration": generation,
    }])
}

/// The status of a claim that is granted.
pub fn granted(claim: &Value, old: Option<&Value>, now: &str) -> Value {
    let generation = claim["metadata"]["generation"].as_i64().unwrap_or(1);
    let consumer = bucket::consumer(claim);
    let allocations: Vec<Value> = requests(claim)
        .into_iter()
        .map(|(resource, amount)| {
            let from = consumer.as_ref().map(|consumer| bucket::name(consumer, &resource));
            json!({
                "resourceType": resource, "status": "Granted", "allocatedAmount": amount,
                "allocatingBucket": from.unwrap_or_default(),
            })
        })
        .collect();
    let why = ["Granted", "QuotaAvailable", "Claim granted"];
    json!({
        "observedGeneration": generation, "allocations": allocations,
        "conditions": conditions(old, why, generation, now),
    })
}

/// What a claim uses, by resource.
pub fn requests(claim: &Value) -> BTreeMap<String, i64> {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for request in claim["spec"]["requests"].as_array().into_iter().flatten() {
        let resource = request["resourceType"].as_str().unwrap_or_default().to_owned();
        let sum = sums.entry(resource).or_default();
        *sum = sum.saturating_add(request["amount"].as_i64().unwrap_or(0).max(0));
    }
    sums
}

/// What a grant gives, by resource.
pub fn allowances(grant: &Value) -> BTreeMap<String, i64> {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for allowance in grant["spec"]["allowances"].as_array().into_iter().flatten() {
        let resource = allowance["resourceType"].as_str().unwrap_or_default().to_owned();
        let buckets = allowance["buckets"].as_array().into_iter().flatten();
        let amount =
            buckets.fold(0i64, |sum, b| sum.saturating_add(b["amount"].as_i64().unwrap_or(0).max(0)));
        let sum = sums.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
    sums
}

/// The claim of an object, from the one that it had.
pub fn claim(old: Option<&Value>, claim: &Claim, of: For<'_>, namespace: &str, now: &str) -> Value {
    let requests: Vec<Value> = claim
        .requests
        .iter()
        .map(|(resource, amount)| json!({"resourceType": resource, "amount": amount}))
        .collect();
    let mut spec = json!({
        "consumerRef": reference(&claim.consumer), "requests": requests,
        "resourceRef": {"kind": of.kind, "name": of.name, "plane": of.plane},
    });
    for (field, value) in [("apiGroup", of.group), ("namespace", of.namespace)] {
        if !value.is_empty() {
            spec["resourceRef"][field] = value.into();
        }
    }
    let name = claim_name(of, claim.consumer.kind);
    let mut object = renewed("ResourceClaim", old, (namespace, &name), spec, now);
    labelled(&mut object, of, &claim.labels, &claim.annotations);
    let status = granted(&object, old, now);
    object["status"] = status;
    object
}

/// The grant that a policy makes for an object, from the one that it had.
pub fn grant(old: Option<&Value>, grant: &Grant, of: For<'_>, namespace: &str, now: &str) -> Value {
    let spec = json!({"consumerRef": reference(&grant.consumer), "allowances": grant.allowances});
    let name = grant_name(of, &grant.policy);
    let mut object = renewed("ResourceGrant", old, (namespace, &name), spec, now);
    labelled(&mut object, of, &grant.labels, &grant.annotations);
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
    object["status"] = json!({
        "observedGeneration": generation,
        "conditions": conditions(old, ["Active", "GrantActive", "Grant counts"], generation, now),
    });
    object
}

fn renewed(kind: &str, old: Option<&Value>, place: (&str, &str), spec: Value, now: &str) -> Value {
    let Some(old) = old else { return new(kind, place, spec, now) };
    let mut object = old.clone();
    meta::remove(&mut object, "resourceVersion");
    if object["spec"] != spec {
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        meta::set(&mut object, "generation", generation + 1);
        object["spec"] = spec;
    }
    object
}

fn labelled(
    object: &mut Value,
    of: For<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) {
    let mut labels = labels.clone();
    labels.insert(PLANE_LABEL.to_owned(), of.plane.to_owned());
    meta::set(object, "labels", json!(labels));
    if !annotations.is_empty() {
        meta::set(object, "annotations", json!(annotations));
    }
}

/// An event that says who corrected what.
pub fn event(about: &Value, (name, by): (&str, &str), message: &str, now: &str) -> Value {
    let namespace = meta::namespace(about);
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": now},
        "involvedObject": {
            "apiVersion": about["apiVersion"], "kind": about["kind"], "namespace": namespace,
            "name": meta::name(about), "uid": meta::uid(about),
        },
        "reason": "QuotaCorrected", "message": message, "type": "Normal", "action": "Corrected",
        "source": {"component": "freehold-apiserver"}, "reportingComponent": "freehold-apiserver",
        "reportingInstance": by, "firstTimestamp": now, "lastTimestamp": now, "count": 1, "eventTime": null,
    })
}
