//! The rules of built-in kinds are kube-apiserver's.

use freehold_tests_differential::{
    compare_outcomes, judge, kinds, load, open_rules, project_plane, write_open_rules,
};
use std::collections::{BTreeMap, BTreeSet};

/// Everything is tried with FREEHOLD_DIFFERENTIAL_WRITE and FREEHOLD_DIFFERENTIAL_ALL, one thing in so many else.
const SAMPLE: usize = 4;

#[test]
fn objects_that_are_wrong_are_refused_as_kube_apiserver_refuses_them() {
    let (_server, client) = project_plane();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let write = std::env::var_os("FREEHOLD_DIFFERENTIAL_WRITE").is_some();
    let all = write || std::env::var_os("FREEHOLD_DIFFERENTIAL_ALL").is_some();
    let every = if all { 1 } else { SAMPLE };
    let (mut tried, mut differing) = (BTreeSet::new(), BTreeMap::new());
    for (file, kinds) in kinds().expect("kinds that can be read") {
        let recorded = load(&file).expect("recorded outcomes");
        for kind in kinds {
            let theirs = recorded.get(&kind.name).unwrap_or_else(|| panic!("{}: record it", kind.name));
            let ours = runtime.block_on(judge(&client, &kind, every)).expect("requests that are answered");
            for ours in &ours {
                let theirs = theirs.get(ours.at).unwrap_or_else(|| panic!("{}: record it again", kind.name));
                let found = compare_outcomes(&kind.name, theirs, ours);
                let request = format!("{} {}", kind.name, ours.name);
                if !found.is_empty() {
                    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
                    differing.insert(request.clone(), shown.join("\n"));
                }
                tried.insert(request);
            }
        }
    }
    let now: BTreeSet<String> = differing.keys().cloned().collect();
    if write {
        write_open_rules(&now).expect("rules/open.txt can be written");
    }
    let known = open_rules().expect("rules/open.txt that can be read");
    let fresh: Vec<&String> =
        differing.iter().filter(|(request, _)| !known.contains(*request)).map(|(_, shown)| shown).collect();
    assert!(fresh.is_empty(), "{} answers differ anew:\n{fresh:#?}", fresh.len());
    let closed: Vec<&String> = known.difference(&now).filter(|request| tried.contains(*request)).collect();
    assert!(closed.is_empty(), "these are closed, take them out of rules/open.txt: {closed:#?}");
    println!("{} answers, of which {} differ", tried.len(), now.len());
}
