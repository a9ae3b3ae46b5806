//! The reference page of the kinds, in Markdown, from their CRDs.

use crate::crd::{api_crds, core_crds, infra_crds};
use freehold_machinery::Value;
use std::fmt::Write as _;

/// A Markdown page with one section for each kind and one table row for each field.
pub fn reference() -> String {
    let mut page = String::from("# API reference\n\nMade from the types in `api/`.\n");
    for (plane, crds) in
        [("core", core_crds()), ("core and every project's", api_crds()), ("infra", infra_crds())]
    {
        for crd in crds {
            kind(&mut page, plane, &crd);
        }
    }
    page
}

fn kind(page: &mut String, plane: &str, crd: &Value) {
    let spec = &crd["spec"];
    let version = &spec["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // Writing to a String can't fail.
    let _ = writeln!(
        page,
        "\n## {}\n\n`{}/{}`, {}, served by the {plane} plane. {}\n\n| field | type | |\n| --- | --- | --- |",
        text(&spec["names"]["kind"]),
        text(&spec["group"]),
        text(&version["name"]),
        if spec["scope"] == "Cluster" { "cluster-scoped" } else { "namespaced" },
        text(&schema["description"]),
    );
    for part in ["spec", "status"] {
        fields(page, part, &schema["properties"][part]);
    }
}

fn fields(page: &mut String, path: &str, schema: &Value) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let _ = writeln!(
            page,
            "| `{path}` | {} | {} |",
            type_name(field),
            remarks(field, required.contains(&name.as_str()))
        );
        fields(page, &path, field);
        if let Some(items) = field.get("items") {
            fields(page, &format!("{path}[]"), items);
        }
    }
}

fn type_name(field: &Value) -> String {
    let name = field["type"].as_str().unwrap_or("any");
    match field.get("items") {
        Some(items) => format!("{name} of {}", type_name(items)),
        None => name.to_owned(),
    }
}

fn remarks(field: &Value, required: bool) -> String {
    let mut parts = vec![field["description"].as_str().unwrap_or_default().replace('\n', " ")];
    if let Some(allowed) = field["enum"].as_array() {
        let allowed: Vec<String> =
            allowed.iter().map(|v| format!("`{}`", v.as_str().unwrap_or_default())).collect();
        parts.push(format!("One of {}.", allowed.join(", ")));
    }
    match field.get("default") {
        Some(default) if !default.is_object() => parts.push(format!("Default: `{default}`.")),
        _ => {}
    }
    if required {
        parts.push("Required.".to_owned());
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_names_every_kind_and_its_fields() {
        let page = super::reference();
        for part in
            ["## Organization\n", "## Project\n", "## ProjectControlPlane\n", "`spec.controlPlane.mode`"]
        {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
    }
}
