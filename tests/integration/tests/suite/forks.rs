//! Snapshots, forks, restores, archives and class layers, through `kubectl` and `freehold project`.

use crate::{PATIENCE, Scratch, contains_all, items, names, text};
use freehold_tests_integration::{Engine, Http, Kubectl, Server, World, facts, until};
use http::Method;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

facts!(world:
    a_fork_has_what_its_source_had_and_they_go_apart,
    lists_pages_and_watches_are_merged_over_a_fork,
    a_fork_is_an_identity_of_its_own,
    a_fork_can_be_made_of_an_earlier_revision,
    a_restore_takes_back_one_project_and_no_other,
    snapshots_and_restores_are_objects_of_the_organization,
    nothing_of_another_organization_can_be_forked,
    a_project_is_exported_and_imported,
    what_is_being_deleted_is_not_taken_for_whole,
    what_hangs_together_in_a_fork_is_deleted_together,
    a_class_brings_objects_that_can_be_kept,
);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Makes a project with three ConfigMaps in an organization of its own.
fn source(world: &World, name: &str) -> Kubectl {
    world.organization(name, &[name]);
    let kubectl = world.server().project(name);
    for map in ["a", "b", "c"] {
        kubectl.ok(&["create", "configmap", map, "--from-literal=from=source"]);
    }
    kubectl
}

fn freehold(world: &World, args: &[&str]) -> String {
    world.server().freehold(&[&["project"], args].concat()).expect_ok()
}

/// The ConfigMaps of a project in its default namespace, without the one that each namespace has.
fn maps(kubectl: &Kubectl) -> Vec<String> {
    let list = kubectl.json(&["get", "configmaps"]);
    names(&list).into_iter().filter(|name| *name != "kube-root-ca.crt").map(str::to_owned).collect()
}

fn a_fork_has_what_its_source_had_and_they_go_apart(world: &World) {
    let original = source(world, "apart");
    let said = freehold(world, &["snapshot", "apart", "--name", "s1"]);
    contains_all(&said, &["snapshot s1 of apart", "3 objects"]);
    freehold(world, &["fork", "apart", "--to", "apart-2", "--snapshot", "s1"]);
    let fork = world.server().project("apart-2");
    assert_eq!(maps(&fork), ["a", "b", "c"]);
    fork.ok(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"from":"fork"}}"#]);
    fork.ok(&["delete", "configmap", "b"]);
    fork.ok(&["create", "configmap", "d"]);
    original.ok(&["create", "configmap", "e"]);
    original.ok(&["delete", "configmap", "c"]);
    assert_eq!(maps(&fork), ["a", "c", "d"]);
    assert_eq!(maps(&original), ["a", "b", "e"]);
    assert_eq!(text(&fork.json(&["get", "configmap", "a"]), "/data/from"), "fork");
    assert_eq!(text(&original.json(&["get", "configmap", "a"]), "/data/from"), "source");
    fork.ok(&["create", "configmap", "b"]);
    assert_eq!(maps(&fork), ["a", "b", "c", "d"]);
    // The source goes, and the snapshot: the fork stays as it is.
    world.admin().ok(&[
        "delete",
        "projectsnapshot",
        "s1",
        "--namespace=organization-apart",
        "--timeout=120s",
    ]);
    world.admin().ok(&["delete", "project", "apart", "--timeout=120s"]);
    assert_eq!(maps(&fork), ["a", "b", "c", "d"]);
}

fn lists_pages_and_watches_are_merged_over_a_fork(world: &World) {
    source(world, "merged");
    freehold(world, &["fork", "merged", "--to", "merged-2"]);
    let fork = world.server().project("merged-2");
    let http = Http::of(&fork);
    let first = http.get(&format!("{MAPS}?limit=2")).body;
    assert_eq!(names(&first), ["a", "b"]);
    let version = text(&first, "/metadata/resourceVersion").to_owned();
    fork.ok(&["delete", "configmap", "c"]);
    fork.ok(&["label", "configmap", "a", "x=1"]);
    let token = text(&first, "/metadata/continue");
    let rest = http.get(&format!("{MAPS}?limit=10&continue={token}")).body;
    assert_eq!(
        names(&rest),
        ["c", "kube-root-ca.crt"],
        "a page is of the revision that the first one was of"
    );
    let exact = format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&http.get(&exact).body), ["a", "b", "c", "kube-root-ca.crt"]);
    assert_eq!(names(&http.get(MAPS).body), ["a", "b", "kube-root-ca.crt"]);
    let watch = format!("{MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=1");
    let events = until("a watch tells both changes in its time", PATIENCE, || {
        let watched = http.get(&watch).body;
        let lines = watched.as_str().unwrap_or_default().lines();
        let events: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        (events.len() >= 2).then_some(events)
    });
    let told: Vec<_> = events.iter().map(|e| (text(e, "/type"), text(e, "/object/metadata/name"))).collect();
    assert_eq!(told, [("DELETED", "c"), ("MODIFIED", "a")]);
    let older = http.get(&format!("{MAPS}?watch=true&resourceVersion=2&timeoutSeconds=1"));
    assert_eq!(older.code, 410, "{}", older.body);
}

fn a_fork_is_an_identity_of_its_own(world: &World) {
    let original = source(world, "identity");
    original.ok(&["create", "serviceaccount", "robot"]);
    original.ok(&[
        "create",
        "clusterrolebinding",
        "robot",
        "--clusterrole=cluster-admin",
        "--serviceaccount=default:robot",
    ]);
    let token = original.ok(&["create", "token", "robot"]);
    freehold(world, &["fork", "identity", "--to", "identity-2"]);
    let fork = world.server().project("identity-2");
    let uid = |kubectl: &Kubectl, what: &[&str]| {
        text(&kubectl.json(&[&["get"], what].concat()), "/metadata/uid").to_owned()
    };
    assert_ne!(uid(&original, &["namespace", "kube-system"]), uid(&fork, &["namespace", "kube-system"]));
    assert_eq!(uid(&original, &["configmap", "a"]), uid(&fork, &["configmap", "a"]));
    for (project, code) in [("identity", 200), ("identity-2", 401)] {
        let url = format!("{}/projects/{project}", world.server().url());
        assert_eq!(Http::with_token(&original, &url, token.trim()).get(MAPS).code, code, "{project}");
    }
    let own = fork.ok(&["create", "token", "robot"]);
    let url = format!("{}/projects/identity-2", world.server().url());
    assert_eq!(Http::with_token(&fork, &url, own.trim()).get(MAPS).code, 200);
}

fn a_fork_can_be_made_of_an_earlier_revision(world: &World) {
    let original = source(world, "earlier");
    let version = Http::of(&original).get(MAPS).body["metadata"]["resourceVersion"].clone();
    original.ok(&["delete", "configmap", "a", "b"]);
    let revision = version.as_str().unwrap_or_default();
    freehold(world, &["fork", "earlier", "--to", "earlier-2", "--revision", revision]);
    assert_eq!(maps(&world.server().project("earlier-2")), ["a", "b", "c"]);
    let refused = world.server().freehold(&[
        "project",
        "fork",
        "earlier",
        "--to",
        "earlier-3",
        "--revision",
        "999999999",
    ]);
    // Word for word: what changes each time would be noted each time, which is a change to be looked at anew.
    contains_all(&refused.expect_failure(), &["revision 999999999 is yet to come (BadRequest)"]);
    let url = format!("{}/projects/earlier-3", world.server().url());
    assert_eq!(
        Http::of_elsewhere(&world.admin(), &url).get(MAPS).code,
        503,
        "nothing is served before it is a fork"
    );
    world.admin().ok(&["delete", "project", "earlier-3", "--timeout=120s"]);
}

fn a_restore_takes_back_one_project_and_no_other(world: &World) {
    let kubectl = source(world, "back");
    world.organization("back", &["beside-back"]);
    let beside = world.server().project("beside-back");
    beside.ok(&["create", "configmap", "untouched"]);
    freehold(world, &["snapshot", "back", "--name", "good"]);
    kubectl.ok(&["delete", "configmap", "a"]);
    kubectl.ok(&["label", "configmap", "b", "x=1"]);
    kubectl.ok(&["create", "configmap", "later"]);
    let http = Http::of(&kubectl);
    let before = http.get(MAPS).body;
    let of = |list: &Value, name: &str| {
        let found = items(list).find(|item| text(item, "/metadata/name") == name);
        text(found.expect("it is there"), "/metadata/resourceVersion").parse::<u64>().expect("a number")
    };
    let watch = kubectl.background(&["get", "configmaps", "--watch"]);
    watch.wait_for("later");
    let theirs = beside.background(&["get", "configmaps", "--watch"]);
    theirs.wait_for("untouched");
    contains_all(&freehold(world, &["restore", "back", "--snapshot", "good"]), &["as in snapshot good"]);
    assert_eq!(maps(&kubectl), ["a", "b", "c"]);
    let after = http.get(MAPS).body;
    assert!(of(&after, "b") > of(&before, "b"), "resource versions never go back");
    let version = text(&before, "/metadata/resourceVersion");
    let old = http.get(&format!("{MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=1"));
    assert_eq!(old.code, 410, "{}", old.body);
    beside.ok(&["create", "configmap", "goes-on"]);
    theirs.wait_for("goes-on");
    kubectl.ok(&["create", "configmap", "again"]);
    freehold(world, &["restore", "back", "--snapshot", "good"]);
    assert_eq!(maps(&kubectl), ["a", "b", "c"], "as often as it is wanted");
    assert_eq!(maps(&beside), ["goes-on", "untouched"]);
}

fn object(kind: &str, organization: &str, name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": format!("organization-{organization}")}, "spec": spec,
    })
    .to_string()
}

fn snapshots_and_restores_are_objects_of_the_organization(world: &World) {
    let kubectl = source(world, "gitops");
    let view = world.at("/organizations/gitops").with(&["--namespace", "organization-gitops"]);
    let spec = json!({"projectRef": {"name": "gitops"}});
    view.apply(&object("ProjectSnapshot", "gitops", "nightly", &spec));
    view.ok(&["wait", "--for=jsonpath={.status.phase}=Ready", "projectsnapshot/nightly", "--timeout=120s"]);
    kubectl.ok(&["delete", "configmap", "a"]);
    let spec = json!({"projectRef": {"name": "gitops"}, "snapshotRef": {"name": "nightly"}});
    view.apply(&object("ProjectRestore", "gitops", "undo", &spec));
    view.ok(&["wait", "--for=jsonpath={.status.phase}=Completed", "projectrestore/undo", "--timeout=120s"]);
    assert_eq!(maps(&kubectl), ["a", "b", "c"]);
    contains_all(&view.ok(&["get", "projectsnapshots,projectrestores"]), &["nightly", "Ready", "Completed"]);
    let changed = view.run(&[
        "patch",
        "projectsnapshot",
        "nightly",
        "--type=merge",
        "-p",
        r#"{"spec":{"projectRef":{"name":"x"}}}"#,
    ]);
    contains_all(&changed.expect_failure(), &["immutable"]);
    // Whoever applies a folder does not say in which order.
    let spec = json!({"projectRef": {"name": "gitops"}, "snapshotRef": {"name": "later"}});
    view.apply(&object("ProjectRestore", "gitops", "first", &spec));
    view.ok(&["wait", "--for=jsonpath={.status.phase}=Pending", "projectrestore/first", "--timeout=120s"]);
    view.apply(&object("ProjectSnapshot", "gitops", "later", &json!({"projectRef": {"name": "gitops"}})));
    view.ok(&["wait", "--for=jsonpath={.status.phase}=Completed", "projectrestore/first", "--timeout=120s"]);
    let nowhere = world.server().freehold(&["project", "restore", "gitops", "--snapshot", "none"]);
    contains_all(&nowhere.expect_failure(), &["none", "not found"]);
}

fn nothing_of_another_organization_can_be_forked(world: &World) {
    source(world, "mine");
    freehold(world, &["snapshot", "mine", "--name", "secret"]);
    world.organization("robber", &[]);
    let view = world.at("/organizations/robber").with(&["--namespace", "organization-robber"]);
    let refused = view.run(&["get", "projectsnapshot", "secret", "--namespace=organization-mine"]);
    contains_all(&refused.expect_failure(), &["not found"]);
    let project = |name: &str, from: Value| {
        json!({
            "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": name},
            "spec": {"ownerRef": {"kind": "Organization", "name": "robber"}, "controlPlane": {"from": from}},
        })
        .to_string()
    };
    view.apply(&project("stolen-1", json!({"project": "mine"})));
    view.apply(&project("stolen-2", json!({"project": "mine", "snapshot": "secret"})));
    let spec = json!({"projectRef": {"name": "mine"}});
    view.apply(&object("ProjectSnapshot", "robber", "stolen", &spec));
    for (kind, name, reason) in [
        ("project", "stolen-1", "ProjectNotFound"),
        ("project", "stolen-2", "SnapshotNotFound"),
        ("projectsnapshot", "stolen", "ProjectNotFound"),
    ] {
        until(&format!("{name}: {reason}"), PATIENCE, || {
            let found = view.json(&["get", kind, name]);
            (text(&found, "/status/conditions/0/reason") == reason).then_some(())
        });
    }
    let changed = view.run(&[
        "patch",
        "project",
        "stolen-1",
        "--type=merge",
        "-p",
        r#"{"spec":{"controlPlane":{"from":null}}}"#,
    ]);
    contains_all(&changed.expect_failure(), &["from is immutable"]);
    for actions in ["/planes/core/layers/x", "/planes/core/stack?layer=x"] {
        let answer = Http::of_elsewhere(&world.server().project("mine"), world.server().url());
        assert!([401, 403].contains(&answer.json(Method::PUT, actions, &json!({})).code), "{actions}");
    }
}

fn a_project_is_exported_and_imported(world: &World) {
    let original = source(world, "archived");
    let file = Scratch::new(world, "archived.fha", "");
    let refused = world.server().freehold(&["project", "export", "archived", file.path()]);
    contains_all(&refused.expect_failure(), &["can't be written"]);
    std::fs::remove_file(file.path()).expect("it is there");
    contains_all(&freehold(world, &["export", "archived", file.path()]), &["3 objects of archived"]);
    let mode = std::fs::metadata(file.path()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "Secrets are in it");
    let nobodys = ["project", "import", file.path(), "--to", "nobodys", "--organization", "nobody"];
    contains_all(
        &world.server().freehold(&nobodys).expect_failure(),
        &["there is no organization", "can be deleted"],
    );
    let organization = ["--organization", "archived"];
    freehold(world, &[&["import", file.path(), "--to", "archived-2"][..], &organization].concat());
    let copy = world.server().project("archived-2");
    assert_eq!(maps(&copy), maps(&original));
    let again = world.server().freehold(&["project", "import", file.path(), "--to", "archived"]);
    contains_all(&again.expect_failure(), &["new or empty project"]);
    let mut bytes = std::fs::read(file.path()).expect("the file is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file.path(), &bytes).expect("it can be written");
    let broken = world
        .server()
        .freehold(&[&["project", "import", file.path(), "--to", "archived-3"][..], &organization].concat());
    contains_all(&broken.expect_failure(), &["can't be imported"]);
    world.admin().fails(&["get", "project", "archived-3"]);
}

fn what_is_being_deleted_is_not_taken_for_whole(world: &World) {
    let kubectl = source(world, "unexported");
    let held = r#"{"metadata":{"finalizers":["example.com/wait"]}}"#;
    kubectl.ok(&["patch", "configmap", "a", "--type=merge", "-p", held]);
    world.admin().ok(&["delete", "project", "unexported", "--wait=false"]);
    let file = Scratch::new(world, "unexported.fha", "");
    std::fs::remove_file(file.path()).expect("it is there");
    let export = world.server().freehold(&["project", "export", "unexported", file.path()]);
    contains_all(&export.expect_failure(), &["it is being deleted"]);
    assert!(!std::path::Path::new(file.path()).exists(), "half an export looks like a whole one");
    kubectl.ok(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    World::gone(&world.admin(), &["project", "unexported"]);
}

fn what_hangs_together_in_a_fork_is_deleted_together(world: &World) {
    let original = source(world, "owned");
    original.ok(&["create", "namespace", "shop"]);
    original.ok(&["create", "deployment", "web", "--image=x", "--namespace=shop"]);
    original.ok(&["wait", "--for=create", "pod", "-l", "app=web", "--namespace=shop", "--timeout=120s"]);
    freehold(world, &["fork", "owned", "--to", "owned-2"]);
    let fork = world.server().project("owned-2").with(&["--namespace", "shop"]);
    fork.ok(&["delete", "deployment", "web"]);
    World::gone(&fork, &["replicasets,pods"]);
    fork.ok(&["create", "configmap", "own"]);
    fork.ok(&["delete", "namespace", "shop", "--timeout=120s"]);
    World::gone(&fork, &["namespace", "shop"]);
    assert_eq!(items(&original.json(&["get", "pods", "--namespace=shop"])).count(), 1);
}

fn a_class_brings_objects_that_can_be_kept(world: &World) {
    let class = |data: &str, deletion: &str| {
        json!({
            "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "ControlPlaneClass",
            "metadata": {"name": "house"},
            "spec": {"objectDeletion": deletion, "objects": [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "house"}},
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rules", "namespace": "house"},
                 "data": {"text": data}},
            ]},
        })
        .to_string()
    };
    let admin = world.admin();
    admin.apply(&class("one", "Refused"));
    world.organization("classy", &[]);
    let spec =
        json!({"ownerRef": {"kind": "Organization", "name": "classy"}, "controlPlane": {"class": "house"}});
    admin.apply(
        &json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project",
        "metadata": {"name": "classy"}, "spec": spec})
        .to_string(),
    );
    world.wait_ready("classy");
    let kubectl = world.server().project("classy").with(&["--namespace", "house"]);
    let rules =
        |kubectl: &Kubectl| text(&kubectl.json(&["get", "configmap", "rules"]), "/data/text").to_owned();
    until("the class' objects are there", PATIENCE, || {
        kubectl.run(&["get", "configmap", "rules"]).success.then_some(())
    });
    contains_all(&kubectl.fails(&["delete", "configmap", "rules"]), &["Forbidden", "doesn't allow"]);
    let watch = kubectl.background(&["get", "configmaps", "--watch-only"]);
    admin.apply(&class("two", "Allowed"));
    until("the change reaches the project", PATIENCE, || (rules(&kubectl) == "two").then_some(()));
    kubectl.ok(&["label", "configmap", "rules", "mine=1"]);
    admin.apply(&class("three", "Allowed"));
    admin.ok(&[
        "wait",
        "--for=jsonpath={.status.observedGeneration}=3",
        "controlplaneclass/house",
        "--timeout=120s",
    ]);
    assert_eq!(rules(&kubectl), "two", "what a project has changed is its own");
    kubectl.ok(&["delete", "configmap", "rules"]);
    kubectl.fails(&["get", "configmap", "rules"]);
    drop(watch);
    let wrong = class("four", "Allowed").replace("ConfigMap", "ConfigMop");
    contains_all(&admin.run_with_input(&["apply", "-f", "-"], &wrong).expect_failure(), &["ConfigMop"]);
}

mod killed {
    use super::*;

    facts!(engine: a_server_that_is_killed_finishes_snapshots_forks_and_restores_or_leaves_nothing);
}

/// Asks for something, kills the server after a while, and wants it done after the next start.
fn a_server_that_is_killed_finishes_snapshots_forks_and_restores_or_leaves_nothing(engine: Engine) {
    let mut server = Server::start(engine);
    let admin = server.kubectl();
    let base =
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: k}\n---\n";
    let project = |name: &str, more: &str| {
        format!(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\nspec: {{ownerRef: {{kind: Organization, name: k}}{more}}}\n"
        )
    };
    admin.apply(&format!("{base}{}", project("k", "")));
    admin.ok(&["wait", "--for=condition=Ready", "project/k", "--timeout=120s"]);
    let kubectl = server.project("k");
    let http = Http::of(&kubectl);
    for nth in 0..400 {
        let object = json!({"metadata": {"name": format!("n{nth:03}")}, "data": {"k": "v".repeat(500)}});
        assert_eq!(http.json(Method::POST, MAPS, &object).code, 201);
    }
    let pauses = [0, 10, 40];
    for (round, pause) in pauses.into_iter().enumerate() {
        let spec = json!({"projectRef": {"name": "k"}});
        admin.apply(&object("ProjectSnapshot", "k", &format!("s{round}"), &spec));
        std::thread::sleep(Duration::from_millis(pause));
        server.kill();
        server.restart();
        let name = format!("projectsnapshot/s{round}");
        let phase = "--for=jsonpath={.status.phase}=Ready";
        admin.ok(&["wait", phase, &name, "--namespace=organization-k", "--timeout=120s"]);
        let made = admin.json(&["get", &name, "--namespace=organization-k"]);
        assert_eq!(made["status"]["objects"], 400, "{made}");
        let fork = format!("k{round}");
        admin.apply(&project(&fork, ", controlPlane: {from: {project: k}}"));
        std::thread::sleep(Duration::from_millis(pause));
        server.kill();
        server.restart();
        admin.ok(&["wait", "--for=condition=Ready", &format!("project/{fork}"), "--timeout=120s"]);
        assert_eq!(maps(&server.project(&fork)).len(), 400);
        let spec = json!({"projectRef": {"name": fork}, "snapshotRef": {"name": format!("s{round}")}});
        admin.apply(&object("ProjectRestore", "k", &format!("r{round}"), &spec));
        let failed = "--for=jsonpath={.status.phase}=Failed";
        admin.ok(&[
            "wait",
            failed,
            &format!("projectrestore/r{round}"),
            "--namespace=organization-k",
            "--timeout=120s",
        ]);
        server.project("k").ok(&["create", "configmap", "later"]);
        let spec = json!({"projectRef": {"name": "k"}, "snapshotRef": {"name": format!("s{round}")}});
        admin.apply(&object("ProjectRestore", "k", &format!("t{round}"), &spec));
        std::thread::sleep(Duration::from_millis(pause));
        server.kill();
        server.restart();
        let done = "--for=jsonpath={.status.phase}=Completed";
        admin.ok(&[
            "wait",
            done,
            &format!("projectrestore/t{round}"),
            "--namespace=organization-k",
            "--timeout=120s",
        ]);
        assert_eq!(maps(&server.project("k")).len(), 400, "round {round}");
    }
}

/// How many objects the large plane has: `FREEHOLD_TEST_OBJECTS`, 100000 in the long form.
fn many() -> usize {
    std::env::var("FREEHOLD_TEST_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

mod large {
    use super::*;

    facts!(engine: a_large_project_is_snapshotted_forked_and_deleted_while_others_go_on);
}

fn a_large_project_is_snapshotted_forked_and_deleted_while_others_go_on(engine: Engine) {
    let server = Server::start(engine);
    let admin = server.kubectl();
    let project = |name: &str| {
        format!(
            "---\napiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\nspec: {{ownerRef: {{kind: Organization, name: l}}}}\n"
        )
    };
    let organization =
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: l}\n";
    admin.apply(&format!("{organization}{}{}", project("large"), project("small")));
    admin.ok(&["wait", "--for=condition=Ready", "project/large", "project/small", "--timeout=120s"]);
    fill(&server, many());
    let other = Http::of(&server.project("small"));
    let step = |what: &str, work: &(dyn Fn() + Sync)| {
        let (begun, mut took) = (Instant::now(), Vec::new());
        std::thread::scope(|scope| {
            let running = scope.spawn(work);
            while !running.is_finished() {
                let asked = Instant::now();
                let object = json!({"metadata": {"generateName": "x-"}});
                assert_eq!(other.json(Method::POST, MAPS, &object).code, 201);
                took.push(asked.elapsed());
            }
        });
        took.sort_unstable();
        let at = |percent: usize| took.get((took.len() * percent / 100).min(took.len() - 1)).copied();
        println!(
            "{engine:?}: {what} with {} objects took {:?}; {} creates in another project meanwhile, 50 % in {:?}, 99 % in \
             {:?}, all in {:?}",
            many(),
            begun.elapsed(),
            took.len(),
            at(50).unwrap_or_default(),
            at(99).unwrap_or_default(),
            at(100).unwrap_or_default(),
        );
    };
    step("snapshot", &|| drop(server.freehold(&["project", "snapshot", "large", "--name", "s"]).expect_ok()));
    step("fork", &|| {
        drop(server.freehold(&["project", "fork", "large", "--to", "copy", "--snapshot", "s"]).expect_ok());
    });
    let list = Http::of(&server.project("copy")).get(&format!("{MAPS}?limit=1")).body;
    assert_eq!(list["metadata"]["remainingItemCount"], many());
    step("restore", &|| {
        drop(server.freehold(&["project", "restore", "large", "--snapshot", "s"]).expect_ok());
    });
    step("delete", &|| drop(admin.ok(&["delete", "project", "copy", "large", "--timeout=170s"])));
}

fn fill(server: &Server, count: usize) {
    std::thread::scope(|scope| {
        for part in 0..8 {
            let http = Http::of(&server.project("large"));
            scope.spawn(move || {
                for nth in (part..count).step_by(8) {
                    let object =
                        json!({"metadata": {"name": format!("n{nth:06}")}, "data": {"k": "v".repeat(300)}});
                    assert_eq!(http.json(Method::POST, MAPS, &object).code, 201);
                }
            });
        }
    });
}
