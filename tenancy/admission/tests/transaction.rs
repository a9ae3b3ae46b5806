//! Limits over several namespaces that Freehold keeps in the write's own transaction: no webhook runs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../controllers/tests/tenants/site.rs"]
#[allow(dead_code, reason = "the controllers' tests ask for more of it")]
mod site;

use freehold_client::{Client, DeleteOptions, Error, RawRequest, Resource};
use freehold_machinery::{Value, meta};
use freehold_tests_harness::until;
use http::{HeaderValue, Method};
use serde_json::json;
use site::{PATIENCE, Site};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const WIDGETS: Resource = Resource::namespaced("example.com", "v1", "widgets");
const READY: &str = "tenancy.freehold.dev/Ready";
/// How long it is waited before a request is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How long a request may be retried.
const RETRIED: Duration = Duration::from_secs(240);

const SETUP: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}, status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Quota
metadata: {name: whole}
spec:
  hard: {secrets: '4000'}
  counted:
  - {name: replicas, group: example.com, version: v1, resource: widgets, jsonPath: .spec.replicas, limit: '10'}
  - {name: gigabytes, group: example.com, version: v1, resource: widgets, expression: object.spec.replicas * object.spec.size, limit: '40'}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Quota
metadata: {name: part}
spec: {counted: [{name: replicas, group: example.com, version: v1, resource: widgets, jsonPath: .spec.replicas, limit: '6'}]}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: web}
spec:
  quota: whole
  members: [{role: owner, subjects: [{kind: User, name: ann}]}, {role: widgets, subjects: [{kind: User, name: ann}]}]
  namespaces: {declared: [{name: a}, {name: b}]}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: shop}
spec:
  parent: web
  quota: part
  members: [{role: owner, subjects: [{kind: User, name: ann}]}, {role: widgets, subjects: [{kind: User, name: ann}]}]
  namespaces: {declared: [{name: x}], max: 3, selfService: true}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: widgets}
rules: [{apiGroups: [example.com], resources: ['*'], verbs: ['*']}]
";

#[test]
fn limits_are_exact_in_the_writes_own_transaction() {
    let mut site = Site::freehold();
    let _ = site.start();
    site.apply(SETUP);
    for name in ["web-a", "web-b", "shop-x"] {
        let namespace = site.condition(&["namespace", name], READY, "True", "Ready");
        let metered = &namespace["metadata"]["labels"]["tenancy.freehold.dev/metered"];
        assert!(metered.is_null(), "no webhook is asked about {name}");
    }
    what_went_uncounted_is_counted_anew(&site);
    custom_resources_are_summed(&site);
    tricks_make_no_room(&site);
    namespaces_are_counted(&site);
    many_at_once_get_exactly_the_limit(&mut site);
}

fn widget(namespace: &str, name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "size": 4},
    })
}

/// A request as ann: `Ok(false)` where the limit is reached.
async fn write(client: &Client, mut request: RawRequest) -> Result<bool, Error> {
    request.headers.insert("impersonate-user", HeaderValue::from_static("ann"));
    match client.json(request).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == 403 && error.to_string().contains("exceeded quota of tenant") => {
            Ok(false)
        }
        // It had been created by an attempt whose answer was lost.
        Err(error) if error.is_already_exists() => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether ann may write it.
fn writes(site: &Site, method: Method, path: String, body: &Value) -> bool {
    let mut request = RawRequest::new(method.clone(), path).json(body);
    if method == Method::PATCH {
        request.headers.insert("content-type", HeaderValue::from_static("application/merge-patch+json"));
    }
    site.wait(write(&site.client(), request)).unwrap_or_else(|error| panic!("{method} {body}: {error}"))
}

fn creates(site: &Site, object: &Value) -> bool {
    writes(site, Method::POST, WIDGETS.collection_path(Some(meta::namespace(object))), object)
}

fn deletes(site: &Site, namespace: &str, name: &str) {
    site.wait(site.client().delete(&WIDGETS, Some(namespace), name, &DeleteOptions::default())).unwrap();
}

/// What the tenant's ledger says of a counter.
fn used(site: &Site, tenant: &str, counter: &str) -> Value {
    let ledger = site.get(&["quotaledger", tenant]).unwrap_or_default();
    ledger["spec"]["used"][counter].clone()
}

/// A counter that goes and comes back, and a definition that goes with its objects.
fn what_went_uncounted_is_counted_anew(site: &Site) {
    let quota = ["quotas.tenancy.freehold.dev", "whole"];
    let counted = site.get(&quota).unwrap()["spec"]["counted"].clone();
    let count = |counted: &Value| {
        let patch = json!({"spec": {"counted": counted}}).to_string();
        site.kubectl.ok(&[&["patch"], &quota[..], &["--type=merge", "-p", &patch]].concat());
    };
    assert!(creates(site, &widget("web-a", "known", 1)));
    count(&json!([]));
    assert!(creates(site, &widget("web-a", "hidden", 2)));
    count(&counted);
    assert!(creates(site, &widget("web-b", "probe", 1)));
    assert_eq!(used(site, "web", "replicas"), json!("4"));
    site.kubectl.ok(&["delete", "crd", "widgets.example.com", "--timeout=60s"]);
    site.apply(SETUP);
    site.kubectl.ok(&["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s"]);
    assert!(
        creates(site, &widget("web-a", "known", 10)),
        "nothing stays charged for what went with its definition"
    );
    deletes(site, "web-a", "known");
}

fn custom_resources_are_summed(site: &Site) {
    assert!(creates(site, &widget("web-a", "one", 3)));
    // 6 at most in the sub-tenant, and 10 in both together.
    assert!(creates(site, &widget("shop-x", "two", 4)));
    assert!(!creates(site, &widget("shop-x", "three", 3)), "6 is the sub-tenant's limit");
    assert!(!creates(site, &widget("web-b", "three", 4)), "10 is the limit of both together");
    assert!(creates(site, &widget("web-b", "three", 3)));
    assert_eq!((used(site, "web", "replicas"), used(site, "shop", "replicas")), (json!("10"), json!("4")));
    assert_eq!(used(site, "web", "gigabytes"), json!("40"));
    // What grows is charged for what it adds, by the scale subresource too, and what shrinks gives back.
    let scale = |name: &str, replicas: i64| {
        let path = format!("{}/{name}/scale", WIDGETS.collection_path(Some("web-b")));
        writes(site, Method::PATCH, path, &json!({"spec": {"replicas": replicas}}))
    };
    assert!(!scale("three", 4) && scale("three", 1) && scale("three", 3) && !scale("three", 9));
    // What cannot be counted is refused.
    let mut odd = widget("web-a", "odd", 0);
    odd["spec"]["size"] = json!("many");
    assert!(!creates(site, &odd));
    assert_eq!(used(site, "web", "replicas"), json!("10"));
    deletes(site, "web-a", "one");
    assert_eq!(
        used(site, "web", "replicas"),
        json!("7"),
        "what is deleted is given back with the delete itself"
    );
}

fn tricks_make_no_room(site: &Site) {
    // 7 of 10 are used. Names that the server makes are counted, dry runs are refused alike and charge nothing.
    let collection = WIDGETS.collection_path(Some("web-a"));
    let generated = |replicas: i64| {
        let mut object = widget("web-a", "", replicas);
        object["metadata"] = json!({"generateName": "g-"});
        object
    };
    let dry = |object: &Value| writes(site, Method::POST, format!("{collection}?dryRun=All"), object);
    assert!(dry(&generated(3)) && !dry(&generated(4)));
    assert_eq!(used(site, "web", "replicas"), json!("7"));
    assert!(writes(site, Method::POST, collection.clone(), &generated(2)));
    assert!(!writes(site, Method::POST, collection.clone(), &generated(2)));
    // Statuses are no amounts.
    let status = format!("{collection}/late/status");
    assert!(creates(site, &widget("web-a", "late", 1)));
    assert!(writes(
        site,
        Method::PATCH,
        status,
        &json!({"spec": {"replicas": 0}, "status": {"replicas": 99}})
    ));
    assert_eq!(used(site, "web", "replicas"), json!("10"));
    // Members reach neither the ledger nor the label.
    let as_ann = |args: &[&str]| site.kubectl.run(&[args, &["--as", "ann"]].concat());
    assert!(
        !as_ann(&["patch", "quotaledger", "web", "--type=merge", "-p", r#"{"spec":{"used":{}}}"#]).success
    );
    assert!(!as_ann(&["delete", "quotaledger", "web"]).success);
    // Nor others' sleep, nor what the controllers say.
    assert!(!as_ann(&["annotate", "namespace", "default", "tenancy.freehold.dev/sleep=asleep"]).success);
    assert!(!as_ann(&["create", "-f", "examples/tenancy/nights.yaml"]).success);
    for (kind, name) in [("tenant", "web"), ("quotas.tenancy.freehold.dev", "whole")] {
        let patch = [
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            r#"{"status":{"conditions":[]}}"#,
        ];
        assert!(!as_ann(&patch).success, "{kind}");
    }
    // A namespace that moves takes its use along: `web-a` has 3, and the sub-tenant 4 of 6.
    let label = |tenant: &str| {
        let label = format!("tenancy.freehold.dev/tenant={tenant}");
        site.kubectl.ok(&["label", "namespace", "web-a", "--overwrite", &label]);
    };
    label("shop");
    assert!(!creates(site, &widget("web-a", "more", 1)), "the sub-tenant has 7 of 6 now");
    deletes(site, "shop-x", "two");
    assert!(creates(site, &widget("web-a", "more", 1)));
    assert_eq!((used(site, "shop", "replicas"), used(site, "web", "replicas")), (json!("4"), json!("7")));
    label("web");
    until("the namespace is the tenant's again", PATIENCE, || {
        creates(site, &widget("shop-x", "two", 3)).then_some(())
    });
    assert_eq!((used(site, "shop", "replicas"), used(site, "web", "replicas")), (json!("3"), json!("10")));
    // Rings of tenants are refused.
    let ring =
        site.kubectl.run(&["patch", "tenant", "web", "--type=merge", "-p", r#"{"spec":{"parent":"shop"}}"#]);
    let refused = ring.expect_failure();
    assert!(refused.contains("would be its own ancestor"), "{refused}");
    // A limit below the use deletes nothing, and lets nothing more in. Another counter is counted from what is there.
    let limit = |limit: &str| {
        let patch = json!([{"op": "replace", "path": "/spec/counted/0/limit", "value": limit}]).to_string();
        site.kubectl.ok(&["patch", "quotas.tenancy.freehold.dev", "whole", "--type=json", "-p", &patch]);
    };
    limit("5");
    assert!(!creates(site, &widget("web-b", "low", 1)));
    limit("12");
    assert!(creates(site, &widget("web-b", "low", 0)));
    // Administrators in person are counted and never refused.
    site.wait(site.client().create(&WIDGETS, &widget("web-b", "admin", 9))).unwrap();
    assert_eq!(used(site, "web", "replicas"), json!("19"));
    deletes(site, "web-b", "admin");
    deletes(site, "web-b", "three");
}

fn namespaces_are_counted(site: &Site) {
    let namespace = |n: usize| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": format!("shop-n{n}"), "labels": {"tenancy.freehold.dev/tenant": "shop"}},
        })
    };
    let bob = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: spaces}, rules: [{apiGroups: [''], resources: [namespaces], verbs: [create, delete]}, {apiGroups: [tenancy.freehold.dev], resources: [tenants], verbs: [provision]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: spaces}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: spaces}, subjects: [{kind: User, name: ann}]}";
    site.apply(bob);
    let client = site.client();
    let created: usize = site.wait(async {
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                let (client, object) = (client.clone(), namespace(n));
                tokio::spawn(async move {
                    write(&client, RawRequest::new(Method::POST, "/api/v1/namespaces").json(&object)).await
                })
            })
            .collect();
        let mut created = 0;
        for task in tasks {
            created += usize::from(task.await.unwrap().unwrap());
        }
        created
    });
    assert_eq!(created, 2, "three with the declared one");
}

async fn create_until_decided(client: Client, namespace: String, name: String) -> bool {
    let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
    let object =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}});
    loop {
        let request = RawRequest::new(Method::POST, SECRETS.collection_path(Some(&namespace))).json(&object);
        match write(&client, request).await {
            // The room that an attempt without an answer took counts against the next one, which is refused before it finds that.
            Ok(false) if pause != FIRST_PAUSE => {
                match client.get_opt(&SECRETS, Some(&namespace), &name).await {
                    Ok(found) => return found.is_some(),
                    Err(error) => assert!(begun.elapsed() < RETRIED, "{namespace}/{name}: {error}"),
                }
            }
            Ok(created) => return created,
            Err(error) => assert!(begun.elapsed() < RETRIED, "{namespace}/{name}: {error}"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// Secrets in the tenant's namespaces, as the server has them.
fn stored(site: &Site) -> usize {
    let list = site.kubectl.json(&["get", "secrets", "-A", "-o", "json"]);
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter(|item| meta::name(item).starts_with('c')).count()
}

fn many_at_once_get_exactly_the_limit(site: &mut Site) {
    let (requests, spaces, limit) = match std::env::var("FREEHOLD_TENANCY_LONG") {
        Ok(_) => (1000, 100, 400),
        Err(_) => (300, 20, 120),
    };
    let patch = json!({"spec": {"hard": {"secrets": limit.to_string()}}}).to_string();
    site.kubectl.ok(&["patch", "quotas.tenancy.freehold.dev", "whole", "--type=merge", "-p", &patch]);
    let names: Vec<String> = (0..spaces).map(|n| format!("web-s{n}")).collect();
    let declared: Vec<_> = (0..spaces).map(|n| json!({"name": format!("s{n}")})).collect();
    let patch = json!({"spec": {"namespaces": {"declared": declared}}}).to_string();
    site.kubectl.ok(&["patch", "tenant", "web", "--type=merge", "-p", &patch]);
    for name in &names {
        site.condition(&["namespace", name], READY, "True", "Ready");
    }
    let (client, decided) = (site.client(), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..requests)
        .map(|n| {
            let (client, namespace, decided) = (client.clone(), names[n % spaces].clone(), decided.clone());
            site.runtime().spawn(async move {
                let created = create_until_decided(client, namespace, format!("c{n}")).await;
                decided.fetch_add(1, Ordering::Relaxed);
                created
            })
        })
        .collect();
    for part in [8, 4] {
        until("a part is decided", RETRIED, || {
            (decided.load(Ordering::Relaxed) > requests / part).then_some(())
        });
        site.kill();
    }
    let created =
        tasks.into_iter().map(|task| site.wait(task).expect("it runs")).filter(|created| *created).count();
    println!(
        "{requests} creates over {spaces} namespaces with two kills were decided in {:?}",
        begun.elapsed()
    );
    assert_eq!((created, stored(site)), (limit, limit), "exactly the limit");
    assert_eq!(used(site, "web", "secrets"), json!(limit.to_string()));
    // What is freed is there with the answer to the delete.
    let mut slowest = Duration::ZERO;
    for n in 0..10 {
        let namespace = names[0].clone();
        assert!(!site.wait(create_until_decided(client.clone(), namespace.clone(), format!("extra{n}"))));
        let victim = site.kubectl.ok(&["get", "secrets", "-n", &namespace, "-o", "name"]);
        let victim = victim.lines().next().unwrap().trim_start_matches("secret/").to_owned();
        site.wait(client.delete(&SECRETS, Some(&namespace), &victim, &DeleteOptions::default())).unwrap();
        let begun = Instant::now();
        assert!(site.wait(create_until_decided(client.clone(), namespace, format!("extra{n}"))));
        slowest = slowest.max(begun.elapsed());
    }
    println!("freed capacity was used after {slowest:?} at most");
}
