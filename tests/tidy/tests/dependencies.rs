//! What comes from registries: licences and bans of `deny.toml`, checked here so that nothing has to be installed.
//! `cargo deny`, where it is there, checks advisories too.

use freehold_tests_tidy::licence::{is_allowed, toml_list};
use freehold_tests_tidy::workspace::{dependencies, top};

fn deny() -> String {
    std::fs::read_to_string(top().join("deny.toml")).expect("deny.toml")
}

#[test]
fn every_licence_is_allowed() {
    let allowed = toml_list(&deny(), "allow");
    assert!(allowed.len() > 3, "deny.toml lists licences one a line: {allowed:?}");
    let all = dependencies();
    assert!(all.len() > 50, "cargo tree was read: {all:?}");
    let strange: Vec<_> = all.iter().filter(|[_, _, licence]| !is_allowed(licence, &allowed)).collect();
    assert!(strange.is_empty(), "licences that deny.toml does not allow: {strange:#?}");
}

#[test]
fn no_banned_crate_is_used() {
    let banned = toml_list(&deny(), "deny");
    assert!(!banned.is_empty(), "deny.toml lists bans one a line");
    let all = dependencies();
    let found: Vec<_> = all.iter().filter(|[name, _, _]| banned.contains(name)).collect();
    assert!(found.is_empty(), "banned by deny.toml: {found:?}");
}
