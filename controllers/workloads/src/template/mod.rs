//! The hash of a pod template, as Kubernetes' controllers compute it.
//!
//! It is that of what Go prints of the template's struct, so it depends on the structs' fields: their names and types are in
//! `structs.json`, which `tools/kubernetes/templates` writes. The same template has the same hash here and there, so that
//! ReplicaSets keep their pods whichever controller manager looks after them.

mod quantity;

use freehold_controllers_context::revisions::spell;
use freehold_machinery::Value;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::LazyLock;

/// What a struct has: name, name in JSON (empty for what stands in the struct itself), type and kind of each field.
type Fields = Vec<[Box<str>; 4]>;

static STRUCTS: LazyLock<HashMap<Box<str>, Fields>> =
    LazyLock::new(|| serde_json::from_str(include_str!("structs.json")).expect("a table that is built in"));

/// A time that was never set; templates have no other.
const NO_TIME: &str = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}";

/// The hash of a template. `collisions` gives another one.
pub(crate) fn hash(template: &Value, collisions: Option<i64>) -> String {
    let mut sum = Fnv(0x811c_9dc5);
    // Writing to a hash can't fail.
    let _ =
        write!(sum, "(v1.PodTemplateSpec)").and_then(|()| print(&mut sum, "v1.PodTemplateSpec", template));
    if let Some(collisions) = collisions {
        let count = u32::try_from(collisions).unwrap_or(0).to_le_bytes();
        sum.add(&count);
        sum.add(&[0; 4]);
    }
    spell(sum.0)
}

/// FNV-1a of 32 bits.
struct Fnv(u32);

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    }
}

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// Prints a value of a kind without its type.
fn print(out: &mut impl Write, kind: &str, value: &Value) -> fmt::Result {
    if let Some(inner) = kind.strip_prefix('*') {
        return if value.is_null() { out.write_str("<nil>") } else { print(out, inner, value) };
    }
    if let Some(inner) = kind.strip_prefix("[]") {
        return print_list(out, inner, value);
    }
    if let Some(inner) = kind.strip_prefix("map:") {
        return print_map(out, inner, value);
    }
    match kind {
        "string" => out.write_str(value.as_str().unwrap_or("")),
        "bool" => write!(out, "{}", value.as_bool().unwrap_or(false)),
        "v1.Time" => out.write_str(NO_TIME),
        "resource.Quantity" => quantity::print(out, value),
        "intstr.IntOrString" => print_int_or_string(out, value),
        _ => match STRUCTS.get(kind) {
            Some(fields) => print_struct(out, fields, value),
            None => write!(out, "{}", value.as_i64().unwrap_or(0)),
        },
    }
}

fn print_struct(out: &mut impl Write, fields: &Fields, value: &Value) -> fmt::Result {
    out.write_char('{')?;
    for (at, [name, json, type_, kind]) in fields.iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        write!(out, "{space}{name}:({type_})")?;
        print(out, kind, if json.is_empty() { value } else { &value[&**json] })?;
    }
    out.write_char('}')
}

fn print_list(out: &mut impl Write, kind: &str, value: &Value) -> fmt::Result {
    let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
        return out.write_str("<nil>");
    };
    out.write_char('[')?;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.write_char(' ')?;
        }
        print(out, kind, item)?;
    }
    out.write_char(']')
}

fn print_map(out: &mut impl Write, kind: &str, value: &Value) -> fmt::Result {
    let Some(entries) = value.as_object().filter(|entries| !entries.is_empty()) else {
        return out.write_str("<nil>");
    };
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    out.write_str("map[")?;
    for (at, (key, item)) in entries.into_iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        write!(out, "{space}{key}:")?;
        print(out, kind, item)?;
    }
    out.write_char(']')
}

fn print_int_or_string(out: &mut impl Write, value: &Value) -> fmt::Result {
    let (kind, number, text) = match value {
        Value::String(text) => (1, 0, text.as_str()),
        other => (0, other.as_i64().unwrap_or(0), ""),
    };
    write!(out, "{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `tools/kubernetes/templates hashes` prints of `templates.jsonl`.
    const HASHES: &[(&str, &str)] = &[
        ("85748b7f68", "b54bc767c"),
        ("5d9984f6f8", "598957d475"),
        ("7dcd5d555f", "76cf847c54"),
        ("5b48968cf", "6f5bb588b6"),
    ];

    #[test]
    fn hashes_are_those_of_kubernetes() {
        let templates: Vec<Value> =
            include_str!("templates.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ours: Vec<(String, String)> =
            templates.iter().map(|template| (hash(template, None), hash(template, Some(1)))).collect();
        let expected: Vec<(String, String)> =
            HASHES.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(ours, expected);
    }
}
