//! Fields of objects, read leniently: what is absent or of another type is empty.

use freehold_machinery::Value;
use freehold_machinery::quantity::Quantity;
use freehold_machinery::selector::Labels;
use std::collections::BTreeMap;

/// Labels of an object, by key.
pub type LabelMap = BTreeMap<Box<str>, Box<str>>;

/// Amounts of resources, CPU in thousandths and everything else in whole units.
pub type Amounts = BTreeMap<Box<str>, i64>;

/// The elements of a list in an object.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A string in an object.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A map of strings in an object.
pub(crate) fn strings(object: &Value, pointer: &str) -> LabelMap {
    let map = object.pointer(pointer).and_then(Value::as_object);
    let entry = |(key, value): (&String, &Value)| Some((key.as_str().into(), value.as_str()?.into()));
    map.into_iter().flatten().filter_map(entry).collect()
}

/// A list of strings in an object.
pub(crate) fn list(object: &Value, pointer: &str) -> Vec<Box<str>> {
    items(object, pointer).iter().filter_map(Value::as_str).map(Into::into).collect()
}

/// A map of quantities in an object.
pub(crate) fn amounts(object: &Value, pointer: &str) -> Amounts {
    let map = object.pointer(pointer).and_then(Value::as_object);
    let entry = |(name, value): (&String, &Value)| {
        let quantity: Quantity = match value {
            Value::String(text) => text.parse().ok()?,
            Value::Number(number) => number.to_string().parse().ok()?,
            _ => return None,
        };
        let amount = if name == "cpu" { quantity.milli() } else { quantity.units() };
        Some((name.as_str().into(), amount))
    };
    map.into_iter().flatten().filter_map(entry).collect()
}

/// A label selector; `None` where it is absent or can't be read, and selects nothing.
pub(crate) fn selector(object: &Value, pointer: &str) -> Option<Labels> {
    let value = object.pointer(pointer).filter(|value| !value.is_null())?;
    Labels::from_value(value).ok()
}

/// Whether a selector selects something with these labels.
pub(crate) fn selects(selector: Option<&Labels>, labels: &LabelMap) -> bool {
    selector.is_some_and(|selector| selector.matches(|key| labels.get(key).map(|value| &**value)))
}

/// Adds amounts to others.
pub(crate) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Raises amounts to others where these are larger.
pub(crate) fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let own = to.entry(name.clone()).or_default();
        *own = (*own).max(*amount);
    }
}
