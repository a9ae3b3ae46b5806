//! Objects are compressed and encrypted in the store, and nobody who uses them notices.

use crate::backup::{RESTORED, stopped_restore_of};
use crate::{PATIENCE, contains_all};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use freehold_tests_integration::{Engine, Options, Server, facts, freehold_binary, until};
use std::path::{Path, PathBuf};
use std::process::Command;

facts!(engine:
    the_store_holds_nothing_of_a_secret_and_keys_are_rotated_while_it_serves,
    a_server_without_the_right_keys_says_so_in_one_line,
    what_is_restored_is_encrypted_and_needs_the_keys_that_sealed_it,
);

/// What must not be found in the store.
const TREASURE: &str = "correct-horse-battery-staple";

/// A file of keys, the first one first. A name is always the same key.
fn key_file(folder: &Path, names: &[&str]) -> PathBuf {
    let key = |name: &&str| {
        // 32 bytes, base64: 43 characters of one letter and the padding; the last one carries four bits.
        let letter = name.chars().next().unwrap_or('A');
        format!("            - {{name: {name}, secret: {}A=}}\n", letter.to_string().repeat(42))
    };
    let keys: String = names.iter().map(key).collect();
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n  - providers:\n      \
         - aesgcm:\n          keys:\n{keys}"
    );
    let path = folder.join("keys.yaml");
    std::fs::write(&path, text).expect("the test's folder can be written");
    path
}

/// Whether any file below a folder has these bytes.
fn holds(folder: &Path, part: &str) -> bool {
    // Files and folders come and go while a store works.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        if path.is_dir() {
            return holds(&path, part);
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(part.len()).any(|window| window == part.as_bytes())
    })
}

fn store(server: &Server, engine: Engine) -> PathBuf {
    match engine {
        Engine::Embedded => server.data_dir().join("store"),
        Engine::Etcd => server.folder().join("etcd"),
    }
}

fn start(engine: Engine, keys: &Path) -> Server {
    let args = vec!["--encryption-keys".to_owned(), keys.display().to_string()];
    Server::start(Options { engine, args, ..Options::default() })
}

fn encryption(server: &Server, args: &[&str]) -> String {
    let output = server.freehold(&[&["encryption"], args].concat());
    assert!(output.success, "{}", output.stderr);
    output.stdout
}

fn the_store_holds_nothing_of_a_secret_and_keys_are_rotated_while_it_serves(engine: Engine) {
    let keys = tempfile::tempdir().expect("a temporary directory");
    let file = key_file(keys.path(), &["a-2025"]);
    let mut server = start(engine, &file);
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "secret", "generic", "vault", &format!("--from-literal=password={TREASURE}")]);
    kubectl.ok(&["create", "configmap", "plans", &format!("--from-literal=motto={TREASURE}")]);
    kubectl.ok(&["label", "secret", "vault", "kept=well"]);
    let read =
        |server: &Server| server.kubectl().ok(&["get", "configmap", "plans", "-o", "jsonpath={.data.motto}"]);
    assert_eq!(read(&server), TREASURE);
    let folder = store(&server, engine);
    assert!(folder.is_dir());
    assert!(!holds(&folder, TREASURE), "a value lies plain in the store");
    contains_all(&encryption(&server, &["status"]), &["encryption   on", "\"a-2025\" seals 1 data keys"]);

    key_file(keys.path(), &["b-2026", "a-2025"]);
    server.restart();
    assert_eq!(read(&server), TREASURE);
    encryption(&server, &["rotate"]);
    until("the rotation is done", PATIENCE, || {
        let status = encryption(&server, &["status"]);
        (status.contains("finished") && status.contains("0 can't be opened")).then_some(())
    });
    contains_all(&encryption(&server, &["status"]), &["\"a-2025\" seals 0 data keys: it can be removed"]);

    key_file(keys.path(), &["b-2026"]);
    server.restart();
    assert_eq!(read(&server), TREASURE);
    assert_eq!(server.kubectl().json(&["get", "secret", "vault"])["metadata"]["labels"]["kept"], "well");
    assert!(!server.log().contains(&"b".repeat(42)), "a key is in the log");
}

/// Starts a server on what another left, where it has to fail; gives what it says.
fn refused(server: &Server, args: &[&str], keys: Option<&Path>) -> String {
    let mut command = Command::new(freehold_binary());
    command.arg("up").arg("--data-dir").arg(server.data_dir()).args(["--listen", "127.0.0.1:0"]);
    command.args(server.etcd_url().iter().flat_map(|url| ["--etcd", url])).args(args);
    command.args(keys.iter().flat_map(|file| [Path::new("--encryption-keys"), file]));
    let output = command.env("FREEHOLD_LOG", "error").output().expect("freehold can be run");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

fn what_is_restored_is_encrypted_and_needs_the_keys_that_sealed_it(engine: Engine) {
    let keys = tempfile::tempdir().expect("a temporary directory");
    let file = key_file(keys.path(), &["right"]);
    let mut server = start(engine, &file);
    let literal = format!("--from-literal=password={TREASURE}");
    server.kubectl().ok(&["create", "secret", "generic", "vault", &literal]);
    let backup = server.folder().join("backup");
    server.freehold(&["backup", &backup.display().to_string()]).expect_ok();
    let bytes = std::fs::read(&backup).expect("the backup is there");
    assert!(!bytes.windows(TREASURE.len()).any(|window| window == TREASURE.as_bytes()));
    server.stop();
    let mut restored = stopped_restore_of(&server, engine, &backup);
    let prefix: &[&str] = if engine == Engine::Etcd { &["--etcd-prefix", RESTORED] } else { &[] };
    contains_all(&refused(&restored, prefix, None), &["the store has encrypted values"]);
    key_file(keys.path(), &["wrong"]);
    contains_all(&refused(&restored, prefix, Some(&file)), &["the encryption key \"right\""]);
    key_file(keys.path(), &["newer", "right"]);
    restored.add_args(&["--encryption-keys", &file.display().to_string()]);
    restored.restart();
    let jsonpath = "jsonpath={.data.password}";
    let found = restored.kubectl().ok(&["get", "secret", "vault", "-o", jsonpath]);
    assert_eq!(found, BASE64_STANDARD.encode(TREASURE));
}

fn a_server_without_the_right_keys_says_so_in_one_line(engine: Engine) {
    let keys = tempfile::tempdir().expect("a temporary directory");
    let file = key_file(keys.path(), &["right"]);
    let mut server = start(engine, &file);
    server.kubectl().ok(&["create", "secret", "generic", "vault", "--from-literal=a=b"]);
    // The server's etcd must go on: its process is killed, and another one is started beside what it left.
    server.kill();
    let refused = |file: Option<&Path>| refused(&server, &[], file);
    let no_keys = refused(None);
    contains_all(&no_keys, &["freehold: --encryption-keys: the store has encrypted values"]);
    key_file(keys.path(), &["wrong"]);
    let wrong = refused(Some(&file));
    contains_all(
        &wrong,
        &["sealed with the encryption key \"right\", which is not among those given (wrong)"],
    );
    std::fs::write(&file, "kind: EncryptionConfiguration\n").expect("the test's folder can be written");
    let malformed = refused(Some(&file));
    contains_all(&malformed, &["it is not an EncryptionConfiguration"]);
}
