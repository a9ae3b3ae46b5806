//! The paths that the router has beside resources, read from its code: each has to be among those that are tried.

use super::probes::PATHS;
use std::{collections::BTreeSet, fs, path::Path};

const ROUTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../apiserver/server/src");
/// How a route that is about a method begins in a pattern.
const PATTERN: &str = "(&Method::";

/// The code of all files below a folder.
fn code(folder: &Path, found: &mut String) {
    for entry in fs::read_dir(folder).expect("the router's folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            code(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&fs::read_to_string(&path).expect("a file of the router"));
        }
    }
}

/// The path of a pattern: its first segment, or all of a literal or constant.
fn path_of(pattern: &str, code: &str) -> Option<String> {
    if let Some(segments) = pattern.strip_prefix("[\"") {
        return Some(format!("/{}", segments.split('"').next()?));
    }
    if let Some(literal) = pattern.strip_prefix('"') {
        return Some(literal.split('"').next()?.to_owned());
    }
    let name: String = pattern.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
    let defined = code.split_once(&format!("const {name}: &str = \""))?.1;
    (!name.is_empty()).then(|| defined.split('"').next().unwrap_or_default().to_owned())
}

#[test]
fn each_path_of_the_router_is_tried() {
    let mut all = String::new();
    code(Path::new(ROUTER), &mut all);
    let mut routes = BTreeSet::new();
    for (at, _) in all.match_indices(PATTERN) {
        let rest = &all[at + PATTERN.len()..];
        let Some((method, pattern)) = rest.split_once(',') else { continue };
        routes.extend(path_of(pattern.trim_start(), &all).map(|path| (method.to_owned(), path)));
    }
    assert!(routes.len() >= 8, "patterns of the router are found no more: {routes:?}");
    for (method, path) in routes {
        let is_it = |(known, of, _): &(&str, http::Method, &str)| {
            of.as_str() == method
                && (*known == path || known.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/')))
        };
        assert!(PATHS.iter().any(is_it), "{method} {path} is in no row of PATHS (gates/probes.rs)");
    }
}
