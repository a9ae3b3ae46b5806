//! The program as it is shipped: stripped, with what debuggers read beside it, and as a plugin of kubectl.

use freehold_tests_deploy::{parse, run, top};
use freehold_tests_harness::freehold_binary;
use std::{env, fs, path::Path, process::Command};

/// A program that panics in a function of its own.
const PANICS: &str = "#[inline(never)] fn deep_inside(n: usize) { let v: Vec<u8> = vec![]; println!(\"{}\", v[n]); }\n\
    fn main() { deep_inside(3) }\n";

fn ok(command: &mut Command) -> String {
    let (success, printed) = run(command);
    assert!(success, "{command:?}:\n{printed}");
    printed
}

fn backtrace(program: &Path) -> String {
    run(Command::new(program).env("RUST_BACKTRACE", "1")).1
}

#[test]
fn stripped_program_names_functions_while_its_debug_file_is_beside_it() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (source, program) = (folder.path().join("panics.rs"), folder.path().join("panics"));
    fs::write(&source, PANICS).expect("the folder can be written");
    let flags = ["-O", "-C", "debuginfo=line-tables-only", "-o"];
    ok(Command::new("rustc").args(flags).arg(&program).arg(&source));
    let size = |path: &Path| fs::metadata(path).expect("it is there").len();
    let before = size(&program);
    ok(Command::new(top().join("tools/strip")).arg(&program));
    assert!(size(&program) < before / 4, "{} of {before}", size(&program));
    let told = backtrace(&program);
    assert!(told.contains("deep_inside") && told.contains("panics.rs:1"), "{told}");
    fs::remove_file(folder.path().join("panics.debug")).expect("it was made");
    let told = backtrace(&program);
    assert!(told.contains("panicked at") && !told.contains("deep_inside"), "{told}");
}

#[test]
fn kubectl_runs_what_krew_installs() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let url = "https://example.com/releases";
    ok(Command::new(top().join("tools/krew")).arg(freehold_binary()).arg(folder.path()).arg(url));
    let manifest = fs::read_to_string(folder.path().join("freehold.yaml")).expect("it was made");
    let plugin = parse(&manifest).remove(0);
    let platform = &plugin["spec"]["platforms"][0];
    let archive = platform["uri"].as_str().and_then(|uri| uri.strip_prefix(url)).expect("below the URL");
    let archive = folder.path().join(archive.trim_start_matches('/'));
    let sum = ok(Command::new("sha256sum").arg(&archive));
    assert_eq!(sum.split_whitespace().next(), platform["sha256"].as_str());
    assert!(
        plugin["spec"]["shortDescription"].as_str().is_some_and(|text| text.len() <= 50),
        "as krew has it"
    );
    ok(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()));
    for file in platform["files"].as_array().expect("files") {
        assert!(folder.path().join(file["from"].as_str().expect("a name")).is_file(), "{file}");
    }
    let path = format!("{}:{}", folder.path().display(), env::var("PATH").unwrap_or_default());
    let kubectl = |args: &[&str]| ok(Command::new("kubectl").arg("freehold").args(args).env("PATH", &path));
    assert!(kubectl(&["version", "--client"]).starts_with("Client Version: v"));
    let help = kubectl(&["use", "--help"]);
    assert!(help.contains("Usage: kubectl freehold use"), "{help}");
}
