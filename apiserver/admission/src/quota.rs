//! ResourceQuotas: the usage of a write, and whether it fits
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! [`check`] is pure. Whoever commits the write reads the namespace's ResourceQuotas, checks, and commits the quotas
//! that it gets back together with the object, on the condition that they have not changed: so of two writes at once
//! one is checked again.

use crate::{
    Attributes, Verb,
    resources::{self, Amounts, amounts},
};
use freehold_machinery::{Result, Status, Value, meta, quantity::Quantity};
pub use freehold_machinery_quota::{Surroundings, made_for};
use freehold_machinery_quota::{
    Usage, check_stated, is_computed, is_shared, is_terminating, limits_extended, matches, usage,
};
use serde_json::json;
use std::collections::BTreeMap;

/// Checks a write against a namespace's ResourceQuotas.
///
/// Returns those that change, each with its new `status.used`, to be committed with the write. That commit also
/// gives back the usage of objects that are deleted, end or shrink, except devices that a Pod counts together with
/// the claim made for it: when one of both goes, the controller that counts everything decides what remains.
///
/// # Errors
/// 403 where a quota is exceeded, has not been counted yet, or needs requests or limits that the object does not
/// state.
pub fn check(attributes: &Attributes<'_>, quotas: &[Value], around: &Surroundings) -> Result<Vec<Value>> {
    if !is_counted(attributes) {
        return Ok(Vec::new());
    }
    let resource = attributes.ty.group_resource();
    let object = attributes.object();
    let shared = attributes.old.is_some_and(|old| is_shared(&resource, old));
    let mut changed = Vec::new();
    for quota in quotas {
        let within = |object: &&Value| matches(quota, &resource, object);
        let (new, old) = (object.filter(within), attributes.old.filter(within));
        let after = new.map(|object| usage(&resource, object, around)).unwrap_or_default();
        let before = old.map(|object| usage(&resource, object, around)).unwrap_or_default();
        let Some(hard) = tracked(quota, [&after, &before]) else { continue };
        let mut delta = difference(&after, &before);
        delta.retain(|name, amount| hard.contains_key(name) && !amount.is_zero());
        delta.retain(|name, amount| amount.sign() > 0 || !(shared && limits_extended(name)));
        let grows = delta.values().any(|amount| amount.sign() > 0);
        if let Some(object) = new.filter(|_| grows || attributes.verb == Verb::Create) {
            check_stated(&resource, object, &hard).map_err(|why| {
                attributes.forbidden(&format!("failed quota: {}: {why}", meta::name(quota)))
            })?;
        }
        let used = amounts(quota.pointer("/status/used"));
        if grows || attributes.verb == Verb::Create {
            check_counted(attributes, quota, &hard, &used)?;
            check_positive(attributes, &after)?;
        } else {
            // What was never counted can't be given back.
            delta.retain(|name, _| used.contains_key(name));
        }
        if !delta.is_empty() {
            changed.push(charge(attributes, quota, &hard, used, &delta)?);
        }
    }
    Ok(changed)
}

/// What is written again and again, and what is changed only by its controller, is not counted.
fn is_counted(attributes: &Attributes<'_>) -> bool {
    if attributes.namespace.is_empty() {
        return false;
    }
    match attributes.verb {
        Verb::Create => attributes.subresource.is_empty(),
        // The use of these can change by an update; that of others is one object, whatever it says.
        Verb::Update => match attributes.subresource {
            "" if attributes.is("", "pods") => changes_scope(attributes),
            "" => {
                let claims = attributes.is("", "persistentvolumeclaims");
                claims || attributes.is("", "services") || attributes.is("resource.k8s.io", "resourceclaims")
            }
            // What a claim has got, and of which class.
            "status" if attributes.is_sub("", "persistentvolumeclaims", "status") => true,
            // A Pod that has ended uses nothing any more.
            "status" | "resize" => attributes.is_sub("", "pods", attributes.subresource),
            _ => false,
        },
        Verb::Delete => true,
        Verb::Connect => false,
    }
}

/// A Pod's time becomes limited: other quotas are about it from then on.
fn changes_scope(attributes: &Attributes<'_>) -> bool {
    let [new, old] = [attributes.object(), attributes.old].map(|pod| pod.is_some_and(is_terminating));
    new != old
}

/// The limits of a quota that the object has to do with; `None` where there are none.
fn tracked(quota: &Value, usages: [&Usage; 2]) -> Option<Amounts> {
    let mut hard = amounts(quota.pointer("/status/hard"));
    hard.retain(|name, _| usages.iter().any(|usage| usage.contains_key(name) || is_computed(usage, name)));
    (!hard.is_empty()).then_some(hard)
}

fn check_counted(attributes: &Attributes<'_>, quota: &Value, hard: &Amounts, used: &Amounts) -> Result<()> {
    if hard.keys().all(|name| used.contains_key(name)) {
        return Ok(());
    }
    let names: Vec<&str> = hard.keys().map(String::as_str).collect();
    let why = format!("status unknown for quota: {}, resources: {}", meta::name(quota), names.join(","));
    Err(attributes.forbidden(&why))
}

fn check_positive(attributes: &Attributes<'_>, usage: &Usage) -> Result<()> {
    let negative: Vec<&str> =
        usage.iter().filter(|(_, amount)| amount.sign() < 0).map(|(name, _)| name.as_str()).collect();
    if negative.is_empty() {
        return Ok(());
    }
    Err(attributes.forbidden(&format!("quota usage is negative for resource(s): {}", negative.join(","))))
}

fn charge(
    attributes: &Attributes<'_>,
    quota: &Value,
    hard: &Amounts,
    mut used: Amounts,
    delta: &Usage,
) -> Result<Value> {
    let before = used.clone();
    resources::add(&mut used, delta);
    for amount in used.values_mut().filter(|amount| amount.sign() < 0) {
        *amount = Quantity::ZERO;
    }
    let exceeded = |name: &str| hard.get(name).zip(used.get(name)).is_some_and(|(hard, used)| used > hard);
    let grown = delta.iter().filter(|(_, amount)| amount.sign() > 0).map(|(name, _)| name);
    let over: Vec<&String> = grown.filter(|name| exceeded(name)).collect();
    if !over.is_empty() {
        return Err(excess(attributes, quota, [delta, &before, hard], &over));
    }
    let mut quota = quota.clone();
    let written: BTreeMap<&String, String> =
        used.iter().map(|(name, amount)| (name, amount.to_string())).collect();
    quota["status"]["used"] = json!(written);
    Ok(quota)
}

fn excess(attributes: &Attributes<'_>, quota: &Value, amounts: [&Amounts; 3], over: &[&String]) -> Status {
    let of = |amounts: &Amounts| {
        let chosen = over.iter().filter_map(|name| Some(((*name).clone(), *amounts.get(*name)?)));
        resources::list(&chosen.collect())
    };
    let [requested, used, limited] = amounts.map(of);
    let name = meta::name(quota);
    attributes.forbidden(&format!(
        "exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}"
    ))
}

/// What one uses more than the other; less is negative.
fn difference(after: &Usage, before: &Usage) -> Usage {
    let mut delta = after.clone();
    for (name, amount) in before {
        let more = delta.get(name).copied().unwrap_or(Quantity::ZERO);
        delta.insert(name.clone(), more.minus(amount));
    }
    delta
}
