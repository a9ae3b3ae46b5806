//! Pairs as containers of a real kubelet: `make test-cluster`, which runs this in the sandbox of `tools/node`.

use crate::pairs::{ORGANIZATION, PATIENCE, Pair, project};
use freehold_tests_deploy::infra::{Core, Folder, Infra, Process, Sandbox};
use freehold_tests_harness::{KubeOptions, Kubectl, resident_kib, until};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const IMAGE: &str = "docker.io/library/freehold:0.1.0";
const NEXT: &str = "docker.io/library/freehold:next";
const SHARED: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: shared}
spec:
  ownerRef: {kind: Organization, name: acme}
";

/// A client that writes and reads one object all the time.
struct Load {
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<Vec<String>>,
}

impl Load {
    fn start(kubectl: Kubectl) -> Self {
        kubectl.ok(&["create", "configmap", "load"]);
        let (stop, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (stop.clone(), requests.clone());
        let thread = std::thread::spawn(move || {
            let mut failures = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                let patch = format!("{{\"data\": {{\"n\": \"{number}\"}}}}");
                let output = kubectl.run(&["patch", "configmap", "load", "--type=merge", "-p", &patch]);
                if !output.success {
                    failures.push(output.to_string());
                }
            }
            failures
        });
        Self { stop, requests, thread }
    }

    /// Ends it; gives the number of requests and those that failed.
    fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.thread.join().expect("the load");
        (self.requests.load(Ordering::Relaxed), failures)
    }
}

/// Resident memory of the programs of a plane, which run in containers of this machine.
fn resident(plane: &str) -> Vec<(String, u64)> {
    let flag = format!("--plane={plane}");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = pids.filter_map(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        words.contains(&flag).then(|| (words[1].clone(), resident_kib(pid)))
    });
    found.collect()
}

/// Core servers and a cluster with a kubelet.
struct Machine {
    // Processes first: they go before the folder.
    _provisioner: Process,
    core: Core,
    infra: Infra,
    classes: PathBuf,
    _folder: Folder,
}

impl Machine {
    /// Starts everything, where the test runs in a sandbox.
    fn start(flags: &[&str]) -> Option<Self> {
        let Some(sandbox) = Sandbox::find() else {
            eprintln!("left out: `make test-cluster` runs it in a sandbox with containerd and a kubelet");
            return None;
        };
        let archive = std::env::var("FREEHOLD_TEST_IMAGE");
        let archive = archive.expect("FREEHOLD_TEST_IMAGE names an archive of tools/image");
        sandbox.ctr(&["images", "import", &archive]);
        sandbox.ctr(&["images", "tag", "--force", IMAGE, NEXT]);
        let folder = Folder::new();
        let mut infra = Infra::start(&folder.path(), KubeOptions::default());
        infra.add_kubelet(&sandbox);
        let core = Core::start(&folder.path(), &sandbox.address);
        let classes = folder.path().join("classes.yaml");
        std::fs::write(&classes, "classes: {}\n").expect("the test's folder can be written");
        let mut all = vec![
            "--image-pull-policy=Never".to_owned(),
            "--classes".to_owned(),
            classes.display().to_string(),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let _provisioner = core.provision(&infra.kube.admin_kubeconfig(), IMAGE, &all);
        core.kubectl().apply(ORGANIZATION);
        Some(Self { _provisioner, core, infra, classes, _folder: folder })
    }
}

#[test]
fn a_pair_runs_in_containers_of_a_kubelet() {
    let Some(machine) = Machine::start(&[]) else { return };
    let Machine { core, infra, classes, .. } = &machine;
    let kubectl = core.kubectl();
    kubectl.apply(SHARED);
    kubectl.ok(&["wait", "--for=condition=Ready", "project/shared", "--timeout=120s"]);
    let begun = Instant::now();
    kubectl.apply(&project("own"));
    kubectl.ok(&["wait", "--for=condition=Ready", "project/own", "--timeout=120s"]);
    eprintln!("a pair was ready {:?} after its project was applied", begun.elapsed());
    let pair = Pair::of(core, infra, "own");
    pair.until("Updated", "True");
    eprintln!("resident KiB: {:?}", resident(&pair.uid));
    pair.consists_of_what_was_planned();

    let project = core.project("own");
    project.ok(&["create", "namespace", "shop"]);
    until("controllers of the pair work", PATIENCE, || {
        project.run(&["get", "serviceaccount", "default", "-n", "shop"]).success.then_some(())
    });

    // Another image, under writes.
    let load = Load::start(project.clone());
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    std::fs::write(classes, format!("classes: {{default: {{image: '{NEXT}'}}}}\n")).expect("a file");
    until("all Pods have the new image", PATIENCE, || {
        let images = pair.infra.ok(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"]);
        let images: Vec<&str> = images.split(' ').collect();
        (images.len() == 2 && images.iter().all(|image| *image == NEXT)).then_some(())
    });
    pair.until("Ready", "True");
    let took = begun.elapsed();
    let (requests, failures) = load.end();
    eprintln!("another image took {took:?}; of {requests} writes {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));

    kubectl.ok(&["delete", "project", "own", "--timeout=120s"]);
    until("nothing of the pair is left", PATIENCE, || {
        let left = infra.kubectl().ok(&["get", "namespaces", "-o", "name"]);
        (!left.contains("project-") && resident(&pair.uid).is_empty()).then_some(())
    });
}

/// The expiry of a pair's serving certificate, as the Secret has it.
fn serving_certificate(pair: &Pair<'_>) -> String {
    pair.infra.ok(&["get", "secret", "apiserver-serving", "-o", "jsonpath={.data.tls\\.crt}"])
}

#[test]
fn certificates_that_live_for_a_minute_are_renewed_under_writes() {
    let Some(machine) = Machine::start(&["--certificate-duration=60"]) else { return };
    let Machine { core, infra, .. } = &machine;
    core.kubectl().apply(&project("own"));
    core.kubectl().ok(&["wait", "--for=condition=Ready", "project/own", "--timeout=120s"]);
    let pair = Pair::of(core, infra, "own");
    let load = Load::start(core.project("own"));
    let (begun, mut seen) = (Instant::now(), vec![serving_certificate(&pair)]);
    until("certificates were renewed twice", Duration::from_secs(180), || {
        let now = serving_certificate(&pair);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        (seen.len() == 3).then_some(())
    });
    std::thread::sleep(Duration::from_secs(20));
    let (took, (requests, failures)) = (begun.elapsed(), load.end());
    eprintln!("renewed twice in {took:?}; of {requests} writes {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    core.kubectl().ok(&["delete", "project", "own", "--timeout=120s"]);
}
