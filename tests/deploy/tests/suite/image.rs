//! The image: made twice from one program.

use freehold_tests_deploy::{run, top};
use freehold_tests_harness::freehold_binary;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn make(folder: &Path) -> String {
    let mut command = Command::new(top().join("tools/image"));
    let (success, printed) = run(command.arg(freehold_binary()).arg(folder));
    assert!(success, "{printed}");
    let digest = printed.split_whitespace().find_map(|word| word.strip_prefix("digest="));
    digest.unwrap_or_else(|| panic!("no digest= in {printed:?}")).to_owned()
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The file with a digest's content.
fn blob(layout: &Path, of: &Value) -> std::path::PathBuf {
    let digest = of["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).expect("a digest");
    layout.join("blobs/sha256").join(digest)
}

#[test]
fn two_images_of_one_program_are_one_and_it_runs_in_them_alone() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    assert_eq!(make(&first), make(&second));
    for file in ["freehold.tar", "freehold.cdx.json"] {
        let [first, second] =
            [&first, &second].map(|folder| std::fs::read(folder.join(file)).expect("it was made"));
        assert!(first == second, "{file} differs");
    }
    let bill = json(&first.join("freehold.cdx.json"));
    let components = bill["components"].as_array().expect("components");
    let tokio = components.iter().find(|component| component["name"] == "tokio").expect("tokio is a part");
    assert_eq!(tokio["licenses"][0]["expression"], "MIT");
    assert!(tokio["hashes"][0]["content"].as_str().is_some_and(|sum| sum.len() == 64), "{tokio}");

    let layout = first.join("freehold");
    let manifest = json(&blob(&layout, &json(&layout.join("index.json"))["manifests"][0]));
    let config = json(&blob(&layout, &manifest["config"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    let root = folder.path().join("root");
    std::fs::create_dir(&root).expect("a new directory");
    let mut unpack = Command::new("tar");
    let (unpacked, printed) =
        run(unpack.arg("-xzf").arg(blob(&layout, &manifest["layers"][0])).arg("-C").arg(&root));
    assert!(unpacked, "{printed}");
    if !run(Command::new("unshare").args(["-r", "true"])).0 {
        eprintln!("left out: this machine gives no user namespaces to run the program in");
        return;
    }
    let program = config["config"]["Entrypoint"][0].as_str().expect("an entry point");
    let mut enter = Command::new("unshare");
    let (ran, printed) = run(enter.args(["-r", "chroot"]).arg(&root).args([program, "--version"]));
    assert!(ran && printed.starts_with("freehold "), "{printed}");
}
