//! A Pod's containers as processes of this machine: its volumes are directories whose paths replace mount paths in arguments, and
//! addresses of the cluster are replaced by those of the test.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_harness::{freehold_binary, tool};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where a Pod finds its service account's token.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What Pods of a test have in common.
#[derive(Default)]
pub struct Machine {
    /// Where Pods have their directories.
    pub folder: PathBuf,
    /// Secrets and ConfigMaps, by kind and name: their files.
    pub sources: BTreeMap<(String, String), BTreeMap<String, String>>,
    /// What is replaced in arguments and in files of ConfigMaps.
    pub addresses: Vec<(String, String)>,
}

impl Machine {
    /// Adds the files of a Secret or ConfigMap.
    pub fn add(&mut self, object: &Value) {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let data = object["data"].as_object().into_iter().flatten();
        let files = data.map(|(file, content)| {
            let content = text(content);
            let decoded =
                || String::from_utf8(BASE64_STANDARD.decode(&content).expect("base64")).expect("text");
            (file.clone(), if kind == "Secret" { decoded() } else { content.clone() })
        });
        let files = files.collect();
        self.sources.insert((kind, name), files);
    }

    fn files(&self, kind: &str, name: &str) -> &BTreeMap<String, String> {
        let found = self.sources.get(&(kind.to_owned(), name.to_owned()));
        found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }

    /// Makes a Pod's volumes.
    pub fn pod<'a>(&'a self, name: &str, spec: &'a Value) -> Pod<'a> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).expect("the test's folder can be written");
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            self.fill(&folder.join(text(&volume["name"])), volume);
        }
        Pod { machine: self, folder, spec, name: name.to_owned() }
    }

    fn fill(&self, folder: &Path, volume: &Value) {
        std::fs::create_dir_all(folder).expect("the test's folder can be written");
        if let Some(name) = volume["secret"]["secretName"].as_str() {
            self.project(folder, "Secret", name, &volume["secret"]["items"]);
        } else if let Some(name) = volume["configMap"]["name"].as_str() {
            self.project(folder, "ConfigMap", name, &Value::Null);
        } else if let Some(sources) = volume["projected"]["sources"].as_array() {
            for source in sources {
                let secret = &source["secret"];
                self.project(folder, "Secret", &text(&secret["name"]), &secret["items"]);
            }
        } else {
            let empty = volume.get("emptyDir").or(volume.get("persistentVolumeClaim"));
            assert!(empty.is_some(), "a volume of another kind: {volume}");
        }
    }

    fn project(&self, folder: &Path, kind: &str, name: &str, items: &Value) {
        for (file, content) in self.files(kind, name) {
            let item = items.as_array().map(|items| items.iter().find(|item| item["key"] == file.as_str()));
            let path = match item {
                None => file.clone(),
                Some(Some(item)) => text(&item["path"]),
                Some(None) => continue,
            };
            let content = if kind == "ConfigMap" { self.replace(content) } else { content.clone() };
            std::fs::write(folder.join(path), content).expect("the test's folder can be written");
        }
    }

    fn replace(&self, text: &str) -> String {
        let replaced = |text: String, (from, to): &(String, String)| text.replace(from, to);
        self.addresses.iter().fold(text.to_owned(), replaced)
    }

    /// Sets the folder that stands for [`SERVICE_ACCOUNT`].
    pub fn set_service_account(&mut self, folder: &Path) {
        self.addresses.push((SERVICE_ACCOUNT.to_owned(), folder.display().to_string()));
    }
}

/// A Pod whose volumes are there.
pub struct Pod<'a> {
    machine: &'a Machine,
    folder: PathBuf,
    spec: &'a Value,
    name: String,
}

impl Pod<'_> {
    /// Where a volume is.
    pub fn volume(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs the Pod's init containers, and then its container until it ends. Gives what the latter printed.
    pub fn run(&self) -> String {
        let (success, printed) = crate::run(&mut self.prepared());
        assert!(success, "Pod {} failed:\n{printed}", self.name);
        printed
    }

    /// Runs the Pod's init containers, and starts its container.
    pub fn start(&self) -> Running {
        let log = self.folder.join("log");
        let file = std::fs::File::create(&log).expect("the test's folder can be written");
        let mut command = self.prepared();
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a second handle")).stderr(file);
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?} can't be run: {e}"));
        Running { child, log }
    }

    /// Runs the init containers.
    pub fn prepare(&self) {
        for container in self.spec["initContainers"].as_array().into_iter().flatten() {
            let (success, printed) = crate::run(&mut self.command(container));
            assert!(success, "an init container of {} failed:\n{printed}", self.name);
        }
    }

    fn prepared(&self) -> Command {
        self.prepare();
        self.command(&self.spec["containers"][0])
    }

    fn command(&self, container: &Value) -> Command {
        let mut mounts: Vec<(String, String)> = Vec::new();
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let volume = self.volume(&text(&mount["name"]));
            // Those of a StatefulSet's claims are not among the Pod's volumes.
            std::fs::create_dir_all(&volume).expect("the test's folder can be written");
            mounts.push((text(&mount["mountPath"]), volume.display().to_string()));
        }
        // `/etc/freehold/etcd` is also how `/etc/freehold/etcd-user` begins.
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        let local = |word: &Value| {
            let word = self.machine.replace(&text(word).replace("$(POD_NAME)", &self.name));
            mounts.iter().fold(word, |word, (path, volume)| word.replace(path, volume))
        };
        let words = |field: &str| container[field].as_array().into_iter().flatten().map(local);
        let mut line: Vec<String> = words("command").chain(words("args")).collect();
        // The image's entry point is `freehold`.
        let program = match container.get("command") {
            None => freehold_binary(),
            Some(_) => tool("FREEHOLD_TEST_ETCD", &line.remove(0)),
        };
        let mut command = Command::new(program);
        command.args(line);
        command
    }
}

/// A container that runs. It ends when this is dropped.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// What it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Panics when it has ended.
    pub fn expect_running(&mut self) {
        let ended = self.child.try_wait().ok().flatten();
        assert!(ended.is_none(), "it ended ({ended:?}):\n{}", self.log());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A field that has to be a text.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
