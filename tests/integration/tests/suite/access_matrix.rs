//! The authorization matrix: who may do what with which resource in which context, as the server decides it. The file is
//! `tests/integration/access-matrix.txt`; `FREEHOLD_MATRIX_WRITE=1` writes it anew.
//!
//! Each resource, subresource and path that the server shows is asked for, so that one which is new fails this test until
//! its line is read by somebody.

use crate::access::{http, member};
use crate::{PATIENCE, text};
use freehold_tests_integration::{Engine, Http, World, until, world};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/access-matrix.txt");
/// How many ask at a time.
const THREADS: usize = 4;
/// Where is asked, and by whom: the context's name, its path, and the namespace of what is in one. `bound` has the role editor
/// by a binding to project matrix-a.
const CONTEXTS: [(&str, &str, &str, &[&str]); 6] = [
    ("platform", "", "organization-matrix", &["owner", "stranger"]),
    ("organization", "/organizations/matrix", "organization-matrix", &PEOPLE),
    ("another organization", "/organizations/matrix-other", "organization-matrix-other", &["owner"]),
    ("user", "/users/matrix-editor", "organization-matrix", &["editor"]),
    ("project", "/projects/matrix-a", "default", &PEOPLE),
    ("another organization's project", "/projects/matrix-other-a", "default", &["owner"]),
];
const PEOPLE: [&str; 6] = ["owner", "editor", "viewer", "people-manager", "bound", "stranger"];

/// A resource (`group/resource[/subresource]`) or path, with whether it is in namespaces and its verbs.
type Routes = BTreeMap<String, (bool, Vec<String>)>;

fn routes(http: &Http) -> Routes {
    let mut routes = Routes::new();
    let mut documents = vec!["/api/v1".to_owned()];
    for group in http.get("/apis").body["groups"].as_array().into_iter().flatten() {
        documents.extend(
            group["versions"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|version| format!("/apis/{}", text(version, "/groupVersion"))),
        );
    }
    for document in documents {
        let list = http.get(&document).body;
        let group =
            text(&list, "/groupVersion").split_once('/').map_or("core", |(group, _)| group).to_owned();
        for resource in list["resources"].as_array().into_iter().flatten() {
            let verbs = resource["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let (namespaced, known) =
                routes.entry(format!("{group}/{}", text(resource, "/name"))).or_default();
            *namespaced = resource["namespaced"] == true;
            for verb in verbs.map(str::to_owned) {
                if !known.contains(&verb) {
                    known.push(verb);
                }
            }
            known.sort();
        }
    }
    let paths = http.get("/").body["paths"].as_array().cloned().unwrap_or_default();
    let documents = paths.iter().filter_map(Value::as_str).filter(|path| !path.starts_with("/api"));
    let own = ["/", "/api", "/apis", "/backup", "/encryption", "/archive", "/planes/-"].into_iter();
    for path in documents.chain(own) {
        routes.insert(path.to_owned(), (false, vec!["get".to_owned(), "post".to_owned()]));
    }
    routes
}

fn review(user: &str, (route, verb): (&str, &str), (namespace, namespaced): (&str, bool)) -> Value {
    let attributes = match route.split_once('/') {
        Some(("", _)) | None => json!({"nonResourceAttributes": {"path": route, "verb": verb}}),
        Some((group, resource)) => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let name = match (resource, verb) {
                (_, "list" | "watch" | "create" | "deletecollection") if subresource.is_empty() => "",
                ("organizations", _) => namespace.strip_prefix("organization-").unwrap_or("matrix"),
                ("projects", _) if namespace.ends_with("other") => "matrix-other-a",
                ("projects", _) => "matrix-a",
                _ => "x",
            };
            json!({"resourceAttributes": {
                "group": if group == "core" { "" } else { group }, "resource": resource, "subresource": subresource,
                "verb": verb, "name": name, "namespace": if namespaced { namespace } else { "" },
            }})
        }
    };
    let mut spec = json!({"user": format!("matrix-{user}"), "groups": ["system:authenticated"]});
    spec.as_object_mut().expect("an object").extend(attributes.as_object().expect("an object").clone());
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

/// What one user may do in a context: resources by what is allowed with them.
fn asked(world: &World, (path, namespace): (&str, &str), user: &str, routes: &Routes) -> String {
    let all: Vec<(&String, bool, &String)> = routes
        .iter()
        .flat_map(|(route, (namespaced, verbs))| verbs.iter().map(move |verb| (route, *namespaced, verb)))
        .collect();
    let parts: Vec<_> = all.chunks(all.len().div_ceil(THREADS)).collect();
    let ask = |part: &[(&String, bool, &String)]| -> Vec<(String, String, bool)> {
        let http = http(world, &world.admin(), path);
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        part.iter()
            .map(|(route, namespaced, verb)| {
                let answer =
                    http.json(Method::POST, reviews, &review(user, (route, verb), (namespace, *namespaced)));
                assert_eq!(answer.code, 201, "{}", answer.body);
                ((*route).clone(), (*verb).clone(), answer.body["status"]["allowed"] == true)
            })
            .collect()
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(|| ask(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("answers")).collect()
    });
    let mut by_route: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (route, verb, allowed) in answers {
        let verbs = by_route.entry(route).or_default();
        if allowed {
            verbs.push(verb);
        }
    }
    let mut by_verbs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (route, verbs) in by_route {
        let all = routes[&route].1 == verbs;
        let verbs = match verbs.as_slice() {
            [] => "nothing".to_owned(),
            _ if all => "everything".to_owned(),
            verbs => verbs.join(" "),
        };
        by_verbs.entry(verbs).or_default().push(route);
    }
    let mut page = String::new();
    for (verbs, routes) in by_verbs {
        let _ = writeln!(page, "{verbs}:");
        for route in routes {
            let _ = writeln!(page, "    {route}");
        }
    }
    page
}

fn prepare(world: &World) {
    world.organization("matrix", &["matrix-a"]);
    world.organization("matrix-other", &["matrix-other-a"]);
    let members = ["owner", "editor", "viewer"].map(|role| member("matrix", &format!("matrix-{role}"), role));
    let guests = ["people-manager", "bound"].map(|guest| member("matrix", &format!("matrix-{guest}"), ""));
    let bindings = [
        ("people-manager", "people-manager", "{kind: Organization, name: matrix}"),
        ("bound", "editor", "{kind: Project, name: matrix-a}"),
    ];
    let bindings = bindings.map(|(user, role, target)| {
        format!(
            "---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding,
              metadata: {{name: {user}, namespace: organization-matrix}},
              spec: {{roleRef: {{name: {role}, namespace: freehold-system}},
                     subjects: [{{kind: User, name: matrix-{user}}}], target: {target}}}}}\n"
        )
    });
    world.admin().apply(&(members.concat() + &guests.concat() + &bindings.concat()));
    let last = world.person("matrix-bound", "/projects/matrix-a");
    until("the bindings count", PATIENCE, || last.run(&["get", "configmaps"]).success.then_some(()));
}

#[test]
fn who_may_do_what_where_is_what_the_matrix_says() {
    let world = world(Engine::Embedded);
    prepare(&world);
    let mut page = String::from(
        "Who may do what where, as the server decides it. FREEHOLD_MATRIX_WRITE=1 writes it anew. Resources are listed by the\n\
         verbs that are allowed with them, \"everything\" being all that they have; paths can be read (get) or sent to (post).\n",
    );
    for (context, path, namespace, people) in CONTEXTS {
        // A user's view lists what is theirs of the core plane, whose resources it shows.
        let routes = routes(&http(&world, &world.admin(), path));
        assert!(routes.len() > 30, "{context} {routes:?}");
        for user in people {
            let _ =
                write!(page, "\n== {context} / {user}\n{}", asked(&world, (path, namespace), user, &routes));
        }
    }
    if std::env::var_os("FREEHOLD_MATRIX_WRITE").is_some() {
        std::fs::write(FILE, &page).expect("the matrix can be written");
        return;
    }
    let known = std::fs::read_to_string(FILE).expect("the matrix");
    let difference = known.lines().zip(page.lines()).enumerate().find(|(_, (known, now))| known != now);
    assert!(
        known == page,
        "the matrix has changed (FREEHOLD_MATRIX_WRITE=1 writes it anew, to be read before it is committed): line {:?}",
        difference
    );
}
