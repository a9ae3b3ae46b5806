//! Exports that a class binds for all of its projects.

use crate::{
    DATABASES, GROUP, IN_DEFAULT, PATIENCE, Parties, SECRETS, condition, database, is_refused, names,
};
use freehold_tests_integration::{Http, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    a_project_of_a_class_has_what_the_class_binds_from_its_first_request,
    a_class_binds_only_what_its_author_may_bind,
    a_binding_of_a_class_goes_only_without_objects,
);

const CLASSES: &str = "/apis/resourcemanager.freehold.dev/v1alpha1/controlplaneclasses";

/// A class that binds the export of a provider.
pub(crate) fn class(parties: &Parties, name: &str, more: &Value) -> Value {
    let mut binding = json!({"name": "pg", "export": {"project": parties.names[0], "name": "pg"}});
    binding.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "ControlPlaneClass",
        "metadata": {"name": name}, "spec": {"bindings": [binding]},
    })
}

/// Makes a project of a class, in the organization of the consumers.
pub(crate) fn project(world: &World, tag: &str, class: &str) -> Http {
    project_named(world, &format!("classed-{tag}"), tag, class)
}

/// Makes a project with a name.
pub(crate) fn project_named(world: &World, name: &str, tag: &str, class: &str) -> Http {
    let object = json!({
        "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": name},
        "spec": {"ownerRef": {"kind": "Organization", "name": format!("consumers-{tag}")}, "controlPlane": {"class": class}},
    });
    world.admin().apply(&object.to_string());
    world.wait_ready(name);
    Http::of(&world.server().project(name))
}

fn a_project_of_a_class_has_what_the_class_binds_from_its_first_request(world: &World) {
    let parties = Parties::new(world, "classed");
    let secrets =
        json!([{"resource": "secrets", "verbs": ["get", "list", "create"], "labels": {"db": "yes"}}]);
    let class = class(&parties, "databases-by-class", &json!({"acceptedClaims": secrets}));
    world.admin().apply(&class.to_string());
    let consumer = project(world, "classed", "databases-by-class");
    let made = consumer.json(Method::POST, IN_DEFAULT, &database("orders", 3));
    assert_eq!((made.code, &made.body["spec"]["engine"]), (201, &json!("postgres")), "{}", made.body);
    // The provider sees it, and what the class lets it at.
    let list = parties.in_view(None).get(DATABASES).body;
    assert_eq!(names(&list), ["orders"], "{list}");
    let in_plane = Http::of_elsewhere(
        &parties.provider,
        &format!("{}{}/clusters/classed-classed", parties.url, parties.view(None)),
    );
    let secret = json!({"metadata": {"name": "key", "labels": {"db": "yes"}}});
    assert_eq!(in_plane.json(Method::POST, SECRETS, &secret).code, 201);
    assert!(is_refused(&in_plane.get("/api/v1/namespaces/default/configmaps")));
    // The project sees the binding, and leaves it to the platform.
    let at = format!("{GROUP}/apibindings/pg");
    let shown = until("the binding is shown", PATIENCE, || {
        Some(consumer.get(&at)).filter(|answer| answer.code == 200)
    });
    assert_eq!(condition(&shown.body, "Bound"), ("True".to_owned(), "Class".to_owned()), "{}", shown.body);
    assert_eq!(shown.body["status"]["schemas"][0]["resource"], "databases");
    for (method, body) in [(Method::PUT, shown.body.clone()), (Method::DELETE, Value::Null)] {
        let refused = consumer.json(method, &at, &body);
        assert_eq!(refused.code, 403, "{}", refused.body);
        assert!(
            refused.body["message"].as_str().unwrap().contains("ControlPlaneClass \"databases-by-class\"")
        );
    }
    let text = world.server().freehold(&["api", "show", "pg", "--project", "classed-classed"]);
    assert!(text.stdout.contains("databases.db.example.com"), "{}", text.stdout);
    // A project without the class has nothing of it.
    assert_eq!(Http::of(&parties.other).get(DATABASES).code, 404);
    // What the class takes back, the provider has no more.
    let less = json!({"spec": {"bindings": [{"name": "pg", "export": {"project": parties.names[0], "name": "pg"}}]}});
    let patched = world.admin().run(&[
        "patch",
        "controlplaneclass",
        "databases-by-class",
        "--type=merge",
        "-p",
        &less.to_string(),
    ]);
    assert!(patched.success, "{}", patched.stderr);
    until("the claim is taken back", PATIENCE, || is_refused(&in_plane.get(SECRETS)).then_some(()));
}

fn a_class_binds_only_what_its_author_may_bind(world: &World) {
    let parties = Parties::new(world, "unclassed");
    // Somebody who may write classes, and has no right in the provider's project.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "classes"},
        "rules": [{"apiGroups": ["resourcemanager.freehold.dev"], "resources": ["controlplaneclasses"], "verbs": ["*"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "classes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "classes"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "class-author"}],
    });
    world.admin().apply(&format!("{role}\n---\n{binding}\n"));
    let author = Http::of(&world.person("class-author", ""));
    let wanted = class(&parties, "sneaky", &json!({}));
    let refused = until("the author may write classes", PATIENCE, || {
        let answer = author.json(Method::POST, CLASSES, &wanted);
        Some(answer)
            .filter(|answer| !answer.body["message"].as_str().unwrap_or_default().contains("cannot create"))
    });
    assert_eq!(refused.code, 403, "{}", refused.body);
    assert!(refused.body["message"].as_str().unwrap().contains("you may not bind it"), "{}", refused.body);
    // Nor does a status that somebody writes count.
    let mut forged = wanted.clone();
    forged["spec"] = json!({});
    let uid = world.uid(&parties.names[0]);
    let pinned = json!([{"name": "pg", "plane": uid, "export": "pg", "identity": "x"}]);
    forged["status"] = json!({"bindings": pinned});
    assert_eq!(author.json(Method::POST, CLASSES, &forged).code, 201);
    let at = format!("{CLASSES}/sneaky");
    let merge = "application/merge-patch+json";
    let patch = json!({"status": {"bindings": pinned}}).to_string();
    author.send(Method::PATCH, &format!("{at}/status"), merge, patch);
    assert_eq!(author.get(&at).body["status"]["bindings"], Value::Null);
    // The provider opens its export to all.
    let open = json!({"spec": {"consumers": {"organizations": ["*"]}}}).to_string();
    parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &open]);
    let patch = json!({"spec": wanted["spec"]}).to_string();
    let allowed = author.send(Method::PATCH, &at, merge, patch);
    assert_eq!(allowed.code, 200, "{}", allowed.body);
}

fn a_binding_of_a_class_goes_only_without_objects(world: &World) {
    let parties = Parties::new(world, "classless");
    world.admin().apply(&class(&parties, "going", &json!({})).to_string());
    let consumer = project(world, "classless", "going");
    assert_eq!(consumer.json(Method::POST, IN_DEFAULT, &database("orders", 3)).code, 201);
    let refused = parties.provider.fails(&["delete", "apiexport", "pg"]);
    assert!(refused.contains("1 projects consume it (classed-classless)"), "{refused}");
    let without = r#"[{"op": "remove", "path": "/spec/bindings"}]"#;
    let change = ["patch", "controlplaneclass", "going", "--type=json", "-p", without];
    let refused = world.admin().fails(&change);
    assert!(refused.contains("such as databases classed-classless/default/orders"), "{refused}");
    world.admin().apply(&class(&parties, "going", &json!({"objects": "Keep"})).to_string());
    world.admin().ok(&change);
    assert_eq!(consumer.get(DATABASES).code, 404);
    assert_eq!(parties.in_view(None).get(DATABASES).body["items"], json!([]));
    world.admin().apply(&class(&parties, "going", &json!({})).to_string());
    assert_eq!(names(&consumer.get(DATABASES).body), ["orders"], "kept objects are found again");
}
