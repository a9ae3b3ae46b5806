//! Resource quotas: what a write uses, and whether it fits
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! [`check`] is pure. Whoever commits the write reads the namespace's ResourceQuotas, checks, and commits the quotas
//! that it gets back together with the object, on the condition that they have not changed: so of two writes at once
//! one is checked again.

mod scope;
mod usage;

pub use usage::usage;

use crate::{
    Attributes, Verb,
    resources::{self, Amounts, amounts},
};
use freehold_machinery::{Result, Status, Value, meta, quantity::Quantity};
use serde_json::json;
use std::collections::BTreeMap;

/// Amounts by the name that quotas have for them (`requests.cpu`, `count/deployments.apps`).
pub type Usage = BTreeMap<String, Quantity>;

/// What a write adds to what is used, whatever quotas there are. Empty: the write is no matter for quotas, and they need
/// not be read.
///
/// Deletes give nothing back here: the quota controller counts again, as in Kubernetes.
pub fn evaluate(attributes: &Attributes<'_>) -> Usage {
    let Some(object) = attributes.object().filter(|_| is_counted(attributes)) else { return Usage::new() };
    let mut used = usage(&attributes.ty.group_resource(), object);
    if let Some(old) = attributes.old {
        subtract(&mut used, &usage(&attributes.ty.group_resource(), old));
    }
    used.retain(|_, amount| !amount.is_zero());
    used
}

/// Checks a write against a namespace's ResourceQuotas.
///
/// Gives those that change, each with its new `status.used`, to be committed with the write. Fails with 403 if one is
/// exceeded, has not been counted yet, or needs requests or limits that the object does not state.
pub fn check(attributes: &Attributes<'_>, quotas: &[Value]) -> Result<Vec<Value>> {
    let Some(object) = attributes.object().filter(|_| is_counted(attributes)) else { return Ok(Vec::new()) };
    let resource = attributes.ty.group_resource();
    let full = usage(&resource, object);
    let before = attributes.old.map(|old| usage(&resource, old));
    let mut changed = Vec::new();
    for quota in quotas {
        let Some(hard) = tracked(quota, &full).filter(|_| scope::matches(quota, &resource, object)) else {
            continue;
        };
        usage::check_stated(&resource, object, &hard)
            .map_err(|why| attributes.forbidden(&format!("failed quota: {}: {why}", meta::name(quota))))?;
        let used = amounts(quota.pointer("/status/used"));
        check_counted(attributes, quota, &hard, &used)?;
        check_positive(attributes, &full)?;
        let mut delta = full.clone();
        let counted = attributes.old.is_some_and(|old| scope::matches(quota, &resource, old));
        if let Some(before) = before.as_ref().filter(|_| counted) {
            subtract(&mut delta, before);
        }
        delta.retain(|name, amount| hard.contains_key(name) && !amount.is_zero());
        if !delta.is_empty() {
            changed.push(charge(attributes, quota, &hard, used, &delta)?);
        }
    }
    Ok(changed)
}

/// What is written again and again, and what is changed only by its controller, is not counted.
fn is_counted(attributes: &Attributes<'_>) -> bool {
    if !attributes.subresource.is_empty() || attributes.namespace.is_empty() {
        return false;
    }
    match attributes.verb {
        Verb::Create => true,
        // The use of these can grow by an update; that of others is one object, whatever it says.
        Verb::Update => attributes.is("", "services") || attributes.is("", "persistentvolumeclaims"),
        Verb::Delete | Verb::Connect => false,
    }
}

/// The limits of a quota that the object has to do with; `None` where there are none.
fn tracked(quota: &Value, usage: &Usage) -> Option<Amounts> {
    let mut hard = amounts(quota.pointer("/status/hard"));
    hard.retain(|name, _| usage.contains_key(name) || usage::is_computed(usage, name));
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
    let exceeded = |name: &str| hard.get(name).zip(used.get(name)).is_some_and(|(hard, used)| used > hard);
    let over: Vec<&String> = delta.keys().filter(|name| exceeded(name)).collect();
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

/// Takes away what was used before, down to nothing.
fn subtract(usage: &mut Usage, before: &Usage) {
    for (name, amount) in usage.iter_mut() {
        if let Some(before) = before.get(name) {
            let rest = amount.minus(before);
            *amount = if rest.sign() < 0 { Quantity::ZERO } else { rest };
        }
    }
}
