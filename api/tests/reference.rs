//! `docs/reference.md` follows the types.

use freehold_api::reference;
use std::{fs, path::Path};

/// `UPDATE=1 cargo test -p freehold-api` writes it anew.
#[test]
fn the_reference_page_is_current() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference.md");
    let page = reference();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&place, &page).expect("docs/reference.md can be written");
    }
    let there = fs::read_to_string(&place).unwrap_or_default();
    assert!(there == page, "docs/reference.md is old: UPDATE=1 cargo test -p freehold-api");
}
