//! Tables of built-in kinds as kube-apiserver prints them.
//!
//! `tables.gz` is made by `go run . tables objects.jsonl FILE` in `tests/content`: the time, then a line for each object
//! with its columns and cells.

use freehold_apiserver_catalog::TypeSet;
use freehold_machinery::{ResourceType, Value};
use freehold_machinery_table::{IncludeObject, Printer};
use serde_json::json;
use std::io::Read;

fn lines() -> (jiff::Timestamp, Vec<Value>) {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&include_bytes!("tables.gz")[..]).read_to_string(&mut text).expect("gzip");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let first = lines.next().expect("the time");
    (first["now"].as_str().expect("a time").parse().expect("a time"), lines.collect())
}

fn type_of<'a>(types: &'a TypeSet, object: &Value) -> Option<&'a ResourceType> {
    let (group, version) = {
        let text = object["apiVersion"].as_str()?;
        text.split_once('/').unwrap_or(("", text))
    };
    types.by_kind(group, version, object["kind"].as_str()?).map(|ty| &**ty)
}

#[test]
fn tables_of_built_in_kinds_are_kube_apiservers() {
    let (now, lines) = lines();
    let types = TypeSet::builtin();
    let mut seen = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for line in &lines {
        let object = &line["object"];
        let Some(ty) = type_of(&types, object) else { continue };
        seen.insert(ty.kind.clone());
        let printer = Printer::new(ty, None);
        let headers: Value = printer.headers().as_array().into_iter().flatten().map(header).collect();
        if headers != line["columns"] {
            wrong.push(format!("{} columns\n  ours   {headers}\n  theirs {}", ty.kind, line["columns"]));
            continue;
        }
        let row = printer.row(object.clone(), IncludeObject::None, now);
        for (index, (ours, theirs)) in pairs(&row["cells"], &line["cells"]).enumerate() {
            if ours != theirs && !is_of_what_cannot_be(object, theirs) {
                let (name, column) = (&object["metadata"]["name"], &headers[index]);
                wrong.push(format!("{} {name} {column}\n  ours   {ours}\n  theirs {theirs}", ty.kind));
            }
        }
        if row.get("conditions").unwrap_or(&Value::Null) != &line["conditions"] {
            wrong.push(format!("{} conditions: {} {}", ty.kind, row["conditions"], line["conditions"]));
        }
    }
    assert!(seen.len() > 50, "{seen:?}");
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

/// Cells of objects that can't be stored, because they break rules or have what only a write has.
fn is_of_what_cannot_be(object: &Value, theirs: &Value) -> bool {
    let selector = theirs == "<error>" || theirs == "<invalid>";
    let unnamed = object["metadata"]["name"].is_null();
    selector
        || unnamed && matches!(object["kind"].as_str(), Some("Deployment" | "HorizontalPodAutoscaler"))
        || { object["kind"] == "Secret" && object.get("stringData").is_some() }
}

fn header(column: &Value) -> Value {
    let text = |field: &str| column[field].as_str().unwrap_or_default();
    json!([text("name"), text("type"), text("format"), &column["priority"].to_string()].join("|"))
}

fn pairs<'a>(ours: &'a Value, theirs: &'a Value) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    let cells = |value: &'a Value| value.as_array().map_or(&[][..], Vec::as_slice);
    cells(ours).iter().zip(cells(theirs))
}
