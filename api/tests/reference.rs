//! `docs/reference.md` and `examples/` follow the types.

use freehold_api::{core_crds, reference};
use freehold_machinery::Value;
use std::{collections::BTreeSet, fs, path::Path};

fn top() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// `UPDATE=1 cargo test -p freehold-api` writes it anew.
#[test]
fn the_reference_page_is_current() {
    let place = top().join("docs/reference.md");
    let page = reference();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&place, &page).expect("docs/reference.md can be written");
    }
    let there = fs::read_to_string(&place).unwrap_or_default();
    assert!(there == page, "docs/reference.md is old: UPDATE=1 cargo test -p freehold-api");
}

#[test]
fn the_reference_page_has_every_kind_of_the_core_plane() {
    let page = reference();
    let kinds: BTreeSet<String> = core_crds().iter().map(|crd| text(&crd["spec"]["names"]["kind"])).collect();
    assert!(kinds.len() >= 4, "{kinds:?}");
    for kind in kinds {
        assert!(page.contains(&format!("\n## {kind}\n")), "{kind} is missing");
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
