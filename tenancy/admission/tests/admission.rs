//! Policies and the webhook, asked by real servers: a project of a Freehold, and a kube-apiserver.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "admission/guards.rs"]
mod guards;
#[path = "admission/installed.rs"]
mod installed;
#[path = "../../controllers/tests/tenants/site.rs"]
#[allow(dead_code, reason = "the controllers' tests ask for more of it")]
mod site;
#[path = "admission/workloads.rs"]
mod workloads;

use freehold_client::{Client, Error, RawRequest, Resource};
use freehold_machinery::meta;
use freehold_runtime::Scope;
use freehold_tenancy_admission::{SECRET, Webhook};
use freehold_tenancy_decide::admission::Exempt;
use freehold_tests_harness::until;
use freehold_webhook::Place;
use freehold_webhook::certificates::{Shared, Trust};
use http::{HeaderValue, Method};
use jiff::Timestamp;
use serde_json::json;
use site::{PATIENCE, Site};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const READY: &str = "tenancy.freehold.dev/Ready";

#[test]
fn rules_and_limits_hold_in_a_project() {
    let mut site = Site::freehold();
    all(&site);
    nobody_is_locked_out_without_the_webhook(&mut site);
}

#[test]
fn rules_and_limits_hold_in_a_kube_apiserver() {
    if let Some(mut site) = Site::kube() {
        all(&site);
        nobody_is_locked_out_without_the_webhook(&mut site);
    }
}

fn all(site: &Site) {
    // They run until the site goes.
    let _ = site.start();
    tenants(site);
    rules_hold_without_a_webhook(site);
    defaults_are_given_by_policies(site);
    workloads::are_held_to_the_rules(site);
    members_keep_off_what_is_the_tenants(site);
    guards::hold(site);
    let webhook = start_webhook(site);
    namespaces_join_tenants(site);
    limits_hold_under_parallel_creates(site, webhook);
    the_authority_is_renewed_and_shared(site);
}

fn tenants(site: &Site) {
    installed::install(site);
    site.apply("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: low}, value: 70}");
    site.apply(
        r#"
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Quota
metadata: {name: narrow}
spec: {hard: {secrets: "40"}}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: web}
spec:
  members: [{role: owner, subjects: [{name: ann}]}]
  namespaces: {selfService: true, requirePrefix: true, max: 12, declared: [{name: a}]}
  metadata: {labels: {stage: dev}, labelRules: {required: {stage: [dev, prod]}, forbidden: [example.com/*], protected: [cost]}}
  quota: narrow
  classes: {storage: {allowed: [fast], default: fast}, priority: {allowed: [low], default: low}}
  images: {registries: [registry.example.com]}
  hosts: {allowed: ["*.web.example.com"], collisionScope: Tenant}
  services: {types: [ClusterIP], externalIps: [10.1.0.0/16]}
  scheduling: {tolerations: [spot], nodeSelector: {example.com/pool: web, disk: ssd}}
  networkPolicies: [{name: same-namespace, spec: {podSelector: {}}}]
"#,
    );
    site.condition(&["namespace", "web-a"], READY, "True", "Ready");
}

fn as_ann(site: &Site, manifest: &str) -> Result<(), String> {
    let output = site
        .kubectl
        .run_with_input(&["apply", "--as", "ann", "--server-side", "-f", "-"], &format!("---\n{manifest}"));
    if output.success { Ok(()) } else { Err(output.stderr) }
}

fn refused(site: &Site, manifest: &str, words: &str) {
    // A policy that was just written counts from a moment later on.
    let mut last = Ok(());
    let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until("it is refused", PATIENCE, || {
            last = as_ann(site, manifest);
            last.as_ref().err().filter(|message| message.contains(words)).map(|_| ())
        });
    }));
    assert!(looked.is_ok(), "{}: {manifest}: wanted {words:?}, got {last:?}", site.name);
}

fn rules_hold_without_a_webhook(site: &Site) {
    let object = |api: &str, kind: &str, name: &str, spec: &str| {
        format!(
            "{{apiVersion: {api}, kind: {kind}, metadata: {{name: {name}, namespace: web-a}}, spec: {spec}}}"
        )
    };
    let claim = |class: &str| {
        let spec = format!(
            "{{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}"
        );
        object("v1", "PersistentVolumeClaim", class, &spec)
    };
    let service = |name: &str, spec: &str| object("v1", "Service", name, spec);
    let ingress = |name: &str, host: &str| {
        let backend = "{service: {name: s, port: {number: 80}}}";
        let spec = format!(
            "{{rules: [{{host: {host}, http: {{paths: [{{path: /, pathType: Prefix, backend: {backend}}}]}}}}]}}"
        );
        object("networking.k8s.io/v1", "Ingress", name, &spec)
    };
    let pod = |name: &str, image: &str, more: &str| {
        object("v1", "Pod", name, &format!("{{containers: [{{name: c, image: {image}}}]{more}}}"))
    };
    refused(site, &claim("gold"), "the class is not allowed");
    refused(
        site,
        &service("s1", "{type: LoadBalancer, ports: [{port: 80}]}"),
        "the Service's type is not allowed",
    );
    refused(
        site,
        &service("s2", "{externalIPs: [10.2.0.1], ports: [{port: 80}]}"),
        "an external IP is not allowed",
    );
    refused(site, &ingress("i1", "example.com"), "is not allowed");
    refused(site, &pod("p1", "nginx", ""), "an image is not of a registry");
    refused(
        site,
        &pod("p2", "registry.example.com/a", ", tolerations: [{key: gpu, operator: Exists}]"),
        "a toleration is not allowed",
    );
    // Annotations of former times name classes, too.
    let noted = |api: &str, kind: &str, name: &str, note: &str, spec: &str| {
        object(api, kind, name, spec)
            .replace("namespace: web-a", &format!("namespace: web-a, annotations: {{{note}: gold}}"))
    };
    let spec = "{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}";
    let note = "volume.beta.kubernetes.io/storage-class";
    refused(site, &noted("v1", "PersistentVolumeClaim", "noted", note, spec), "the class is not allowed");
    for allowed in [
        claim("fast"),
        service("s3", "{externalIPs: [10.1.0.1], ports: [{port: 80}]}"),
        ingress("i2", "a.web.example.com"),
        pod("p3", "registry.example.com/a:1", ", tolerations: [{key: spot, operator: Exists}]"),
    ] {
        as_ann(site, &allowed).unwrap_or_else(|message| panic!("{}: {allowed}: {message}", site.name));
    }
    // Administrators are never refused.
    site.apply(&pod("p4", "nginx", ""));
}

fn members_keep_off_what_is_the_tenants(site: &Site) {
    let fails = |args: &[&str], words: &str| {
        let args: Vec<&str> = args.iter().copied().chain(["--as", "ann"]).collect();
        until(&format!("{}: {args:?} is refused", site.name), PATIENCE, || {
            let output = site.kubectl.run(&args);
            (!output.success && output.stderr.contains(words)).then_some(())
        });
    };
    fails(&["-n", "web-a", "delete", "networkpolicy", "tenancy-same-namespace"], "change the Tenant instead");
    fails(&["-n", "web-a", "delete", "rolebinding", "tenancy:admin"], "change the Tenant instead");
    fails(
        &["label", "namespace", "web-a", "--overwrite", "tenancy.freehold.dev/tenant=other"],
        "cannot be changed by members",
    );
    fails(&["label", "namespace", "web-a", "tenancy.freehold.dev/tenant-"], "cannot be changed by members");
    fails(
        &["label", "namespace", "web-a", "pod-security.kubernetes.io/enforce=privileged"],
        "cannot be changed by members",
    );
    // A server that decides by itself chooses the tenant, and then the name is wrong.
    let words = if site.name == "Freehold" { "begin with \"web-\"" } else { "name a tenant" };
    fails(&["create", "namespace", "mine"], words);
    site.kubectl.ok(&["label", "namespace", "web-a", "note=fine", "cost=one", "--as", "ann"]);
    let kept = "required, forbidden or protected";
    let label = |change: &'static str| ["label", "namespace", "web-a", "--overwrite", change];
    for change in ["stage=qa", "stage-", "example.com/x=y", "cost=two", "cost-"] {
        let words = if site.name == "Freehold" { "" } else { kept };
        fails(&label(change), words);
    }
    site.kubectl.ok(&["label", "namespace", "web-a", "--overwrite", "stage=prod", "--as", "ann"]);
    site.kubectl.ok(&["label", "namespace", "web-a", "--overwrite", "example.com/x=y", "cost=two"]);
    let set = |field: &str, value: bool| {
        let patch = json!({"spec": {field: value}}).to_string();
        site.kubectl.ok(&["patch", "tenant", "web", "--type=merge", "-p", &patch]);
    };
    set("cordoned", true);
    fails(&["-n", "web-a", "create", "configmap", "while-cordoned"], "the tenant is cordoned");
    fails(&["-n", "web-a", "scale", "deployment", "w-fine", "--replicas=0"], "the tenant is cordoned");
    set("cordoned", false);
    until(&format!("{}: the cordon is lifted", site.name), PATIENCE, || {
        site.kubectl
            .run(&["-n", "web-a", "create", "serviceaccount", "afterwards", "--as", "ann"])
            .success
            .then_some(())
    });
    set("preventDeletion", true);
    until(&format!("{}: deletion is prevented", site.name), PATIENCE, || {
        let output = site.kubectl.run(&["delete", "tenant", "web", "--dry-run=server"]);
        (!output.success && output.stderr.contains("preventDeletion")).then_some(())
    });
    set("preventDeletion", false);
}

fn defaults_are_given_by_policies(site: &Site) {
    let mut n = 0;
    until(&format!("{}: a claim without class gets the default", site.name), PATIENCE, || {
        n += 1;
        let claim = format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: plain-{n}, namespace: web-a}}, \
             spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}"
        );
        as_ann(site, &claim).unwrap_or_else(|message| panic!("{}: {message}", site.name));
        let claim = site.get(&["pvc", &format!("plain-{n}"), "-n", "web-a"])?;
        (claim["spec"]["storageClassName"] == "fast").then_some(())
    });
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: unranked, namespace: web-a}, \
        spec: {containers: [{name: c, image: registry.example.com/a}]}}";
    as_ann(site, pod).unwrap_or_else(|message| panic!("{}: {message}", site.name));
    let pod = site.get(&["pod", "unranked", "-n", "web-a"]).unwrap();
    assert_eq!(pod["spec"]["priorityClassName"], "low", "{}", site.name);
    assert_eq!(pod["spec"]["priority"], 70, "{}", site.name);
    assert_eq!(
        pod["spec"]["nodeSelector"],
        json!({"example.com/pool": "web", "disk": "ssd"}),
        "{}",
        site.name
    );
}

fn the_authority_is_renewed_and_shared(site: &Site) {
    let client = site.client();
    let secret = Shared { namespace: "default".to_owned(), name: SECRET };
    let shared = |now: Timestamp| site.wait(Trust::shared(&client, &secret, now)).unwrap().bundle;
    let now = Timestamp::now();
    let before = shared(now);
    let end = freehold_pki::not_after(&before).unwrap();
    let late = end - jiff::SignedDuration::from_hours(24);
    let renewed = shared(late);
    assert!(renewed != before && renewed.contains(&before), "both authorities are trusted for a time");
    assert_eq!(shared(now), renewed, "replicas share it");
}

/// Without the webhook, and after a restart of the server, administrators go on, and rules hold.
fn nobody_is_locked_out_without_the_webhook(site: &mut Site) {
    // Registered, but gone: its scope ended with the tests before.
    site.restart();
    let admin = |args: &[&str]| {
        until(&format!("{}: the admin may {args:?}", site.name), PATIENCE, || {
            site.kubectl.run(args).success.then_some(())
        });
    };
    admin(&["create", "namespace", "fresh"]);
    admin(&["-n", "web-a", "create", "secret", "generic", "by-admin"]);
    admin(&["-n", "fresh", "create", "secret", "generic", "any"]);
    admin(&["delete", "namespace", "fresh", "--wait=false"]);
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: late, namespace: web-a}, \
        spec: {storageClassName: gold, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    refused(site, claim, "the class is not allowed");
    // What several namespaces share cannot be counted now: it is refused rather than exceeded.
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: uncounted, namespace: web-a}}";
    refused(site, secret, "failed calling webhook");
    // Outside of such namespaces members go on.
    site.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: lax}, spec: {members: [{role: owner, subjects: [{name: ann}]}], \
         namespaces: {declared: [{name: a}]}}}",
    );
    site.condition(&["namespace", "lax-a"], READY, "True", "Ready");
    until(&format!("{}: members go on elsewhere", site.name), PATIENCE, || {
        site.kubectl
            .run(&["-n", "lax-a", "create", "secret", "generic", "free", "--as", "ann"])
            .success
            .then_some(())
    });
}

/// Starts a webhook of its own scope, registered.
fn start_webhook(site: &Site) -> Scope {
    let scope = site.scope();
    let started = scope.clone();
    site.wait(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let local = listener.local_addr().expect("an address");
        let webhook = Webhook {
            listener,
            place: Place::new(local, None, None).expect("a place"),
            namespace: "default".to_owned(),
            exempt: Exempt::default(),
        };
        webhook.start(&started).await.expect("the webhook starts");
    });
    scope
}

fn namespaces_join_tenants(site: &Site) {
    let create = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"stage": "dev"}}});
        site.kubectl.run_with_input(&["create", "--as", "ann", "-f", "-"], &object.to_string())
    };
    // From the moment that the server knows the webhook.
    until(&format!("{}: a namespace joins its creator's tenant", site.name), PATIENCE, || {
        create("web-b").success.then_some(())
    });
    let namespace = site.condition(&["namespace", "web-b"], READY, "True", "Ready");
    assert_eq!(namespace["metadata"]["labels"]["tenancy.freehold.dev/tenant"], "web");
    assert_eq!(namespace["metadata"]["annotations"]["tenancy.freehold.dev/created-by"], "ann");
    let message = create("other").stderr;
    assert!(message.contains("begin with \"web-\""), "{}: {message}", site.name);
    // Twelve at most, counted exactly however many are created at once.
    let created: usize = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..16).map(|n| scope.spawn(move || create(&format!("web-n{n}")).success)).collect();
        threads.into_iter().map(|thread| usize::from(thread.join().expect("it runs"))).sum()
    });
    assert_eq!(created, 10, "{}", site.name);
    for n in 0..16 {
        if site.get(&["namespace", &format!("web-n{n}")]).is_some() {
            site.condition(&["namespace", &format!("web-n{n}")], READY, "True", "Ready");
        }
    }
    let second = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: same, namespace: web-b}, spec: {rules: [{host: a.web.example.com, \
        http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}}";
    refused(site, second, "is used by web-a/i2");
}

/// Creates a Secret as ann. `Ok(false)`: the limit is reached.
async fn create(client: &Client, namespace: &str, name: &str) -> Result<bool, Error> {
    let object =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}});
    let path = SECRETS.collection_path(Some(namespace));
    let mut request = RawRequest::new(Method::POST, path).json(&object);
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

/// How long a request may be retried.
const RETRIED: Duration = Duration::from_secs(240);

async fn create_until_decided(client: Client, namespace: String, name: String) -> bool {
    let (begun, mut pause) = (Instant::now(), Duration::from_millis(50));
    loop {
        match create(&client, &namespace, &name).await {
            Ok(created) => return created,
            Err(error) => assert!(begun.elapsed() < RETRIED, "{namespace}/{name}: {error}"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(3));
    }
}

/// Secrets in the tenant's namespaces, as the server has them.
fn stored(site: &Site) -> usize {
    let list = site.kubectl.json(&["get", "secrets", "-A", "-o", "json"]);
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter(|item| meta::namespace(item).starts_with("web-")).count()
}

fn limits_hold_under_parallel_creates(site: &Site, webhook: Scope) {
    let (requests, limit) = match std::env::var("FREEHOLD_TENANCY_LONG") {
        Ok(_) => (1000, 400),
        Err(_) => (150, 100),
    };
    let patch = json!({"spec": {"hard": {"secrets": limit.to_string()}}}).to_string();
    site.kubectl.ok(&["patch", "quotas.tenancy.freehold.dev", "narrow", "--type=merge", "-p", &patch]);
    site.until("the limit counts", &["tenant", "web"], |tenant| {
        tenant["status"]["quota"]["secrets"]["hard"] == json!(limit.to_string())
    });
    let list =
        site.kubectl.json(&["get", "namespaces", "-l", "tenancy.freehold.dev/tenant=web", "-o", "json"]);
    let names: Vec<String> =
        list["items"].as_array().into_iter().flatten().map(|item| meta::name(item).to_owned()).collect();
    for name in &names {
        site.until(
            "its own quota has the limit",
            &["resourcequota", "tenancy-narrow", "-n", name],
            |quota| quota["spec"]["hard"]["secrets"] == json!(limit.to_string()),
        );
    }
    assert!(site.wait(create_until_decided(site.client(), names[0].clone(), "calm".to_owned())));
    let before = stored(site);
    let (client, decided) = (site.client(), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..requests)
        .map(|n| {
            let (client, namespace, decided) =
                (client.clone(), names[n % names.len()].clone(), decided.clone());
            site.runtime().spawn(async move {
                let created = create_until_decided(client, namespace, format!("c{n}")).await;
                decided.fetch_add(1, Ordering::Relaxed);
                created
            })
        })
        .collect();
    // The webhook dies in the middle, and another takes its place.
    until("a part is decided", RETRIED, || (decided.load(Ordering::Relaxed) > requests / 5).then_some(()));
    webhook.token.cancel();
    let second = start_webhook(site);
    let begun = Instant::now();
    let created = tasks.into_iter().map(|task| site.wait(task).expect("it runs"));
    let created = created.filter(|created| *created).count();
    println!(
        "{}: {requests} creates decided, the last {:?} after the change of webhooks",
        site.name,
        begun.elapsed()
    );
    assert_eq!((before + created, stored(site)), (limit, limit), "{}: exactly the limit", site.name);
    freed_capacity_is_used_at_once(site, &names[0]);
    second.token.cancel();
}

fn freed_capacity_is_used_at_once(site: &Site, namespace: &str) {
    let client = site.client();
    assert!(!site.wait(create_until_decided(client.clone(), namespace.to_owned(), "extra".into())));
    let waited = site.wait(async {
        let options = freehold_client::DeleteOptions::default();
        client.delete(&SECRETS, Some(namespace), "calm", &options).await.expect("it is deleted");
        let begun = Instant::now();
        while !matches!(create(&client, namespace, "extra").await, Ok(true)) {
            assert!(begun.elapsed() < PATIENCE, "freed capacity is never used");
        }
        begun.elapsed()
    });
    println!("{}: freed capacity was used after {waited:?}", site.name);
}
