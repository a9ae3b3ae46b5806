//! Subsystems, which the platform exports itself.

use crate::{GROUP, PATIENCE, condition};
use freehold_tests_integration::{Engine, Http, Options, Server, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(engine: a_subsystem_is_bound_where_the_server_offers_it);

const TENANTS: &str = "/apis/tenancy.freehold.dev/v1alpha1/tenants";
const CLASSES: &str = "/apis/resourcemanager.freehold.dev/v1alpha1/controlplaneclasses";

fn tenant(name: &str) -> Value {
    json!({"apiVersion": "tenancy.freehold.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name}, "spec": {}})
}

fn project(name: &str, class: Option<&str>) -> Value {
    let mut spec = json!({"ownerRef": {"kind": "Organization", "name": "acme"}});
    if let Some(class) = class {
        spec["controlPlane"] = json!({"class": class});
    }
    json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": name}, "spec": spec})
}

/// Waits until controllers have seen a Tenant.
fn until_active(http: &Http, name: &str) {
    until("the tenant is active", PATIENCE, || {
        (http.get(&format!("{TENANTS}/{name}")).body["status"]["phase"] == "Active").then_some(())
    });
}

fn a_subsystem_is_bound_where_the_server_offers_it(engine: Engine) {
    let server =
        Server::start(Options { engine, args: vec!["--offer=tenancy".to_owned()], ..Options::default() });
    let organization = json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Organization", "metadata": {"name": "acme"}, "spec": {"type": "Standard"}});
    let admin = server.kubectl();
    admin.apply(&format!("{organization}\n---\n{}\n---\n{}\n", project("web", None), project("plain", None)));
    let (web, plain) = (server.project("web"), server.project("plain"));
    let (http, other) = (Http::of(&web), Http::of(&plain));
    assert_eq!(http.get(TENANTS).code, 404);
    let enabled = server.freehold(&["enable", "tenancy", "--project", "web"]);
    assert!(enabled.success && enabled.stdout.contains("APIBinding"), "{}{}", enabled.stdout, enabled.stderr);
    let binding = http.get(&format!("{GROUP}/apibindings/tenancy.freehold.dev")).body;
    assert_eq!(condition(&binding, "Bound"), ("True".to_owned(), "Bound".to_owned()), "{binding}");
    let definitions = http.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").body;
    assert_eq!(definitions["items"], json!([]), "no definition is in the project");
    let made = http.json(Method::POST, TENANTS, &tenant("one"));
    assert_eq!(made.code, 201, "{}", made.body);
    until_active(&http, "one");
    assert_eq!(other.get(TENANTS).code, 404, "another project does not have it");
    assert!(web.ok(&["explain", "tenant.spec"]).contains("KIND:"));
    // A definition of the kind does not take its place.
    let printed = server.freehold(&["install", "tenancy", "--print"]).stdout;
    let definition =
        printed.split("\n---\n").find(|one| one.contains("tenants.tenancy.freehold.dev")).unwrap();
    let refused = web.run_with_input(&["create", "-f", "-"], definition).expect_failure();
    assert!(refused.contains("an APIBinding of this control plane serves that resource"), "{refused}");
    // A class binds it for all of its projects.
    let class = json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "ControlPlaneClass", "metadata": {"name": "tenants"},
        "spec": {"bindings": [{"name": "tenancy", "export": {"project": "system:freehold", "name": "tenancy.freehold.dev"}}]}});
    assert_eq!(Http::of(&admin).json(Method::POST, CLASSES, &class).code, 201);
    admin.apply(&project("classed", Some("tenants")).to_string());
    let classed = Http::of(&server.project("classed"));
    assert_eq!(classed.json(Method::POST, TENANTS, &tenant("two")).code, 201);
    until_active(&classed, "two");
    // It goes with its objects only when that is said.
    let refused = server.freehold(&["disable", "tenancy", "--project", "web"]);
    assert!(!refused.success && refused.stderr.contains("there are still objects"), "{}", refused.stderr);
    let disabled = server.freehold(&["disable", "tenancy", "--project", "web", "--delete-objects"]);
    assert!(disabled.success, "{}", disabled.stderr);
    assert_eq!(http.get(TENANTS).code, 404);
    assert_eq!(classed.get(&format!("{TENANTS}/two")).code, 200);
}
