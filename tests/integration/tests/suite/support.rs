//! `freehold support-bundle`: it has what helps, and no credential of the installation.

use crate::{contains_all, items, text};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_integration::{Engine, Kubectl, Server};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

/// The least length of what can be looked for; shorter values stand in anything.
const SHORTEST: usize = 12;

/// What signs somebody in, with where it was found.
#[derive(Default)]
struct Credentials(BTreeMap<String, String>);

impl Credentials {
    /// Adds what is secret of a value: keys of a PEM text line by line, those of a kubeconfig, and the value itself where it is
    /// neither that nor a certificate.
    fn add(&mut self, place: &str, value: &str) {
        let mut in_key = false;
        for line in value.lines() {
            // YAML, or JSON with its quotes.
            let names = ["client-key-data", "token"];
            let field = names.iter().find_map(|name| line.trim().trim_matches('"').strip_prefix(name));
            if let Some(data) = field {
                let data = data.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '=');
                self.put(place, data);
                let pem = BASE64_STANDARD.decode(data).unwrap_or_default();
                self.add(place, &String::from_utf8_lossy(&pem));
            }
            in_key = in_key && !line.starts_with("-----END")
                || line.starts_with("-----BEGIN") && line.contains("PRIVATE");
            if in_key && !line.starts_with("-----") {
                self.put(place, line);
            }
        }
        if value.contains("PRIVATE KEY-----")
            || !value.contains("-----BEGIN") && !value.contains("kind: Config")
        {
            self.put(place, value.trim());
            self.put(place, &BASE64_STANDARD.encode(value));
        }
    }

    fn put(&mut self, place: &str, credential: &str) {
        if credential.len() >= SHORTEST {
            self.0.insert(credential.to_owned(), place.to_owned());
        }
    }

    /// All Secrets of a plane.
    fn add_secrets(&mut self, plane: &str, kubectl: &Kubectl) {
        for secret in items(&kubectl.json(&["get", "secrets", "--all-namespaces"])) {
            for (field, value) in secret["data"].as_object().into_iter().flatten() {
                let value = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).expect("base64");
                let place = format!("{plane} {} {field}", text(secret, "/metadata/name"));
                // Public, and what events and audit name.
                if !["namespace", "ca.crt", "type", "username"].contains(&field.as_str()) {
                    self.add(&place, &String::from_utf8_lossy(&value));
                }
            }
        }
    }

    fn add_files(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.add_files(&path);
            } else if path.extension().is_some_and(|end| end == "key" || end == "kubeconfig") {
                self.add(&path.display().to_string(), &fs::read_to_string(&path).expect("text"));
            }
        }
    }
}

/// Files of an archive.
fn unpacked(archive: &Path, folder: &Path) -> BTreeMap<String, String> {
    fs::create_dir_all(folder).expect("a new folder");
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder).status();
    assert!(status.expect("tar runs").success());
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.join("freehold-support")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.display().to_string(), fs::read_to_string(&path).expect("text"));
            }
        }
    }
    files
}

#[test]
fn a_support_bundle_has_what_helps_and_no_credential() {
    let server = Server::start(Engine::Embedded);
    let kubectl = server.kubectl();
    kubectl.apply(
        "{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Organization, metadata: {name: acme}}\n---\n\
         {apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {name: web}, spec: {ownerRef: {kind: Organization, name: acme}}}\n---\n\
         {apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {name: own}, \
          spec: {ownerRef: {kind: Organization, name: acme}, controlPlane: {mode: Dedicated}}}\n",
    );
    let mut credentials = Credentials::default();
    credentials.add_files(&server.data_dir());
    for project in ["web", "own"] {
        let plane = server.project(project);
        plane.ok(&[
            "create",
            "secret",
            "generic",
            "of-a-user",
            "--from-literal=password=correct-horse-battery",
        ]);
        credentials.add_secrets(project, &plane);
        credentials.put("a token", plane.ok(&["create", "token", "default"]).trim());
    }
    credentials.add_secrets("core", &kubectl);
    let infra = kubectl.with(&["--server", &format!("{}/planes/infra", server.url())]);
    credentials.add_secrets("infra", &infra);
    // What stands where it should not: a token in an annotation and in an argument, a key in a log.
    let token = kubectl.ok(&["create", "token", "default"]);
    credentials.put("a token", token.trim());
    kubectl.ok(&["annotate", "organization", "acme", &format!("example.com/note=use {}", token.trim())]);
    let key = fs::read_to_string(server.data_dir().join("pki/ca.key")).expect("the authority's key");
    let log = server.folder().join("other.log");
    fs::write(&log, format!("began\n{key}ended\nAuthorization: Bearer opaque-but-secret\n")).expect("a log");
    credentials.put("a log", "opaque-but-secret");
    let printed = fs::read_to_string(server.folder().join("server.log")).expect("the server's log");
    for code in printed.split("code=").skip(1) {
        credentials.put("a link", code.split_whitespace().next().unwrap_or_default());
    }
    assert!(credentials.0.len() > 30, "{}", credentials.0.len());

    let archive = server.folder().join("bundle.tar.gz");
    let (output, logs) = (archive.display().to_string(), log.display().to_string());
    let logs = format!("{},{logs}", server.folder().join("server.log").display());
    let told = server.freehold(&["support-bundle", "--output", &output, "--log-file", &logs]).expect_ok();
    assert!(told.contains("bundle.tar.gz"), "{told}");
    let mode = fs::metadata(&archive).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = server.freehold(&["support-bundle", "--output", &output]);
    assert!(!again.success, "a file that is there stays");

    let files = unpacked(&archive, &server.folder().join("unpacked"));
    let whole: String = files.iter().map(|(name, content)| format!("{name}\n{content}\n")).collect();
    contains_all(
        &whole,
        &[
            "/versions.json",
            "/doctor.txt",
            "ok     server",
            "/health/readyz.txt",
            "/metrics.txt",
            "apiserver_request_total",
            "/objects/resourcemanager.freehold.dev/projects.json",
            "/infra/deployments.json",
            "/infra/events.json",
            "/flags.txt",
            "--listen",
            "apiserver.log",
            "/logs/files/server.log",
            "began\n[redacted]\nended",
        ],
    );
    let own: Value = files
        .iter()
        .find_map(|(name, content)| {
            name.ends_with("/projects.json").then(|| serde_json::from_str(content).ok())?
        })
        .unwrap_or(json!(null));
    assert_eq!(items(&own).count(), 2, "{own}");
    assert!(!files.keys().any(|name| name.contains("secrets")), "{:?}", files.keys());
    for (credential, place) in &credentials.0 {
        let file = files.iter().find(|(_, content)| content.contains(credential.as_str()));
        assert!(file.is_none(), "a credential of {place} is in {:?}", file.map(|(name, _)| name));
    }
}
