//! Components of the subsystem, each switched by its name, on a project of a real Freehold and on a real kube-apiserver.

#[path = "../../controllers/tests/tenants/site.rs"]
#[allow(dead_code, reason = "the controllers' tests ask for more of it")]
mod site;

use freehold_tests_harness::{freehold_binary, until};
use site::{PATIENCE, Site};
use std::process::{Child, Command};

/// A program of the subsystem that ends with this.
struct Program(Child);

impl Program {
    fn start(site: &Site, args: &[&str]) -> Self {
        let child = Command::new(freehold_binary())
            .arg("tenancy")
            .args(args)
            .env("KUBECONFIG", site.kubectl.kubeconfig())
            .spawn()
            .expect("freehold can be run");
        Self(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn install(site: &Site) {
    let installed = Command::new(freehold_binary())
        .args(["install", "tenancy"])
        .env("KUBECONFIG", site.kubectl.kubeconfig())
        .output()
        .expect("freehold can be run");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
}

/// The holder of a component's Lease.
fn holder(site: &Site, component: &str) -> Option<String> {
    let lease = site.get(&["lease", &format!("freehold-tenancy-{component}"), "-n", "kube-system"])?;
    lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned)
}

fn held(site: &Site, component: &str) -> String {
    until(&format!("{}: {component} has a leader", site.name), PATIENCE, || holder(site, component))
}

fn each_component_has_a_lease_of_its_own(site: &Site) {
    let tenants = "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: web}, \
        spec: {members: [{role: owner, subjects: [{name: ann}]}], namespaces: {declared: [{name: a}]}}}";
    site.apply(tenants);
    // One process creates namespaces, another fills them, a third waits for the first.
    let _creating = Program::start(site, &["controller", "--leader-elect", "--controllers", "tenant,quota"]);
    let first = held(site, "tenant");
    assert_eq!(held(site, "quota"), first, "{}", site.name);
    let _waiting = Program::start(site, &["controller", "--leader-elect", "--controllers", "tenant"]);
    site.until("the namespace is created", &["namespace", "web-a"], |_| true);
    assert!(site.get(&["rolebinding", "tenancy:admin", "-n", "web-a"]).is_none(), "nobody fills it");
    assert!(holder(site, "namespace").is_none(), "nobody competes for what was not chosen");
    let _filling = Program::start(
        site,
        &["controller", "--leader-elect", "--controllers", "namespace,template-instance"],
    );
    site.condition(&["namespace", "web-a"], "tenancy.freehold.dev/Ready", "True", "Ready");
    let second = held(site, "namespace");
    assert_eq!(held(site, "template-instance"), second);
    assert!(second != first && holder(site, "tenant") == Some(first), "{}: two processes lead", site.name);
    assert!(holder(site, "template").is_none(), "{}", site.name);
}

fn one_command_runs_what_the_server_needs(site: &Site) {
    let _running = Program::start(site, &[]);
    site.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: lab}, \
         spec: {members: [{role: owner, subjects: [{name: kim}]}], namespaces: {selfService: true, declared: [{name: a}]}}}",
    );
    site.condition(&["namespace", "lab-a"], "tenancy.freehold.dev/Ready", "True", "Ready");
    let webhook = ["validatingwebhookconfiguration", "tenancy.freehold.dev"];
    match site.name {
        "Freehold" => assert!(site.get(&webhook).is_none(), "the server decides by itself"),
        _ => drop(site.until("the webhook is registered", &webhook, |_| true)),
    }
    the_example_of_rules_holds(site);
    // Either way a namespace joins the tenant of the member who creates it.
    until(&format!("{}: kim creates a namespace", site.name), PATIENCE, || {
        site.kubectl.run(&["create", "namespace", "lab-b", "--as", "kim"]).success.then_some(())
    });
    let made = site.condition(&["namespace", "lab-b"], "tenancy.freehold.dev/Ready", "True", "Ready");
    assert_eq!(made["metadata"]["labels"]["tenancy.freehold.dev/tenant"], "lab", "{}", site.name);
}

/// A tenant below another, with a rule of each kind.
fn the_example_of_rules_holds(site: &Site) {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tenancy/rules.yaml");
    site.kubectl.ok(&["apply", "-f", example]);
    let live = site.condition(&["namespace", "corp-web-live"], "tenancy.freehold.dev/Ready", "True", "Ready");
    let rules = &live["metadata"]["annotations"];
    for (rule, value) in [
        ("storage-classes", "fast,slow"),
        ("gateway-classes", "shared"),
        ("runtime-classes", "gvisor"),
        ("registries", "registry.example.com"),
        ("external-ips", ""),
        ("hosts", "*.web.example.com"),
        ("node-selector", "pool=web"),
        ("required-labels", "stage=dev|prod"),
        ("protected-labels", "cost-center"),
    ] {
        assert_eq!(rules[format!("rules.tenancy.freehold.dev/{rule}")], value, "{}: {rule}", site.name);
    }
    assert_eq!(live["metadata"]["labels"]["company"], "corp", "{}", site.name);
}

fn all(site: &Site) {
    install(site);
    each_component_has_a_lease_of_its_own(site);
    one_command_runs_what_the_server_needs(site);
}

#[test]
fn components_of_a_project_are_switched_one_by_one() {
    all(&Site::freehold());
}

#[test]
fn components_of_a_kube_apiserver_are_switched_one_by_one() {
    if let Some(site) = Site::kube() {
        all(&site);
    }
}
