//! The walk-through of docs/extending.md, as it is printed there.

use crate::contains_all;
use freehold_tests_integration::{Engine, Options, Server, facts, free_port, freehold_binary};
use std::{
    fmt::Write as _,
    fs,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

facts!(engine: the_commands_of_the_page_on_extending_work_as_they_are_printed);

/// What a comment begins with that says how a command fails.
const REFUSED: &str = " # refused: ";
/// What is about another cluster, which is not here.
const ELSEWHERE: &str = "As a part of another cluster";

fn the_commands_of_the_page_on_extending_work_as_they_are_printed(engine: Engine) {
    let args = ["--outbound-networks", "127.0.0.0/8"].map(str::to_owned).into();
    let server = Server::start(Options { engine, args, ..Options::default() });
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = server.folder().join("clone");
    fs::create_dir_all(folder.join("target/release")).expect("the test's folder can be written");
    let links = [
        (freehold_binary(), "target/release/freehold"),
        (top.join("tools"), "tools"),
        (top.join(".tools"), ".tools"),
        (server.data_dir(), "data"),
    ];
    for (to, name) in links {
        symlink(to, folder.join(name)).expect("a link can be made");
    }
    let place = Place::new();
    fs::create_dir(folder.join("examples")).expect("the test's folder can be written");
    for name in ["first-project.yaml", "webhook.py"] {
        let text = fs::read_to_string(top.join("examples").join(name)).expect("an example");
        fs::write(folder.join("examples").join(name), place.moved(&text))
            .expect("the test's folder can be written");
    }
    let page = fs::read_to_string(top.join("docs/extending.md")).expect("the page");
    let run = Command::new("timeout")
        .args(["400", "bash", "-euxo", "pipefail", "-c", &place.moved(&script(&page))])
        .current_dir(&folder)
        .env("HOME", &folder)
        .env_remove("KUBECONFIG")
        .output()
        .expect("bash can be run");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let log = fs::read_to_string(folder.join("extension/log")).unwrap_or_default();
    assert!(run.status.success(), "{}\n{out}\n{err}\n{log}", run.status);
    contains_all(
        &out,
        &[
            "customresourcedefinition.apiextensions.k8s.io/backups.shop.example.com condition met",
            "apiservice.apiregistration.k8s.io/v1alpha1.wardle.example.com condition met",
            "configmap/nobodys created",
            "configmap/janes",
            "door.example.com 80",
        ],
    );
}

/// The page's commands. A command whose comment tells a refusal has to fail, saying that; YAML goes into the file that is
/// named before it. What is started beside it ends with the script.
fn script(page: &str) -> String {
    let mut script = String::from("trap 'kill $(jobs -p)' EXIT\n");
    let parts = page.split("\n## ").filter(|part| !part.starts_with(ELSEWHERE));
    for part in parts {
        let mut pieces = part.split("\n```");
        let mut text = pieces.next().unwrap_or_default();
        while let Some(block) = pieces.next() {
            block_of(&mut script, text, block);
            text = pieces.next().unwrap_or_default();
        }
    }
    assert!(script.lines().count() > 150, "commands were found:\n{script}");
    script
}

/// Adds a block, of which the first line says what it is written in.
fn block_of(script: &mut String, text: &str, block: &str) {
    let (language, lines) = block.split_once('\n').unwrap_or((block, ""));
    let file = text.rsplit_once("Put this into `").and_then(|(_, rest)| rest.split_once("`:\n"));
    // Writing to a String can't fail.
    let _ = match (language, file) {
        ("yaml", Some((file, rest))) if rest.trim().is_empty() => {
            writeln!(script, "cat > {file} <<'END'\n{lines}\nEND")
        }
        ("", _) if !lines.starts_with("make ") => {
            lines.lines().try_for_each(|line| match line.split_once(REFUSED) {
                Some((command, why)) => writeln!(
                    script,
                    "if {command} 2>failure; then exit 9; fi; grep -F '{}' failure",
                    why.replace('\'', r"'\''")
                ),
                None => writeln!(script, "{line}"),
            })
        }
        _ => Ok(()),
    };
}

/// Where the walk-through's servers are in a test: at an address of its own in place of the machine's, and for the one that
/// listens on all addresses at a free port, so that nothing else is in their way.
struct Place {
    address: String,
    port: String,
}

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (id, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let byte = |number: u32| (1 + number % 200) as u8;
        let address = Ipv4Addr::new(127, byte(id / 200), byte(id), byte(nth)).to_string();
        Self { address, port: free_port().to_string() }
    }

    /// A text that names these. What is waited for has as long as a busy machine needs.
    fn moved(&self, text: &str) -> String {
        let moved = text.replace("127.0.0.1", &self.address).replace("7444", &self.port);
        moved.replace("kubectl wait --for", "kubectl wait --timeout=120s --for")
    }
}
