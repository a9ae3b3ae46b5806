//! The real `kubectl`, with a home of its own.

use crate::process::{kill, wait_for_end};
use crate::wait::until;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a command may take: longer than any `--timeout` that a test gives it.
const PATIENCE: Duration = Duration::from_secs(180);

/// `kubectl` with one kubeconfig. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    home: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
}

/// What a command gave.
#[derive(Clone, Debug)]
pub struct Output {
    /// Whether its exit code was 0.
    pub success: bool,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
    /// The command itself.
    pub line: String,
}

/// Whether kubectl lost what it was told before its own streams stood.
pub fn lost_streams(complaints: &str) -> bool {
    complaints.contains("Unknown stream id")
}

impl Kubectl {
    /// `kubectl` with a kubeconfig, whose caches are below `home`.
    pub fn new(kubeconfig: impl Into<PathBuf>, home: impl Into<PathBuf>) -> Self {
        Self { kubeconfig: kubeconfig.into(), home: home.into(), args: Vec::new(), environment: Vec::new() }
    }

    /// A `kubectl` with arguments before all others (`--server`, `--namespace`, `--as`).
    pub fn with(&self, args: &[&str]) -> Self {
        let args = self.args.iter().cloned().chain(args.iter().map(|arg| (*arg).to_owned())).collect();
        Self { args, ..self.clone() }
    }

    /// A `kubectl` with a variable in its environment (`KUBE_EDITOR`).
    pub fn with_variable(&self, name: &str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.environment.push((name.to_owned(), value.to_owned()));
        changed
    }

    /// What is in its environment besides.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The path of the kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs a command, however it ends.
    pub fn run(&self, args: &[&str]) -> Output {
        self.run_with_input(args, "")
    }

    /// Runs a command with text on its standard input. A kubectl before 1.34 can lose what it is told before its own streams stand,
    /// and says so (kubernetes/kubernetes#131203): that one is run again.
    pub fn run_with_input(&self, args: &[&str], input: &str) -> Output {
        let outputs = std::iter::repeat_with(|| self.run_once(args, input)).take(5);
        let mut outputs = outputs.skip_while(|output| lost_streams(&output.stderr));
        outputs.next().unwrap_or_else(|| panic!("{}: it loses its streams each time", self.line(args)))
    }

    fn run_once(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.spawn(args);
        let line = self.line(args);
        let mut stdin = child.stdin.take().expect("it has a standard input");
        let (input, out, err) = (input.to_owned(), drain(child.stdout.take()), drain(child.stderr.take()));
        // A command that does not read its input closes it, which is its right.
        let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let status = wait_for_end(&mut child, PATIENCE);
        if status.is_none() {
            kill(&mut child);
        }
        let text = |reading: std::thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&reading.join().unwrap_or_default()).into_owned()
        };
        let output = Output {
            success: status.is_some_and(|s| s.success()),
            stdout: text(out),
            stderr: text(err),
            line,
        };
        let _ = writing.join();
        assert!(status.is_some(), "it did not end within {PATIENCE:?}:\n{output}");
        output
    }

    /// Runs a command that has to succeed; gives what it printed.
    pub fn ok(&self, args: &[&str]) -> String {
        self.run(args).expect_ok()
    }

    /// Runs a command that has to fail; gives what it complained of.
    pub fn fails(&self, args: &[&str]) -> String {
        self.run(args).expect_failure()
    }

    /// `kubectl apply -f -` of YAML, which has to succeed. A document that begins with a brace is YAML too.
    pub fn apply(&self, manifests: &str) -> String {
        self.run_with_input(&["apply", "-f", "-"], &format!("---\n{manifests}")).expect_ok()
    }

    /// One object, as JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        let text = self.ok(&args);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: no JSON ({e}):\n{text}", self.line(&args)))
    }

    /// Starts a command that goes on (`get -w`, `logs -f`), and collects what it prints.
    pub fn background(&self, args: &[&str]) -> Background {
        let mut child = self.spawn(args);
        let printed = Arc::new(Mutex::new(String::new()));
        collect(child.stdout.take(), printed.clone());
        collect(child.stderr.take(), printed.clone());
        Background { child, printed, line: self.line(args) }
    }

    fn spawn(&self, args: &[&str]) -> Child {
        Command::new("kubectl")
            .args(&self.args)
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env("KUBECACHEDIR", self.home.join("cache"))
            .env("KUBECTL_KUBERC", "false")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("kubectl can't be run ({e}): `make tools` gets it"))
    }

    fn line(&self, args: &[&str]) -> String {
        let all = self.args.iter().map(String::as_str).chain(args.iter().copied());
        format!("kubectl {}", all.collect::<Vec<_>>().join(" "))
    }
}

impl Output {
    /// What it printed, if it succeeded; a panic with everything if it did not.
    pub fn expect_ok(self) -> String {
        assert!(self.success, "it failed:\n{self}");
        self.stdout
    }

    /// What it complained of, if it failed; a panic with everything if it did not.
    pub fn expect_failure(self) -> String {
        assert!(!self.success, "it succeeded:\n{self}");
        self.stderr
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "$ {}\n{}{}", self.line, self.stdout, self.stderr)
    }
}

/// A command that goes on. It ends when this is dropped.
pub struct Background {
    child: Child,
    printed: Arc<Mutex<String>>,
    line: String,
}

impl Background {
    /// What it has printed so far, in whole lines: a row of a table is written in pieces.
    pub fn printed(&self) -> String {
        let text = self.printed.lock().map(|text| text.clone()).unwrap_or_default();
        text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned()
    }

    /// Waits until it has printed a text.
    pub fn wait_for(&self, text: &str) {
        until(&format!("{:?} prints {text:?}", self.line), PATIENCE, || {
            self.printed().contains(text).then_some(())
        });
    }
}

impl Background {
    /// Waits until it ends by itself.
    pub fn wait_for_end(&mut self) {
        let Self { child, line, .. } = self;
        until(&format!("{line:?} ends"), PATIENCE, || child.try_wait().ok().flatten());
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

fn drain(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut from) = from {
            // What came before an error is still worth showing.
            let _ = from.read_to_end(&mut all);
        }
        all
    })
}

fn collect(from: Option<impl Read + Send + 'static>, into: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let Some(mut from) = from else { return };
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            if let Ok(mut text) = into.lock() {
                text.push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubectl(folder: &Path) -> Kubectl {
        let kubeconfig = folder.join("kubeconfig");
        let text = "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                    contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n";
        std::fs::write(&kubeconfig, text).unwrap();
        Kubectl::new(kubeconfig, folder)
    }

    #[test]
    fn a_command_gives_what_it_printed_and_keeps_to_its_own_home() {
        let folder = tempfile::tempdir().unwrap();
        let kubectl = kubectl(folder.path());
        assert_eq!(kubectl.ok(&["config", "current-context"]), "a\n");
        let complaint = kubectl.with(&["--request-timeout=1s"]).fails(&["get", "pods"]);
        assert!(complaint.contains("127.0.0.1:1"), "{complaint}");
    }

    #[test]
    fn input_reaches_a_command_and_background_output_is_collected() {
        let folder = tempfile::tempdir().unwrap();
        let kubectl = kubectl(folder.path());
        let pod = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let args = ["create", "--dry-run=client", "--validate=false", "-o", "name", "-f", "-"];
        let output = kubectl.run_with_input(&args, pod);
        assert!(output.success || output.stderr.contains("127.0.0.1:1"), "{output}");
        kubectl.background(&["config", "view"]).wait_for("current-context: a");
    }
}
