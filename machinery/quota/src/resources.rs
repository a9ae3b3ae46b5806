//! Amounts of resources, and the requests and limits of a Pod.

use crate::json::items;
use freehold_machinery::{Value, quantity::Quantity};
use std::collections::BTreeMap;

/// Amounts by resource name, in order.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads a `ResourceList`. What is no quantity is left out: validation has refused it.
pub fn amounts(value: Option<&Value>) -> Amounts {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    let read = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    entries.filter_map(|(name, value)| Some((name.clone(), read(value)?))).collect()
}

/// Adds `other` to `sum`.
pub fn add(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        sum.entry(name.clone()).and_modify(|own| *own = own.plus(amount)).or_insert(*amount);
    }
}

fn raise(highest: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let own = highest.entry(name.clone()).or_insert(*amount);
        if *amount > *own {
            *own = *amount;
        }
    }
}

/// `requests` or `limits` of one container.
pub fn of_container(container: &Value, field: &str) -> Amounts {
    amounts(container.pointer("/resources").and_then(|resources| resources.get(field)))
}

/// `requests` or `limits` of a Pod: of its containers together, or of the init container that asks for the most with
/// the sidecars that run beside it, whichever is more; what the Pod itself says wins
/// (KEP-753 for sidecars, KEP-2837 for Pods).
pub fn of_pod(pod: &Value, field: &str) -> Amounts {
    let mut running = Amounts::new();
    items(pod, "/spec/containers").for_each(|container| add(&mut running, &of_container(container, field)));
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for container in items(pod, "/spec/initContainers") {
        let mut own = of_container(container, field);
        if container["restartPolicy"] == "Always" {
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut starting, &own);
    }
    add(&mut running, &sidecars);
    raise(&mut running, &starting);
    running.extend(amounts(pod.pointer("/spec/resources").and_then(|resources| resources.get(field))));
    running
}

/// Formats amounts as `cpu=1,memory=1Gi`, by name.
pub fn list(amounts: &Amounts) -> String {
    let parts: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(",")
}
