//! Pairs as containers of a real kubelet: `make test-cluster`, which runs this in the sandbox of `tools/node`.

use crate::pairs::{ORGANIZATION, PATIENCE, Pair, project};
use freehold_tests_deploy::infra::{Core, Folder, Infra, Sandbox};
use freehold_tests_harness::{KubeOptions, Kubectl, resident_kib, until};
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

#[test]
fn a_pair_runs_in_containers_of_a_kubelet() {
    let Some(sandbox) = Sandbox::find() else {
        eprintln!("left out: `make test-cluster` runs it in a sandbox with containerd and a kubelet");
        return;
    };
    let archive = std::env::var("FREEHOLD_TEST_IMAGE").expect("FREEHOLD_TEST_IMAGE names an archive of tools/image");
    sandbox.ctr(&["images", "import", &archive]);
    sandbox.ctr(&["images", "tag", IMAGE, NEXT]);
    let folder = Folder::new();
    let mut infra = Infra::start(&folder.path(), KubeOptions::default());
    infra.add_kubelet(&sandbox);
    let core = Core::start(&folder.path(), &sandbox.address);
    let classes = folder.path().join("classes.yaml");
    let write = |text: &str| std::fs::write(&classes, text).expect("the test's folder can be written");
    write("classes: {}\n");
    let flags = ["--image-pull-policy=Never".to_owned(), "--classes".to_owned(), classes.display().to_string()];
    let _provisioner = core.provision(&infra.kube.admin_kubeconfig(), IMAGE, &flags);

    let kubectl = core.kubectl();
    kubectl.apply(ORGANIZATION);
    kubectl.apply(SHARED);
    kubectl.ok(&["wait", "--for=condition=Ready", "project/shared", "--timeout=120s"]);
    let begun = Instant::now();
    kubectl.apply(&project("own"));
    kubectl.ok(&["wait", "--for=condition=Ready", "project/own", "--timeout=120s"]);
    eprintln!("a pair was ready {:?} after its project was applied", begun.elapsed());
    let pair = Pair::of(&core, &infra, "own");
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
    write(&format!("classes: {{default: {{image: '{NEXT}'}}}}\n"));
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
