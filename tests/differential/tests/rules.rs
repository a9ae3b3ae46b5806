//! The rules of built-in kinds are kube-apiserver's.

use freehold_tests_differential::{
    compare_outcomes, judge, kinds, load, open_rules, project_plane, write_open_rules,
};
use std::collections::{BTreeMap, BTreeSet};

/// Everything is tried with FREEHOLD_DIFFERENTIAL_WRITE and FREEHOLD_DIFFERENTIAL_ALL, one thing in so many else.
const SAMPLE: usize = 4;

/// What was tried, and what differs of it, as it is shown.
type Tried = (BTreeSet<String>, BTreeMap<String, String>);

/// Asks a new server everything.
fn ask(every: usize) -> Tried {
    let (_server, client) = project_plane();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
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
    (tried, differing)
}

/// What differs and is not known, and what is known and does not differ.
fn news(known: &BTreeSet<String>, (tried, differing): &Tried) -> BTreeMap<String, String> {
    let fresh = differing.iter().filter(|(request, _)| !known.contains(*request));
    let fresh = fresh.map(|(request, shown)| (request.clone(), shown.clone()));
    let closed = known.iter().filter(|request| tried.contains(*request) && !differing.contains_key(*request));
    fresh.chain(closed.map(|request| (request.clone(), format!("{request}: closed, take it out")))).collect()
}

#[test]
fn objects_that_are_wrong_are_refused_as_kube_apiserver_refuses_them() {
    let write = std::env::var_os("FREEHOLD_DIFFERENTIAL_WRITE").is_some();
    let all = write || std::env::var_os("FREEHOLD_DIFFERENTIAL_ALL").is_some();
    let every = if all { 1 } else { SAMPLE };
    let asked = ask(every);
    if write {
        write_open_rules(&asked.1.keys().cloned().collect()).expect("rules/open.txt can be written");
    }
    let known = open_rules().expect("rules/open.txt that can be read");
    let news_of_all = news(&known, &asked);
    let shown: Vec<&String> = news_of_all.values().collect();
    assert!(shown.is_empty(), "{} answers are not as rules/open.txt has them:\n{shown:#?}", shown.len());
    println!("{} answers, of which {} differ", asked.0.len(), asked.1.len());
}
