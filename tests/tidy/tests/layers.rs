//! Which crate may know which: the picture in ARCHITECTURE.md, as a table.

use freehold_tests_tidy::workspace::{Package, array, metadata, packages, text, top};

/// Crates without their prefix, and what each may depend on. From the bottom to the top.
const LAYERS: &[(&str, &[&str])] = &[
    ("machinery-identity", &[]),
    ("machinery", &["machinery-identity"]),
    ("machinery-cel", &["machinery"]),
    ("machinery-cron", &["machinery"]),
    ("machinery-lookup", &[]),
    ("machinery-networks", &[]),
    ("machinery-patch", &["machinery"]),
    ("machinery-protobuf", &["machinery"]),
    ("machinery-quota", &["machinery"]),
    ("machinery-table", &["machinery"]),
    ("pki", &[]),
    ("api", &["machinery"]),
    ("client", &["machinery"]),
    ("s3", &[]),
    ("telemetry", &[]),
    // The apiserver, inside of which nothing knows its clients.
    ("apiserver-storage", &["machinery"]),
    ("apiserver-storage-embedded", &["machinery", "apiserver-storage"]),
    ("apiserver-storage-etcd", &["machinery", "apiserver-storage"]),
    ("apiserver-storage-sealed", &["machinery", "telemetry", "apiserver-storage"]),
    ("apiserver-audit", &["machinery", "apiserver-storage"]),
    ("apiserver-authn", &["machinery", "machinery-cel", "pki"]),
    ("apiserver-authz", &["machinery", "machinery-cel"]),
    ("apiserver-admission", &["machinery", "machinery-cel", "machinery-patch", "machinery-quota"]),
    ("apiserver-quota", &["machinery", "machinery-cel"]),
    ("apiserver-fairness", &["machinery"]),
    ("apiserver-cache", &["machinery", "apiserver-storage"]),
    ("apiserver-catalog", &["machinery", "machinery-cel", "machinery-table"]),
    ("apiserver-resource-metrics", &["machinery"]),
    (
        "apiserver-kinds",
        &["machinery", "machinery-cel", "machinery-cron", "apiserver-catalog", "apiserver-admission"],
    ),
    (
        "apiserver-operation",
        &[
            "machinery",
            "apiserver-storage",
            "apiserver-cache",
            "apiserver-catalog",
            "apiserver-admission",
            "apiserver-authz",
        ],
    ),
    (
        "apiserver-ledger",
        &[
            "machinery",
            "apiserver-storage",
            "apiserver-cache",
            "apiserver-catalog",
            "apiserver-admission",
            "apiserver-quota",
            "apiserver-authz",
            "apiserver-operation",
        ],
    ),
    (
        "apiserver-registry",
        &[
            "machinery",
            "machinery-cel",
            "machinery-patch",
            "apiserver-storage",
            "apiserver-cache",
            "apiserver-catalog",
            "apiserver-kinds",
            "apiserver-admission",
            "apiserver-operation",
            "apiserver-ledger",
            "apiserver-quota",
            "apiserver-authn",
            "apiserver-authz",
        ],
    ),
    (
        "apiserver-planes",
        &[
            "machinery",
            "machinery-cel",
            "api",
            "apiserver-storage",
            "apiserver-cache",
            "apiserver-catalog",
            // Objects of layers have the defaults of their kinds, as written ones.
            "apiserver-kinds",
            "apiserver-admission",
            "apiserver-authz",
            "apiserver-fairness",
            // Planes with nodes serve its types.
            "apiserver-resource-metrics",
        ],
    ),
    ("apiserver-outbound", &["machinery", "machinery-lookup", "machinery-networks", "telemetry"]),
    (
        "apiserver-aggregation",
        &[
            "machinery",
            "apiserver-storage",
            "apiserver-cache",
            "apiserver-catalog",
            "apiserver-planes",
            "apiserver-outbound",
        ],
    ),
    ("apiserver-transport", &["apiserver-cache", "apiserver-fairness", "apiserver-outbound"]),
    (
        "apiserver-server",
        &[
            "machinery",
            "machinery-patch",
            "machinery-protobuf",
            "machinery-table",
            "telemetry",
            "api",
            "apiserver-catalog",
            "apiserver-audit",
            "apiserver-authn",
            "apiserver-authz",
            "apiserver-registry",
            "apiserver-planes",
            "apiserver-outbound",
            "apiserver-fairness",
            "apiserver-resource-metrics",
            "apiserver-transport",
        ],
    ),
    ("tenancy-api", &["machinery", "api"]),
    (
        "tenancy-decide",
        &[
            "machinery",
            "machinery-cel",
            "machinery-cron",
            "machinery-patch",
            "machinery-quota",
            "machinery-table",
            "api",
            "tenancy-api",
        ],
    ),
    // The assembly: the one crate that names concrete engines.
    (
        "apiserver",
        &[
            "machinery",
            "machinery-cel",
            "machinery-patch",
            "api",
            "pki",
            // As a part of another cluster's API it asks that one.
            "client",
            "apiserver-storage",
            "apiserver-storage-embedded",
            "apiserver-storage-etcd",
            "apiserver-storage-sealed",
            "apiserver-cache",
            "apiserver-catalog",
            "apiserver-audit",
            "apiserver-authn",
            "apiserver-authz",
            "apiserver-admission",
            "apiserver-registry",
            "apiserver-planes",
            "apiserver-outbound",
            "apiserver-aggregation",
            "apiserver-fairness",
            "apiserver-resource-metrics",
            "apiserver-server",
            // Quotas of tenants are kept in the write's own transaction, and counted as everywhere else.
            "tenancy-api",
            "tenancy-decide",
        ],
    ),
    // Clients of the apiserver: through its API alone.
    ("runtime", &["machinery", "client"]),
    ("webhook", &["machinery", "client", "pki", "runtime"]),
    ("controllers", &["machinery", "client", "runtime"]),
    // Their views know what projects say of their planes.
    ("controllers-context", &["machinery", "api", "client", "pki", "runtime", "controllers"]),
    ("controllers-workloads", &["machinery", "machinery-cron", "client", "runtime", "controllers-context"]),
    (
        "controller-manager",
        &[
            "machinery",
            "machinery-quota",
            "api",
            "client",
            "pki",
            "runtime",
            "controllers",
            "controllers-context",
            "controllers-workloads",
        ],
    ),
    ("provisioner", &["machinery", "api", "client", "pki", "runtime"]),
    ("node", &["machinery", "client", "pki", "runtime"]),
    // Subsystems: clients of any Kubernetes API, which know nothing of each other.
    ("tenancy-controllers", &["machinery", "api", "client", "runtime", "tenancy-api", "tenancy-decide"]),
    (
        "tenancy-admission",
        &[
            "machinery",
            "api",
            "client",
            "pki",
            "runtime",
            "webhook",
            "tenancy-api",
            "tenancy-decide",
            "tenancy-controllers",
        ],
    ),
    (
        "tenancy-proxy",
        &["machinery", "client", "pki", "runtime", "tenancy-api", "tenancy-decide", "tenancy-controllers"],
    ),
    (
        "tenancy-cli",
        &[
            "machinery",
            "api",
            "client",
            "pki",
            "runtime",
            "webhook",
            "tenancy-api",
            "tenancy-decide",
            "tenancy-controllers",
            "tenancy-admission",
            "tenancy-proxy",
        ],
    ),
    ("workflow-api", &["machinery", "machinery-cel", "machinery-cron", "api"]),
    ("workflow-engine", &["machinery", "machinery-cron", "machinery-cel", "workflow-api"]),
    ("workflow-outbound", &["machinery-lookup", "machinery-networks", "s3"]),
    ("workflow-store", &["workflow-outbound"]),
    ("workflow-convert", &["machinery", "workflow-api", "workflow-engine"]),
    (
        "workflow-controller",
        &[
            "machinery",
            "machinery-cel",
            "machinery-cron",
            "api",
            "client",
            "runtime",
            "webhook",
            "workflow-api",
            "workflow-convert",
            "workflow-engine",
            "workflow-outbound",
            "workflow-store",
        ],
    ),
    ("workflow-server", &["machinery", "client", "workflow-api", "workflow-store", "workflow-convert"]),
    (
        "workflow-cli",
        &[
            "machinery",
            "api",
            "client",
            "pki",
            "runtime",
            "webhook",
            "workflow-api",
            "workflow-engine",
            "workflow-outbound",
            "workflow-store",
            "workflow-controller",
            "workflow-server",
            "workflow-convert",
        ],
    ),
    ("workloads-decide", &["machinery", "api"]),
    ("workloads-syncer", &["machinery", "api", "client", "pki", "runtime", "workloads-decide"]),
    ("scheduler", &["machinery", "client", "runtime"]),
    ("gateway", &["machinery", "api", "client", "runtime", "pki"]),
    // The program: the one crate that knows both sides.
    (
        "cli",
        &[
            "machinery",
            "api",
            "pki",
            "client",
            "s3",
            "telemetry",
            "apiserver",
            "runtime",
            "controller-manager",
            "provisioner",
            "node",
            "gateway",
            "tenancy-cli",
            "workflow-cli",
            "workloads-syncer",
            "scheduler",
        ],
    ),
    ("tests-harness", &["client", "pki"]),
    (
        "tests-integration",
        &[
            "machinery",
            "api",
            "pki",
            "client",
            "apiserver-storage",
            "apiserver-storage-etcd",
            "tests-harness",
        ],
    ),
    ("tests-differential", &["client", "tests-harness"]),
    ("tests-bench", &["machinery", "api", "pki", "client", "tests-harness"]),
    ("tests-conformance", &["tests-harness"]),
    (
        "tests-fuzz",
        &[
            "machinery",
            "machinery-protobuf",
            "apiserver-authn",
            "apiserver-catalog",
            "apiserver-storage",
            "apiserver-storage-embedded",
            "apiserver-storage-etcd",
        ],
    ),
    ("tests-deploy", &["tests-harness", "provisioner"]),
    ("tests-tidy", &[]),
];

/// What tests of any crate may use besides.
const IN_TESTS: &[&str] = &[
    "machinery",
    "machinery-patch",
    "machinery-table",
    "api",
    "pki",
    "client",
    "apiserver-storage-embedded",
    "apiserver-storage-etcd",
    // The registry is tried over the layers that servers have.
    "apiserver-planes",
    "tests-harness",
    "tests-fuzz",
];

fn short(name: &str) -> &str {
    name.strip_prefix("freehold-").unwrap_or(name)
}

fn allowed(package: &Package) -> Option<&'static [&'static str]> {
    LAYERS.iter().find(|(name, _)| *name == short(&package.name)).map(|(_, allowed)| *allowed)
}

#[test]
fn every_edge_is_in_the_table() {
    let mut wrong = Vec::new();
    for package in packages() {
        let Some(allowed) = allowed(&package) else {
            wrong.push(format!("{} is not in the table", package.name));
            continue;
        };
        for (to, only_tests) in &package.edges {
            let to = short(to);
            let fine = allowed.contains(&to) || *only_tests && IN_TESTS.contains(&to);
            if !fine {
                wrong.push(format!(
                    "{} -> {to}{}",
                    short(&package.name),
                    if *only_tests { " (tests)" } else { "" }
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "edges that are not in the table of this test:\n{}", wrong.join("\n"));
}

#[test]
fn the_table_has_no_cycles_and_no_strangers() {
    let names: Vec<String> = packages().iter().map(|package| short(&package.name).to_owned()).collect();
    for (index, (name, allowed)) in LAYERS.iter().enumerate() {
        assert!(names.iter().any(|n| n == name), "{name} is not of the workspace");
        for to in *allowed {
            assert!(
                LAYERS[..index].iter().any(|(lower, _)| lower == to),
                "{name} -> {to} does not lead downwards"
            );
        }
    }
}

#[test]
fn clients_of_the_apiserver_know_nothing_of_its_inside() {
    for (name, allowed) in LAYERS {
        let inside = name.starts_with("apiserver");
        let knows = allowed.iter().any(|to| to.starts_with("apiserver"));
        // Fuzz targets try pure functions: with the built-in kinds' schemas, and who a certificate makes of its bearer; and both
        // play a pair with its engine.
        assert!(
            inside || !knows || matches!(*name, "cli" | "tests-fuzz" | "tests-integration"),
            "{name} reaches into the apiserver"
        );
        assert!(*name == "cli" || !allowed.contains(&"apiserver"), "{name} depends on the assembly");
    }
}

/// What is pure, or nearly: nothing to wait for, no sockets.
const PURE: &[&str] = &[
    "machinery",
    "machinery-cel",
    "machinery-cron",
    "machinery-identity",
    "machinery-networks",
    "machinery-patch",
    "machinery-protobuf",
    "machinery-quota",
    "machinery-table",
    "api",
    "pki",
    "apiserver-authz",
    "apiserver-admission",
    "apiserver-catalog",
    "apiserver-kinds",
    "apiserver-resource-metrics",
];

/// What lies below the edge and does wait. The etcd engine is not among them: its protocol is HTTP.
const BELOW_THE_EDGE: &[&str] = &[
    "apiserver-storage",
    "apiserver-storage-embedded",
    "apiserver-storage-sealed",
    "apiserver-cache",
    "apiserver-audit",
    "apiserver-authn",
    "apiserver-operation",
    "apiserver-ledger",
    "apiserver-registry",
    "apiserver-planes",
];

const HTTP: &[&str] =
    &["http", "http-body", "http-body-util", "hyper", "hyper-util", "tonic", "tower", "tokio-rustls"];
const ASYNC: &[&str] = &["tokio", "tokio-stream", "tokio-util", "futures-util", "async-trait"];

#[test]
fn nothing_below_the_edge_knows_http_and_nothing_pure_waits() {
    let mut wrong = Vec::new();
    for package in array(&metadata()["packages"]) {
        let name = short(text(&package["name"]));
        let (pure, below) = (PURE.contains(&name), BELOW_THE_EDGE.contains(&name));
        let uses = array(&package["dependencies"]).filter(|d| d["kind"] != "dev").map(|d| text(&d["name"]));
        let banned = |uses: &&str| (pure || below) && HTTP.contains(uses) || pure && ASYNC.contains(uses);
        wrong.extend(uses.filter(banned).map(|uses| format!("{name} -> {uses}")));
    }
    assert!(wrong.is_empty(), "what these crates must not know:\n{}", wrong.join("\n"));
}

#[test]
fn a_packages_name_is_its_path() {
    for package in packages() {
        assert_eq!(
            package.name,
            format!("freehold-{}", package.folder.replace('/', "-")),
            "{}",
            package.folder
        );
    }
}

#[test]
fn every_package_inherits_lints_licence_and_version() {
    for package in packages() {
        let manifest = top().join(&package.folder).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).expect("a manifest that cargo read");
        for line in [
            "[lints]\nworkspace = true",
            "license.workspace = true",
            "version.workspace = true",
            "edition.workspace = true",
        ] {
            assert!(text.contains(line), "{} lacks {line:?}", manifest.display());
        }
        for line in text.lines().filter(|line| line.starts_with("freehold-") || line.contains(" = \"")) {
            let pinned = line.contains("= \"")
                && !["name", "description", "path", "build"].iter().any(|k| line.starts_with(k));
            assert!(!pinned, "{}: {line:?} names a version; the workspace does", manifest.display());
        }
    }
}

#[test]
fn the_workspace_forbids_unsafe_code_and_unwrap() {
    let text = std::fs::read_to_string(top().join("Cargo.toml")).expect("the workspace's manifest");
    for line in ["unsafe_code = \"forbid\"", "unwrap_used = \"warn\"", "missing_docs = \"warn\""] {
        assert!(text.contains(line), "Cargo.toml lacks {line}");
    }
}
