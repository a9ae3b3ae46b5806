//! The kustomize base: the chart's objects with its default values.

use freehold_tests_deploy::{RELEASE, parse, render, render_text, run, top};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn base() -> PathBuf {
    top().join("deploy/kustomize/base")
}

/// Removes the labels that say that Helm made an object: lines of their own in every template.
fn without_helm(text: &str) -> String {
    let helms = |line: &str| {
        let line = line.trim_start();
        line.starts_with("helm.sh/chart:") || line.starts_with("app.kubernetes.io/managed-by:")
    };
    text.lines().filter(|line| !helms(line)).map(|line| format!("{line}\n")).collect()
}

/// Writes the rendered templates, a file for each.
fn update(rendered: &str) {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for document in rendered.split("---\n").filter(|document| !document.trim().is_empty()) {
        let (source, content) = document.split_once('\n').expect("a document has lines");
        let name = source.rsplit('/').next().expect("a name").to_owned();
        let file = files.entry(name).or_default();
        if !file.is_empty() {
            file.push_str("---\n");
        }
        file.push_str(content);
    }
    fs::create_dir_all(base()).expect("deploy/kustomize can be written");
    let mut kustomization = "# Made from the chart: UPDATE=1 cargo test -p freehold-tests-deploy\n\
        apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: freehold-system\nresources:\n"
        .to_owned();
    for (name, content) in &files {
        kustomization.push_str(&format!("  - {name}\n"));
        fs::write(base().join(name), content).expect("deploy/kustomize can be written");
    }
    fs::write(base().join("kustomization.yaml"), kustomization).expect("deploy/kustomize can be written");
}

fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    objects.into_iter().map(|object| (name(&object), object)).collect()
}

/// `UPDATE=1 cargo test -p freehold-tests-deploy` writes the base anew.
#[test]
fn the_base_has_the_objects_of_the_chart() {
    let rendered = without_helm(&render_text(RELEASE, &["--no-hooks"]));
    if std::env::var_os("UPDATE").is_some() {
        update(&rendered);
    }
    let (success, built) = run(Command::new("kubectl").arg("kustomize").arg(base()));
    assert!(success, "{built}");
    let (base, chart) = (by_name(parse(&built)), by_name(parse(&rendered)));
    assert_eq!(base.keys().collect::<Vec<_>>(), chart.keys().collect::<Vec<_>>());
    for (name, object) in chart {
        assert!(base[&name] == object, "{name} is old: UPDATE=1 cargo test -p freehold-tests-deploy");
    }
}

#[test]
fn a_release_of_another_name_shares_no_object_with_this_one() {
    let other: Vec<Value> = render("other", &[]);
    let names = |objects: Vec<Value>| by_name(objects).into_keys().collect::<std::collections::BTreeSet<_>>();
    let (own, other) = (names(render(RELEASE, &[])), names(other));
    let common: Vec<&String> = own.intersection(&other).collect();
    assert!(common.is_empty(), "{RELEASE} and another release share {common:?}");
}
