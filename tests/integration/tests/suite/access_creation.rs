//! An organization is made with all that belongs to it, or not at all.

use crate::{PATIENCE, items, text};
use freehold_tests_integration::{Engine, Http, Options, Server, facts, until};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

facts!(engine:
    an_organization_is_made_whole_or_not_at_all_when_the_server_is_killed,
    a_project_comes_and_goes_whole_when_the_server_is_killed,
);

const ORGANIZATIONS: &str = "/apis/resourcemanager.freehold.dev/v1alpha1/organizations";
const PROJECTS: &str = "/apis/resourcemanager.freehold.dev/v1alpha1/projects";
/// How often the server is killed.
const ROUNDS: usize = 4;

fn organization(name: &str) -> Value {
    json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Organization", "metadata": {"name": name}})
}

/// Names in a list, as far as they begin with a prefix, which is cut off.
fn named(list: &Value, prefix: &str, pointer: &str) -> BTreeSet<String> {
    items(list).filter_map(|item| text(item, pointer).strip_prefix(prefix).map(str::to_owned)).collect()
}

fn an_organization_is_made_whole_or_not_at_all_when_the_server_is_killed(engine: Engine) {
    let mut server = Server::start(Options { engine, ..Options::default() });
    server.kubectl().apply(
        "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding, metadata: {name: makers, namespace: freehold-system},
          spec: {roleRef: {name: organization-creator}, subjects: [{kind: Group, name: \"system:authenticated\"}],
                 target: {kind: Platform}}}",
    );
    let maker = server.person("maker");
    until("the maker may make organizations", PATIENCE, || {
        let first = Http::of(&maker).json(Method::POST, ORGANIZATIONS, &organization("org-first"));
        assert!(matches!(first.code, 201 | 403 | 409), "{}", first.body);
        (first.code != 403).then_some(())
    });
    let mut acknowledged = BTreeSet::from(["org-first".to_owned()]);
    for round in 0..ROUNDS {
        let http = Http::of(&maker);
        let (tell, told) = std::sync::mpsc::channel();
        let makes = std::thread::spawn(move || {
            let mut made = Vec::new();
            for number in 0.. {
                let name = format!("org-{round}-{number}");
                match http.try_json(Method::POST, ORGANIZATIONS, &organization(&name)) {
                    Some(answer) if answer.code == 201 => {
                        made.push(name);
                        // Nobody listens any more once the server is killed.
                        let _ = tell.send(());
                    }
                    Some(answer) => assert!(answer.code >= 500 || answer.code == 429, "{}", answer.body),
                    None => return made,
                }
            }
            made
        });
        // In the middle of another one, which comes while this is received.
        assert_eq!(told.iter().take(5 + 4 * round).count(), 5 + 4 * round);
        server.kill();
        acknowledged.extend(makes.join().expect("the maker ends with the server"));
        server.restart();
        let admin = server.kubectl();
        // What the server had sent and nobody answered may come between two of these lists.
        let (made, members) =
            until("each has its namespace and its owner, and there is no other", PATIENCE, || {
                let made = named(&admin.json(&["get", "organizations"]), "", "/metadata/name");
                let namespaces =
                    named(&admin.json(&["get", "namespaces"]), "organization-", "/metadata/name");
                let members = admin.json(&["get", "organizationmemberships", "-A"]);
                let owned = named(&members, "organization-", "/metadata/namespace");
                (made == namespaces && made == owned).then_some((made, members))
            });
        assert!(acknowledged.is_subset(&made), "{:?}", acknowledged.difference(&made));
        for membership in items(&members) {
            assert_eq!(text(membership, "/spec/userRef/name"), "maker");
            assert_eq!(membership["spec"]["roles"], json!(["owner"]));
        }
    }
    // Who made it owns it.
    let view = maker.with(&["--server", &format!("{}/organizations/org-first", server.url())]);
    view.ok(&["get", "organizationmemberships", "-A"]);
}

fn project(name: &str) -> Value {
    json!({
        "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": name},
        "spec": {"ownerRef": {"kind": "Organization", "name": "whole"}},
    })
}

/// How a plane answers, by its identifier.
fn answers(http: &Http, plane: &str) -> u16 {
    http.get(&format!("/planes/{plane}/api/v1/namespaces/default")).code
}

/// What there is of projects: their names, identifiers, and the projects that Secrets with kubeconfigs are of.
fn projects(server: &Server) -> (BTreeSet<String>, BTreeSet<String>, BTreeSet<String>) {
    let list = server.kubectl().json(&["get", "projects"]);
    let secrets = server.kubectl().json(&["get", "secrets", "--namespace=organization-whole"]);
    let kubeconfigs = items(&secrets).filter_map(|s| text(s, "/metadata/name").strip_suffix("-kubeconfig"));
    (
        named(&list, "", "/metadata/name"),
        named(&list, "", "/metadata/uid"),
        kubeconfigs.map(str::to_owned).collect(),
    )
}

/// Sends requests one after the other until the server is killed, which is once `after` of them are answered; gives the
/// names that were.
fn killed_while(
    server: &mut Server,
    names: Vec<String>,
    after: usize,
    send: impl Fn(&Http, &str) -> Option<u16> + Send + 'static,
) -> Vec<String> {
    let http = Http::of(&server.kubectl());
    let (tell, told) = std::sync::mpsc::channel();
    let sends = std::thread::spawn(move || {
        let mut done = Vec::new();
        for name in names {
            match send(&http, &name) {
                Some(200..=299) => {
                    done.push(name);
                    // Nobody listens any more once the server is killed.
                    let _ = tell.send(());
                }
                Some(code) => assert!(code >= 500 || code == 429, "{code}"),
                None => break,
            }
        }
        done
    });
    assert_eq!(told.iter().take(after).count(), after);
    server.kill();
    let done = sends.join().expect("it ends with the server");
    server.restart();
    done
}

fn a_project_comes_and_goes_whole_when_the_server_is_killed(engine: Engine) {
    let mut server = Server::start(Options { engine, ..Options::default() });
    server.kubectl().apply(&organization("whole").to_string());
    let mut acknowledged = BTreeSet::new();
    for round in 0..3 {
        let names = (0..100).map(|number| format!("whole-{round}-{number}")).collect();
        let made = killed_while(&mut server, names, 2 + 3 * round, |http, name| {
            http.try_json(Method::POST, PROJECTS, &project(name)).map(|answer| answer.code)
        });
        acknowledged.extend(made);
        let (made, _, _) = projects(&server);
        assert!(acknowledged.is_subset(&made), "{:?}", acknowledged.difference(&made));
        until("each project is whole, and nothing is there of others", PATIENCE * 2, || {
            let ready =
                server.kubectl().run(&["wait", "--for=condition=Ready", "project", "--all", "--timeout=5s"]);
            let (made, uids, kubeconfigs) = projects(&server);
            let http = Http::of(&server.kubectl());
            let whole = ready.success && made == kubeconfigs;
            (whole && uids.iter().all(|uid| answers(&http, uid) == 200)).then_some(())
        });
    }
    let (all, uids, _) = projects(&server);
    killed_while(&mut server, all.iter().cloned().collect(), all.len() / 2, |http, name| {
        http.try_delete(&format!("{PROJECTS}/{name}")).map(|answer| answer.code)
    });
    let left: Vec<String> = projects(&server).0.into_iter().collect();
    let mut args = vec!["delete", "project", "--ignore-not-found", "--timeout=120s"];
    args.extend(left.iter().map(String::as_str));
    if !left.is_empty() {
        server.kubectl().ok(&args);
    }
    until("nothing is left of them", PATIENCE * 2, || {
        let (made, _, kubeconfigs) = projects(&server);
        let http = Http::of(&server.kubectl());
        let gone = uids.iter().all(|uid| answers(&http, uid) == 404);
        (made.is_empty() && kubeconfigs.is_empty() && gone).then_some(())
    });
}
