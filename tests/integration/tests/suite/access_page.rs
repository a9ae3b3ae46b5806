//! The page for owners of an organization: its commands work as they are printed.

use crate::access::member;
use crate::{PATIENCE, contains_all};
use freehold_tests_integration::{World, facts, freehold_binary, until};
use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

facts!(world: the_commands_of_the_page_on_access_work_as_they_are_printed);

fn the_commands_of_the_page_on_access_work_as_they_are_printed(world: &World) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/access.md");
    let page = fs::read_to_string(page).expect("the page");
    let blocks: Vec<&str> = page.split("\n```\n").skip(1).step_by(2).collect();
    assert!(blocks.len() > 5, "commands were found");
    // The page's names are those of examples; the tests share a server.
    let script = blocks
        .join("\n")
        .replace("acme", "pages")
        .replace("web", "pages-web")
        .replace("--kubeconfig ann.", "--kubeconfig page-ann.");
    let script = script.replace("{name: ann}", "{name: page-ann}").replace("/users/ann", "/users/page-ann");
    let script = script
        .replace("userinvitation ann", "userinvitation page-ann")
        .replace("organizationmembership ann", "organizationmembership page-ann")
        // What is waited for has as long as a busy machine needs.
        .replace(" wait --for", " wait --timeout=120s --for");
    world.organization("pages", &["pages-web"]);
    world.admin().apply(&member("pages", "page-owner", "owner"));
    let owner = world.person("page-owner", "/organizations/pages");
    until("the owner is one", PATIENCE, || owner.run(&["get", "projects"]).success.then_some(()));
    let folder = world.server().folder().join("page");
    fs::create_dir_all(&folder).expect("the test's folder can be written");
    symlink(freehold_binary(), folder.join("freehold")).expect("a link to the program");
    for (user, file) in [("page-owner", "owner.kubeconfig"), ("page-ann", "page-ann.kubeconfig")] {
        let kubectl = world.server().person(user);
        fs::copy(kubectl.kubeconfig(), folder.join(file)).expect("a kubeconfig");
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let run = Command::new("timeout")
        .args(["400", "bash", "-euxo", "pipefail", "-c", &script])
        .current_dir(&folder)
        .env("HOME", &folder)
        .env("PATH", path)
        .env("S", world.server().url())
        .env("KUBECONFIG", folder.join("owner.kubeconfig"))
        .output()
        .expect("bash can be run");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{}\n{out}\n{err}", run.status);
    contains_all(
        &out,
        &[
            "deployment.apps/app created",
            "PolicyBinding \"organization-pages/releases-deploy-pages-web\"",
            "the role excludes core/secrets.get",
            "project.resourcemanager.freehold.dev/pages-web patched",
        ],
    );
    let token = fs::read_to_string(folder.join("ci.token")).expect("the token");
    assert!(token.starts_with("fhsa_"), "{token}");
}
