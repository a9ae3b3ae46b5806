//! `docs/apis.md`: its commands work as they are printed.

use freehold_tests_integration::{World, facts, freehold_binary};
use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

facts!(world: the_commands_of_the_page_on_apis_work_as_they_are_printed);

fn the_commands_of_the_page_on_apis_work_as_they_are_printed(world: &World) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/apis.md")).expect("the page");
    let blocks: Vec<&str> = page.split("\n```\n").skip(1).step_by(2).collect();
    assert!(blocks.len() > 7, "commands were found");
    let script = blocks.join("\n").replace(" wait --for", " wait --timeout=120s --for");
    let folder = world.server().folder().join("apis-page");
    fs::create_dir_all(&folder).expect("the test's folder can be written");
    symlink(freehold_binary(), folder.join("freehold")).expect("a link to the program");
    symlink(top.join("examples"), folder.join("examples")).expect("a link to the examples");
    let admin = world.admin();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let run = Command::new("timeout")
        .args(["400", "bash", "-euxo", "pipefail", "-c", &script])
        .current_dir(&folder)
        .env("HOME", &folder)
        .env("PATH", path)
        .env("S", world.server().url())
        .env("KUBECONFIG", admin.kubeconfig())
        .output()
        .expect("bash can be run");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{}\n{out}\n{err}", run.status);
    for part in [
        "database.db.example.com/orders created",
        "get, list, watch, create, update, delete secrets labelled db.example.com/credentials=true",
        "database.db.example.com/orders patched",
        "secret/orders-credentials created",
    ] {
        assert!(out.contains(part), "{part} is missing in\n{out}");
    }
    assert!(err.contains("maximum was tightened to 5"), "{err}");
}
