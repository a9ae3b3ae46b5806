//! The chart's values, their documentation and their schema.

use freehold_tests_deploy::{chart, helm, run, values, values_files};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const BEGIN: &str = "<!-- values -->\n";
const END: &str = "<!-- /values -->\n";

fn rows() -> Vec<values::Row> {
    values::rows(&fs::read_to_string(chart().join("values.yaml")).expect("values.yaml is there"))
}

/// `UPDATE=1 cargo test -p freehold-tests-deploy` writes it anew.
#[test]
fn the_table_of_values_is_current() {
    let silent: Vec<String> =
        rows().into_iter().filter(|row| row.comment.is_empty()).map(|row| row.name).collect();
    assert!(silent.is_empty(), "values without a comment: {silent:?}");
    let place = chart().join("README.md");
    let page = fs::read_to_string(&place).expect("README.md is there");
    let (before, rest) = page.split_once(BEGIN).expect("README.md has the mark before the table");
    let (_, after) = rest.split_once(END).expect("README.md has the mark behind the table");
    let current = format!("{before}{BEGIN}{}{END}{after}", values::table(&rows()));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&place, &current).expect("README.md can be written");
    }
    let page = fs::read_to_string(&place).expect("README.md is there");
    assert!(page == current, "README.md is old: UPDATE=1 cargo test -p freehold-tests-deploy");
}

fn leaves(schema: &Value, path: &str, into: &mut BTreeSet<String>) {
    match schema["properties"].as_object() {
        None => drop(into.insert(path.to_owned())),
        Some(properties) => {
            assert_eq!(schema["additionalProperties"], false, "{path:?} takes misspelled values");
            for (name, schema) in properties {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(schema, &path, into);
            }
        }
    }
}

#[test]
fn every_value_is_in_the_schema() {
    let schema = fs::read_to_string(chart().join("values.schema.json")).expect("values.schema.json is there");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let mut described = BTreeSet::new();
    leaves(&schema, "", &mut described);
    // Helm's own, for charts that have this one as a part.
    described.remove("global");
    let there: BTreeSet<String> = rows().into_iter().map(|row| row.name).collect();
    assert_eq!(described, there);
}

#[test]
fn misspelled_and_senseless_values_are_refused() {
    let chart = chart().display().to_string();
    for (set, why) in [
        ("gatway.enabled=true", "'gatway' not allowed"),
        ("apiserver.replicas=0", "apiserver/replicas"),
        ("etcd.server.replicas=2", "etcd/server/replicas"),
        ("externalUrl=http://a", "externalUrl"),
        ("gateway.enabled=true", "gateway/parentRefs"),
        ("ingress.enabled=true", "externalUrl is needed"),
        ("etcd.user=freehold", "etcd.user needs etcd.passwordSecret"),
        ("console.enabled=true", "console.url is the URL"),
        ("syncer.enabled=true", "syncer.enabled needs syncer.clusterIP"),
        ("scheduler.name=A b", "scheduler/name"),
    ] {
        let (success, printed) = run(&mut helm(&["template", "freehold", &chart, "--set", set]));
        assert!(!success && printed.contains(why), "{set}:\n{printed}");
    }
}

#[test]
fn helm_finds_nothing_to_complain_of() {
    for values in values_files() {
        let (chart, values) = (chart().display().to_string(), values.display().to_string());
        let (success, printed) = run(&mut helm(&["lint", "--strict", &chart, "--values", &values]));
        assert!(success && !printed.contains("[WARNING]"), "{printed}");
    }
}
