//! JSON as values of CEL, by a schema.

use crate::value::{List, Map, Order, Owned};
use crate::{escape::escape, library};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelNull, CelString};
use freehold_machinery::{
    Value,
    schema::{Kind, ListType, Schema},
};
use std::sync::Arc;

/// The CEL value of JSON, as its schema sees it; without a schema, as it is.
pub(crate) fn convert(value: &Value, schema: Option<&Schema>) -> Owned {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(b) => Box::new(CelBool::from(*b)),
        Value::Number(n) => number(n, schema),
        Value::String(text) => string(text, schema),
        Value::Array(list) => {
            let items = schema.and_then(|s| s.items.as_deref());
            let order = match schema.map(|s| (s.list_type, &s.list_map_keys)) {
                Some((Some(ListType::Set), _)) => Order::Set,
                Some((Some(ListType::Map), keys)) => Order::Map(keys.iter().map(|k| k.to_string()).collect()),
                _ => Order::List,
            };
            Box::new(List { items: list.iter().map(|i| convert(i, items)).collect(), order: Arc::new(order) })
        }
        Value::Object(map) => Box::new(object(map, schema)),
    }
}

fn number(number: &serde_json::Number, schema: Option<&Schema>) -> Owned {
    let kind = schema.and_then(|s| s.kind);
    let float = number.as_f64().unwrap_or(f64::NAN);
    match number.as_i64() {
        Some(int) if kind != Some(Kind::Number) => Box::new(CelInt::from(int)),
        None if kind == Some(Kind::Integer) && float.fract() == 0.0 && float.abs() < 9.2e18 => {
            Box::new(CelInt::from(float as i64))
        }
        _ => Box::new(CelDouble::from(float)),
    }
}

fn string(text: &str, schema: Option<&Schema>) -> Owned {
    let plain = || -> Owned { Box::new(CelString::from(text.to_owned())) };
    let format = schema.filter(|s| s.kind == Some(Kind::String)).and_then(|s| s.format.as_deref());
    if let Some("byte") = format {
        let decoded = STANDARD.decode(text).map(|bytes| -> Owned { Box::new(CelBytes::from(bytes)) });
        return decoded.unwrap_or_else(|_| plain());
    }
    let (function, text) = match format {
        Some("date-time" | "datetime") => ("timestamp", text.to_owned()),
        Some("date") => ("timestamp", format!("{text}T00:00:00Z")),
        Some("duration") => ("duration", text.to_owned()),
        _ => return plain(),
    };
    library::call(function, Box::new(CelString::from(text))).unwrap_or_else(plain)
}

fn object(map: &freehold_machinery::Map, schema: Option<&Schema>) -> Map {
    let mut fields: Vec<(CelString<'static>, Owned)> = Vec::with_capacity(map.len());
    for (name, value) in map {
        let property = schema.and_then(|s| s.properties.get(name.as_str()));
        let is_map = schema.is_none_or(|s| s.additional.is_some() && property.is_none());
        // A field that is null is not there.
        if value.is_null() && schema.is_some_and(|s| !s.properties.is_empty()) {
            continue;
        }
        let child = property.or_else(|| schema.and_then(|s| s.additional.as_ref())).map(|s| &**s);
        let key = match is_map {
            true => name.clone(),
            false => match escape(name) {
                Some(key) => key.into_owned(),
                None => continue,
            },
        };
        fields.push((CelString::from(key), convert(value, child)));
    }
    fields.sort_by(|a, b| a.0.inner().cmp(b.0.inner()));
    Map { fields: Arc::new(fields), size: map.len() }
}
