//! Tables of objects of any shape, with the built-in kinds' columns and with those of a definition.

use super::{WORDS, objects};
use freehold_apiserver_catalog::{TypeSet, custom_types};
use freehold_machinery::{ResourceType, Value};
use freehold_machinery_table::{IncludeObject, ListMeta, Printer};
use freehold_tests_fuzz::Fuzz;
use serde_json::json;

fn render(ty: &ResourceType, object: &Value) -> String {
    let printer = Printer::new(ty, None);
    let now = "2026-06-01T00:00:00Z".parse::<jiff::Timestamp>().expect("a time");
    let rows = [IncludeObject::None, IncludeObject::Metadata, IncludeObject::Object]
        .map(|include| printer.row(object.clone(), include, now));
    let columns = printer.headers().as_array().map_or(0, Vec::len);
    for row in &rows {
        assert_eq!(row["cells"].as_array().map(Vec::len), Some(columns));
    }
    // What cells look like, and not what they say.
    let kinds = rows[0]["cells"].as_array().into_iter().flatten().map(|cell| match cell {
        Value::Null => "-",
        Value::Bool(_) => "b",
        Value::Number(_) => "n",
        Value::String(text) if text.is_empty() => "e",
        Value::String(text) if text.starts_with('<') => text,
        Value::String(_) => "s",
        Value::Array(_) | Value::Object(_) => "o",
    });
    let kinds: String = kinds.collect();
    let table = printer.table(rows.to_vec(), &ListMeta::default(), true);
    assert_eq!(table["kind"], "Table");
    format!("{} {kinds}", ty.kind)
}

#[test]
fn an_object_of_any_shape_is_a_row() {
    let types = TypeSet::builtin();
    Fuzz::new("tables", objects(), 3_000).words(WORDS).run(|object| {
        let (group, version) =
            object["apiVersion"].as_str().unwrap_or_default().rsplit_once('/').unwrap_or(("", "v1"));
        let kind = object["kind"].as_str().unwrap_or_default();
        types.by_kind(group, version, kind).map_or_else(|| "no type".to_owned(), |ty| render(ty, object))
    });
}

#[test]
fn columns_of_any_path_have_cells() {
    let definition = |paths: &Value| {
        let columns: Vec<Value> = paths
            .as_array()
            .into_iter()
            .flatten()
            .zip(["string", "integer", "number", "boolean", "date"].into_iter().cycle())
            .enumerate()
            .map(|(index, (path, kind))| json!({"name": format!("c{index}"), "type": kind, "jsonPath": path}))
            .collect();
        json!({"metadata": {"name": "widgets.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        }})
    };
    let paths =
        [".spec.a", ".spec.list[*].x", ".spec['b']", ".spec.list[?(@.x==1)].y", "..x", ".spec.list[-1:]"];
    let object = json!({"metadata": {"name": "a"}, "spec": {"a": 1, "b": true, "list": [{"x": 1, "y": "2026-01-02T03:04:05Z"}, {"x": 2}]}});
    Fuzz::new("columns", [json!([paths, object])], 2_000)
        .words(&[
            ".", "[*]", "[?(@.x", "==", "&&", ")]", "['a']", "[0:2]", "{", "}", "x", "spec", "list", "\\.",
            "[-1]",
        ])
        .run(|input| match custom_types(&definition(&input[0])) {
            Ok(types) => render(&types[0], &input[1]),
            Err(errors) => errors.iter().map(|error| error.to_string()).collect(),
        });
}
