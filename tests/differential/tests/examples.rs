//! The objects that projects publish as examples of their custom resources are admitted or refused as kube-apiserver does.

use freehold_tests_differential::{examples, path};
use freehold_tests_harness::{Engine, Server};
use std::collections::BTreeMap;

#[test]
fn published_examples_are_admitted_as_kube_apiserver_admits_them() {
    let recorded = std::fs::read_to_string(path("examples.json")).expect("recorded verdicts");
    let theirs: BTreeMap<String, examples::Verdict> = serde_json::from_str(&recorded).expect("verdicts");
    let published = examples::Published::load().expect("examples.gz that can be read");
    let server = Server::start(Engine::Embedded);
    let kubectl = server.kubectl();
    kubectl.apply(
        "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: examples}
spec: {ownerRef: {kind: Organization, name: acme}}
",
    );
    let client = Server::client_of(&server.project("examples"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let ours = runtime.block_on(examples::run(&client, &published)).expect("examples that can be sent");
    let differ: Vec<String> = theirs
        .iter()
        .filter(|(name, verdict)| ours.get(*name) != Some(verdict))
        .map(|(name, verdict)| {
            format!("{name}\n  kube-apiserver: {verdict:?}\n  here:           {:?}", ours.get(name))
        })
        .collect();
    assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), theirs.len(), differ.join("\n"));
    assert_eq!(theirs.len(), ours.len(), "other examples: record them again");
    println!("{} examples, {} refused", ours.len(), ours.values().filter(|v| v.status >= 400).count());
}
