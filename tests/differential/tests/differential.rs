//! A project plane answers as kube-apiserver did.

use freehold_tests_differential::{
    Answer, Difference, compare, meant, open, path, project_plane, run, scenarios, unexplained, write_open,
};
use std::collections::BTreeSet;

fn recorded(scenario: &str) -> Vec<Answer> {
    let file = path("recorded").join(format!("{scenario}.json"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn a_project_plane_answers_as_kube_apiserver_did() {
    let (_server, client) = project_plane();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let mut found: Vec<Difference> = Vec::new();
    let mut compared = 0;
    for scenario in scenarios().expect("scenarios that can be read") {
        let theirs = recorded(&scenario.name);
        let ours = runtime.block_on(run(&client, &scenario)).expect("a scenario that runs to its end");
        let names = |answers: &[Answer]| answers.iter().map(|a| a.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&theirs), names(&ours), "{}: record it again", scenario.name);
        compared += ours.len();
        found.extend(theirs.iter().zip(&ours).flat_map(|(a, b)| compare(&scenario.name, a, b)));
    }
    let meant = meant().expect("differences.yaml that can be read");
    let (unmeant, idle) = unexplained(&found, &meant).expect("regular expressions in differences.yaml");
    assert!(idle.is_empty(), "differences.yaml explains what is no difference: {idle:#?}");
    let now: BTreeSet<String> = unmeant.iter().map(|difference| difference.place()).collect();
    if std::env::var_os("FREEHOLD_DIFFERENTIAL_WRITE").is_some() {
        write_open(&now).expect("open.txt can be written");
    }
    let known = open().expect("open.txt that can be read");
    let fresh: Vec<String> =
        unmeant.iter().filter(|d| !known.contains(&d.place())).map(ToString::to_string).collect();
    assert!(fresh.is_empty(), "{} new differences:\n{}", fresh.len(), fresh.join("\n"));
    let closed: Vec<&String> = known.difference(&now).collect();
    assert!(closed.is_empty(), "these are closed, take them out of open.txt: {closed:#?}");
    println!(
        "{compared} answers: {} places differ on purpose, {} still to be closed",
        found.len() - now.len(),
        now.len()
    );
}
