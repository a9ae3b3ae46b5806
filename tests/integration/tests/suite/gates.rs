//! The table of gates: what each write passes, by every way in. The file is `tests/integration/access-gates.txt`;
//! `FREEHOLD_MATRIX_WRITE=1` writes it anew.
//!
//! Each verb that writes of each resource, subresource and version that the server shows is tried, so that a new one fails this
//! test until its line is read by somebody. A gate that one lacks needs a reason in `EXCEPTIONS`.
//!
//! | gate | how it is seen |
//! | --- | --- |
//! | authorization | a user without rights is refused |
//! | suspension | whoever may do it is refused while the project or organization is suspended |
//! | webhooks, policies | a webhook or policy that refuses everything refuses it |
//! | quota | a ResourceQuota of none refuses a creation |
//! | allowances | an organization that is granted none of a kind can't make one |
//! | audit | it is in the audit log |
//! | trail | the organization's own trail has it |
//!
//! What comes into a plane without such a request (an import, a fork, a restore) is in `arrivals.rs`, and the paths that the
//! router has beside resources are compared with its code by `routes.rs`.

#[path = "gates/arrivals.rs"]
mod arrivals;
#[path = "gates/probes.rs"]
mod probes;
#[path = "gates/routes.rs"]
mod routes;
#[path = "gates/shut.rs"]
mod shut;

use crate::{PATIENCE, access::member, attacks_audit, contains_all, text};
use freehold_tests_integration::{Engine, HookServer, Http, Kubectl, Options, Server, until};
use probes::{Probe, Probes};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/access-gates.txt");
const OBJECTS: &str = include_str!("../../gate-objects.yaml");
const SHARED_OBJECTS: &str = include_str!("../../gate-objects-shared.yaml");
const CORE_OBJECTS: &str = include_str!("../../gate-objects-core.yaml");
const DOMAIN: &str = "walls.example";
const RESOURCES: &str = "/apis/resourcemanager.freehold.dev/v1alpha1";
/// How many ask at a time.
const THREADS: usize = 4;
/// Gates in the order in which a line has them, with what their refusals say.
const GATES: [(&str, &str); 6] = [
    ("authorization", " cannot "),
    ("suspension", "is suspended"),
    ("webhooks", "the hook is shut"),
    ("policies", "the policy is shut"),
    ("quota", "exceeded quota: none"),
    ("allowances", "exceeded quota of organization"),
];

/// Gates that count what is made.
const COUNTS: [&str; 2] = ["quota", "allowances"];

/// What refusals say at no gate: the user who may do everything may not do this, so that nobody comes to the other gates.
const CLOSED: [&str; 2] = [" cannot ", "it must belong to organization"];
const NOBODY: &str = "closed";

/// Why a write lacks a gate: the gate, what its line begins with, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 26] = [
    ("suspension", "resourcemanager.freehold.dev/v1alpha1/organizations update", LIFTS),
    ("suspension", "resourcemanager.freehold.dev/v1alpha1/organizations patch", LIFTS),
    ("webhooks", "admissionregistration.k8s.io/", OWN),
    ("policies", "admissionregistration.k8s.io/", OWN),
    ("policies", "authentication.k8s.io/v1/selfsubjectreviews", REVIEW),
    ("policies", "authentication.k8s.io/v1/tokenreviews", REVIEW),
    ("policies", "authorization.k8s.io/", REVIEW),
    ("policies", "apis.freehold.dev/", INVALID),
    ("webhooks", "apis.freehold.dev/", INVALID),
    ("webhooks", "/", PATH),
    ("policies", "/", PATH),
    ("quota", "/", PATH),
    ("authorization", "authentication.k8s.io/v1/selfsubjectreviews", SELF),
    ("authorization", "authorization.k8s.io/v1/selfsubject", SELF),
    ("webhooks", "authorization.k8s.io/", PAIR),
    ("webhooks", "authentication.k8s.io/", PAIR),
    ("webhooks", probes::AGGREGATED, REMOTE),
    ("policies", probes::AGGREGATED, REMOTE),
    ("quota", probes::AGGREGATED, REMOTE),
    ("trail", "coordination.k8s.io/v1/leases", OFTEN),
    ("trail", "core/v1/events", OFTEN),
    ("trail", "events.k8s.io/", OFTEN),
    ("trail", "authorization.k8s.io/", ASKS),
    ("trail", "authentication.k8s.io/", ASKS),
    ("trail", "/", READS),
    ("trail", "gate.example.com/v1/things get", READS),
];
const CONTROLLERS: &str = "nobody who is no controller of the platform may do it, or nobody here";
const LIFTS: &str = "it lifts the suspension, where that is the organization's to lift";
const OWN: &str = "nobody locks themselves out of the configuration of admission";
const REVIEW: &str = "policies never see reviews, as in kube-apiserver: what asks them would stand still";
const INVALID: &str =
    "a second binding of one kind, and the end of what others rest on, are refused before admission is asked";
const PATH: &str = "no object is written: archives are validated on import, and charged";
const SELF: &str = "everybody may ask what they are and may do";
const REMOTE: &str = "the extension server admits and counts what it keeps, and is asked after these gates";
const OFTEN: &str = "it is written all the time and changes nothing";
const ASKS: &str = "a question changes nothing";
const READS: &str = "it is no path here, or changes nothing";
const PAIR: &str =
    "reviews about a dedicated plane are answered by the core server, which has none of its webhooks";

/// A way in: its name, where it is, who may do everything there, and which gates it has.
struct Way<'a> {
    name: &'static str,
    owner: Http,
    stranger: Http,
    gates: &'a [&'static str],
    /// What is suspended to see the gate: the path of an organization or project.
    suspends: &'static str,
    /// The write by which it is seen that a gate is shut.
    waits: &'static str,
    probes: Vec<Probe>,
}

/// What was found at the gates of each write.
#[derive(Default)]
struct Found(BTreeMap<String, BTreeSet<&'static str>>);

impl Way<'_> {
    fn has(&self, gate: &str) -> bool {
        self.gates.contains(&gate)
    }

    /// Sends one more request, which is in a trail behind all others, and gives its mark.
    fn last(&self) -> String {
        let is_it = |probe: &&Probe| probe.label() == self.waits;
        let probe = self.probes.iter().find(is_it).expect("the write that is waited for");
        let name = format!("{} ends", self.name);
        probe.send(&self.owner, &name);
        probes::mark(&name, self.waits)
    }

    /// Tries everything, and notes what is refused at a gate.
    fn pass(&self, gate: &'static str, found: &mut Found) {
        if !self.has(gate) {
            return;
        }
        let says = GATES.iter().find(|(name, _)| *name == gate).map_or("", |(_, says)| *says);
        let http = if gate == "authorization" { &self.stranger } else { &self.owner };
        let wanted: Vec<&Probe> = self.probes.iter().filter(|probe| probe.is_tried_at(gate)).collect();
        let ask = |part: &[&Probe]| -> Vec<(String, Option<&'static str>)> {
            let ask = |probe: &&Probe| {
                let answer = probe.send(http, self.name);
                let refused =
                    |says: &str| answer.code == 403 && text(&answer.body, "/message").contains(says);
                let is_closed = answer.code == 405 || CLOSED.into_iter().any(refused);
                let seen = match refused(says) {
                    true => Some(gate),
                    false => is_closed.then_some(NOBODY),
                };
                if seen.is_none() && std::env::var_os("FREEHOLD_GATES_SHOW").is_some() {
                    eprintln!("{gate} {} / {}: {} {}", self.name, probe.label(), answer.code, answer.body);
                }
                (probe.label(), seen)
            };
            part.iter().map(ask).collect()
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let parts = wanted.chunks(wanted.len().div_ceil(THREADS).max(1));
            let threads: Vec<_> = parts.map(|part| scope.spawn(|| ask(part))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("answers")).collect()
        });
        for (label, seen) in answers {
            found.0.entry(label).or_default().extend(seen);
        }
    }

    /// The table of this way.
    fn page(&self, found: Found, audited: &BTreeSet<String>, trail: Option<&BTreeSet<String>>) -> String {
        let mut by_gates: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (label, gates) in found.0 {
            let is_audited = audited.contains(&probes::mark(self.name, &label));
            assert!(is_audited, "{} / {label} is not in the audit log", self.name);
            let mut words: Vec<String> = Vec::new();
            let mut reasons: Vec<String> = Vec::new();
            let is_closed = gates.contains(NOBODY);
            reasons.extend(is_closed.then(|| format!("  {NOBODY}: {CONTROLLERS}")));
            for (gate, _) in GATES.iter().filter(|(gate, _)| self.has(gate)) {
                if gates.contains(gate) {
                    words.push((*gate).to_owned());
                } else if is_closed {
                } else if !COUNTS.contains(gate) || label.ends_with(" create") && gates.contains("policies") {
                    match exception(gate, &label) {
                        Some(why) => reasons.push(why),
                        None if COUNTS.contains(gate) => {}
                        None => panic!("{} / {label} does not pass {gate}", self.name),
                    }
                }
            }
            words.push("audit".to_owned());
            match trail.map(|trail| trail.contains(&probes::mark(self.name, &label))) {
                // What nobody can do is kept of some ways only.
                Some(_) if is_closed => {}
                Some(true) => words.push("trail".to_owned()),
                Some(false) => match exception("trail", &label) {
                    Some(why) => reasons.push(why),
                    None => panic!("{} / {label} is not in the organization's trail", self.name),
                },
                None => {}
            }
            let line = format!("{}\n{}", words.join(" "), reasons.join("\n"));
            by_gates.entry(line.trim_end().to_owned()).or_default().push(label);
        }
        let mut page = format!("\n== {}\n", self.name);
        for (gates, labels) in by_gates {
            let _ = writeln!(page, "{gates}:");
            for line in probes::joined(labels) {
                let _ = writeln!(page, "    {line}");
            }
        }
        page
    }
}

/// Why a write lacks a gate, as a line.
fn exception(gate: &str, label: &str) -> Option<String> {
    let known = EXCEPTIONS.iter().find(|(of, start, _)| *of == gate && label.starts_with(start));
    known.map(|(_, _, why)| format!("  no {gate}: {why}"))
}

/// A server that records what the test's users do, and lets webhooks be on this machine.
fn start(folder: &Path) -> Server {
    let policy = folder.join("policy.yaml");
    let users = "walls-owner, walls-operator, walls-stranger, 'freehold:project-admin'";
    let rules = format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  users: [{users}]\n- level: None\n"
    );
    fs::write(&policy, rules).expect("the test's folder can be written");
    let args = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", folder.join("audit.log").display()),
        "--outbound-networks=127.0.0.0/8".to_owned(),
        format!("--domain={DOMAIN}"),
    ];
    Server::start(Options { engine: Engine::Embedded, args, ..Options::default() })
}

/// The marks of the requests that the audit log has.
fn audited(folder: &Path, until_there: &str) -> BTreeSet<String> {
    until("the audit log has the last request", PATIENCE, || {
        let log = fs::read_to_string(folder.join("audit.log")).unwrap_or_default();
        let uris = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let marks = uris.filter_map(|event| {
            text(&event, "/requestURI").split_once("probe=").map(|(_, mark)| mark.to_owned())
        });
        let marks: BTreeSet<String> = marks.collect();
        marks.contains(until_there).then_some(marks)
    })
}

/// The marks of the requests that the organization's trail has.
fn kept(server: &Server, until_there: &str) -> BTreeSet<String> {
    until("the trail has the last request", PATIENCE, || {
        let events = attacks_audit::trail(&server.kubectl(), "walls");
        let marks = events.iter().filter_map(|event| text(event, "/requestURI").split_once("probe="));
        let marks: BTreeSet<String> = marks.map(|(_, mark)| mark.to_owned()).collect();
        marks.contains(until_there).then_some(marks)
    })
}

/// Makes the organization with its people and projects.
fn prepare(server: &Server) {
    let admin = server.kubectl();
    let project = |name: &str, mode: &str| {
        format!(
            "---\n{{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {{name: {name}}},
              spec: {{ownerRef: {{kind: Organization, name: walls}}, controlPlane: {{mode: {mode}}}}}}}\n"
        )
    };
    admin.apply(
        &("---\n{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Organization, metadata: {name: walls}}\n"
            .to_owned()
            + &project("walls-a", "Shared") + &project("walls-d", "Dedicated")),
    );
    until("the organization has its namespace", PATIENCE, || {
        admin.run(&["get", "namespace", "organization-walls"]).success.then_some(())
    });
    admin.apply(&member("walls", "walls-owner", "owner"));
    admin.ok(&[
        "create",
        "clusterrolebinding",
        "operator",
        "--clusterrole=cluster-admin",
        "--user=walls-operator",
    ]);
    admin.apply(CORE_OBJECTS);
    for name in ["walls-a", "walls-d"] {
        admin.ok(&["wait", "--for=condition=Ready", &format!("project/{name}"), "--timeout=180s"]);
        let project = server.project(name);
        project.ok(&["create", "namespace", "walls"]);
        furnish(&project, "walls");
    }
    let shared = server.project("walls-a").with(&["--namespace", "walls"]);
    shared.apply(SHARED_OBJECTS);
    furnish(&admin, "organization-walls");
}

/// Puts an object of each kind into a plane.
fn furnish(plane: &Kubectl, namespace: &str) {
    let plane = plane.with(&["--namespace", namespace]);
    plane.apply(&OBJECTS.replace("namespace: walls", &format!("namespace: {namespace}")));
    plane.ok(&["wait", "--for=condition=Established", "crd/gates.example.com", "--timeout=60s"]);
    until("custom resources can be made", PATIENCE, || {
        let gate =
            "---\n{apiVersion: example.com/v1, kind: Gate, metadata: {name: gate}, spec: {replicas: 1}}";
        plane.run_with_input(&["apply", "-f", "-"], gate).success.then_some(())
    });
    let key = freehold_pki::PrivateKey::generate().expect("a key");
    let client = freehold_pki::ClientName { user: "gate", groups: &[], plane: None };
    let request = freehold_pki::csr::request(&key, &client, &[] as &[&str]).expect("a request");
    let request = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, request);
    let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "gate"},
        "spec": {"signerName": "example.com/gate", "usages": ["client auth"], "request": request}});
    plane.apply(&object.to_string());
}

const ALL: [&str; 6] = ["authorization", "suspension", "webhooks", "policies", "quota", "allowances"];

/// By what a member leaves.
const LEAVES: &str = "resourcemanager.freehold.dev/v1alpha1/organizationmemberships delete";

#[test]
fn each_write_passes_the_gates_that_the_table_names() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let server = start(folder.path());
    prepare(&server);
    let hooks = HookServer::admission(
        |_| json!({"allowed": false, "status": {"message": "the hook is shut", "code": 403}}),
    );
    let at = |kubectl: &Kubectl, path: &str| Http::of_elsewhere(kubectl, &format!("{}{path}", server.url()));
    let person = |user: &str, path: &str| at(&server.person(user), path);
    let admin = |path: &str| at(&server.kubectl(), path);
    let plane = |project: &str| {
        let object = server.kubectl().json(&["get", "project", project]);
        format!("/planes/{}", text(&object, "/metadata/uid"))
    };
    let (shared, id) = (plane("walls-a"), plane("walls-a"));
    let ways = [
        // Name, path, who may, from where it is furnished, its namespace, gates, what is suspended.
        (
            "project",
            "/projects/walls-a",
            person("walls-owner", "/projects/walls-a"),
            "walls",
            &ALL[..],
            "projects/walls-a",
        ),
        (
            "dedicated project",
            "/projects/walls-d",
            person("walls-owner", "/projects/walls-d"),
            "walls",
            &ALL[..5],
            "organizations/walls",
        ),
        (
            "project, by its kubeconfig",
            "/projects/walls-a",
            Http::of(&server.project("walls-a")),
            "walls",
            &ALL[1..2],
            "organizations/walls",
        ),
        (
            "dedicated project, by its kubeconfig",
            "/projects/walls-d",
            Http::of(&server.project("walls-d")),
            "walls",
            &ALL[1..2],
            "projects/walls-d",
        ),
        (
            "project, at its host",
            "/projects/walls-a",
            Http::of(&server.project_at_host("walls-a", DOMAIN, true)),
            "walls",
            &ALL[1..2],
            "projects/walls-a",
        ),
        ("plane, by its identifier", id.as_str(), person("walls-owner", &shared), "walls", &ALL[..1], ""),
        (
            "platform",
            "",
            person("walls-operator", ""),
            "organization-walls",
            &["authorization", "webhooks", "policies"],
            "",
        ),
        (
            "organization",
            "/organizations/walls",
            person("walls-owner", "/organizations/walls"),
            "organization-walls",
            &["authorization", "suspension", "webhooks", "allowances"],
            "organizations/walls",
        ),
        (
            "user",
            "/users/walls-owner",
            person("walls-owner", "/users/walls-owner"),
            "organization-walls",
            &["authorization", "suspension"],
            "organizations/walls",
        ),
    ];
    let mut page = String::from(
        "Which gates each write passes, by every way in, as the server lets them be seen. FREEHOLD_MATRIX_WRITE=1 writes it anew.\n\
         All of them are in the audit log.\n",
    );
    for (name, path, owner, namespace, gates, suspends) in ways {
        let stranger = if path.starts_with("/planes/") {
            person("walls-owner", path)
        } else {
            person("walls-stranger", path)
        };
        let inside = admin(if namespace == "walls" { path } else { "" });
        let is_user = path.starts_with("/users");
        let shown = if is_user { admin("") } else { admin(path) };
        let is_view = is_user || path.starts_with("/organizations");
        let probes = Probes { inside: &shown, namespace, is_view };
        // A user's view takes no object, but lets its user leave.
        let waits = if is_user { LEAVES } else { "core/v1/configmaps create" };
        let way = Way { name, owner, stranger, gates, suspends, waits, probes: probes.all() };
        assert!(way.probes.len() > 100, "{name}: {}", way.probes.len());
        let inside = if is_view { admin("") } else { inside };
        let found = shut::try_gates(&server, &way, &inside, &hooks);
        let last = way.probes.last().expect("a probe").label();
        let trail = (!suspends.is_empty()).then(|| kept(&server, &way.last()));
        page += &way.page(found, &audited(folder.path(), &probes::mark(name, &last)), trail.as_ref());
    }
    page += &arrivals::page(&server);
    if std::env::var_os("FREEHOLD_MATRIX_WRITE").is_some() {
        fs::write(FILE, &page).expect("the table can be written");
        return;
    }
    let known = fs::read_to_string(FILE).expect("the table");
    let difference = known.lines().zip(page.lines()).enumerate().find(|(_, (known, now))| known != now);
    assert!(
        known == page,
        "the gates have changed (FREEHOLD_MATRIX_WRITE=1 writes the table anew, to be read before it is committed): line {:?}",
        difference
    );
    contains_all(&page, &["core/v1/serviceaccounts/token create"]);
}
