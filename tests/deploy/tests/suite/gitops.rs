//! The two ways of a pair: what policies and manifests of `deploy/gitops` make is what the provisioner plans.
//!
//! Manifests are built by Flux' own library (`tools/get flux`). Policies run in Kyverno's CLI where it is there (`tools/get kyverno`,
//! which takes long to build); otherwise this test renders what they generate, and says so.

mod policies;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_provisioner::plan::{
    AdmissionPlugins, Credentials, Etcd, Inputs, KeyPair, Reach, Size, Spec, Trust,
    delivery::{Delivery, announcement},
    plan,
};
use freehold_tests_deploy::{parse, run, top};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLANE: &str = "7b0c1e4e-0000-4000-8000-000000000001";
/// What makers of objects write into their labels, and of what nothing depends.
const MAKERS: [&str; 3] =
    ["app.kubernetes.io/managed-by", "generate.kyverno.io/", "kustomize.toolkit.fluxcd.io/"];

fn tool(name: &str) -> PathBuf {
    top().join(".tools/bin").join(name)
}

fn is_available() -> bool {
    let there = tool("flux-build").is_file();
    if !there {
        eprintln!("left out: `tools/get flux` builds what it needs");
    }
    there
}

fn spec(project: &str) -> Spec {
    Spec {
        name: PLANE.into(),
        uid: String::new(),
        project: project.into(),
        plane: PLANE.into(),
        organization: "acme".into(),
        class: "large".into(),
        asleep: false,
    }
}

fn inputs() -> Inputs {
    let pair =
        |name: &str| KeyPair { cert_pem: format!("cert of {name}\n"), key_pem: format!("key of {name}\n") };
    Inputs {
        image: "registry.example/freehold:0.1.0".into(),
        controller_manager_image: None,
        image_pull_policy: "IfNotPresent".into(),
        etcd: Etcd {
            endpoints: vec!["https://freehold.freehold-system.svc".into()],
            prefix: "/freehold/".into(),
            ca_pem: Some("store CA\n".into()),
        },
        trust: Trust {
            serving_ca_pem: "serving CA\n".into(),
            client_ca_pem: "client CA\n".into(),
            front_proxy_ca_pem: "front proxy CA\n".into(),
            front_proxy_names: vec!["front-proxy-client".into()],
        },
        credentials: Credentials {
            serving: pair("serving"),
            etcd: Some(pair("etcd")),
            proxy: Some(pair("proxy")),
            controller_manager: pair("controller manager"),
            admin: pair("admin"),
            service_account_keys_pem: "token key\n".into(),
        },
        size: Size::default(),
        core_namespace_labels: [("kubernetes.io/metadata.name".into(), "freehold-system".into())].into(),
        core_networks: Vec::new(),
        reach: Reach::Service,
        drain_seconds: 5,
        outbound_networks: "public".into(),
        admission_plugins: AdmissionPlugins::default(),
        telemetry: BTreeMap::new(),
        endpoint: None,
    }
}

/// A project and what its class and the platform ask for.
fn cases() -> Vec<(Spec, Inputs)> {
    let large = Inputs {
        size: Size {
            replicas: 3,
            apiserver: json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}),
            ..Size::default()
        },
        core_networks: vec!["10.0.0.0/8".into(), "fd00::/8".into()],
        telemetry: [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces"),
            ("OTEL_RESOURCE_ATTRIBUTES", ""),
            ("OTEL_SERVICE_NAME", "freehold-pair"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        controller_manager_image: Some("registry.example/freehold:0.0.9".into()),
        admission_plugins: AdmissionPlugins {
            enable: vec!["AlwaysPullImages".into(), "EventRateLimit".into()],
            disable: vec!["LimitRanger".into()],
            configuration: Some("{\"kind\": \"AdmissionConfiguration\"}\n".into()),
        },
        ..inputs()
    };
    // A name that is a number has to stay a string in labels.
    vec![(spec("web"), inputs()), (spec("007"), large)]
}

/// A folder with copies of what the tools read, and what they make.
struct Workshop(tempfile::TempDir);

impl Workshop {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(folder.path().join("deploy")).expect("the test's folder can be written");
        let (copied, printed) = run(Command::new("cp")
            .arg("-r")
            .arg(top().join("deploy/gitops"))
            .arg(folder.path().join("deploy")));
        assert!(copied, "{printed}");
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, object: &Value) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, object.to_string()).expect("the test's folder can be written");
        path
    }

    /// What Kyverno makes for an object, by one of the policies.
    fn kyverno(&self, policy: &str, trigger: &Value) -> Vec<Value> {
        let path = self.path().join("deploy/gitops/policies").join(policy);
        if !tool("kyverno").is_file() {
            eprintln!("{policy}: rendered by this test; `tools/get kyverno` builds the real one");
            let text = std::fs::read_to_string(&path).expect("the policy is there");
            return policies::generated(&parse(&text)[0], trigger);
        }
        let trigger = self.write("trigger.yaml", trigger);
        let out = self.path().join("generated");
        // It appends to what is there.
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir(&out).expect("the test's folder can be written");
        let mut command = Command::new(tool("kyverno"));
        command.env("HOME", self.path()).arg("apply").arg(&path);
        let (_, printed) = run(command.arg("--resource").arg(trigger).arg("-o").arg(&out));
        let files = std::fs::read_dir(&out).expect("the folder is there").flatten();
        let texts = files.map(|file| std::fs::read_to_string(file.path()).expect("a text"));
        let made: Vec<Value> = texts.flat_map(|text| parse(&text)).collect();
        assert!(printed.contains("fail: 0") && printed.contains("error: 0"), "{policy}:\n{printed}");
        made
    }

    /// What Flux applies for a Kustomization.
    fn flux(&self, kustomization: &Value, values: &Value) -> Vec<Value> {
        let files = [self.write("kustomization.json", kustomization), self.write("values.json", values)];
        let (built, printed) = run(Command::new(tool("flux-build")).arg(self.path()).args(files));
        assert!(built, "{printed}");
        parse(&printed)
    }
}

fn named<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {name} among {objects:#?}"))
}

/// An object without what tells who made it; kubeconfigs as what they say.
fn plain(mut object: Value) -> (String, Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    for pointer in ["/metadata/labels", "/spec/template/metadata/labels"] {
        if let Some(labels) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            labels.retain(|key, _| !MAKERS.iter().any(|maker| key.starts_with(maker)));
        }
    }
    if let Some(text) = object.pointer("/data/kubeconfig").and_then(Value::as_str) {
        let text = String::from_utf8(BASE64_STANDARD.decode(text).expect("base64")).expect("text");
        object["data"]["kubeconfig"] = parse(&text).remove(0);
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    (format!("{kind} {namespace}/{}", object["metadata"]["name"]), object)
}

#[test]
fn both_ways_of_a_pair_give_the_same_objects() {
    if !is_available() {
        return;
    }
    let workshop = Workshop::new();
    for (spec, inputs) in cases() {
        let gitops = Size { delivery: Delivery::GitOps, ..inputs.size.clone() };
        let delivered = plan(&spec, &Inputs { size: gitops, ..inputs.clone() });
        let mut made: Vec<Value> =
            delivered.into_iter().filter(|object| Delivery::GitOps.makes(object)).collect();
        assert!(made.iter().all(|object| object["kind"] == "Secret"), "the provisioner makes Secrets alone");

        let objects = workshop.kyverno("pair.yaml", &announcement(&spec, &inputs));
        let kustomization = named(&objects, "pair");
        made.push(named(&objects, &format!("project-{PLANE}")).clone());
        let values =
            made.iter().position(|object| object["metadata"]["name"] == "pair-values").expect("values");
        let values = made.remove(values);
        made.extend(workshop.flux(kustomization, &values));
        for name in ["admin", "controller-manager"] {
            let generated = workshop.kyverno("kubeconfig.yaml", named(&made, &format!("{name}-client")));
            made.push(named(&generated, &format!("{name}-kubeconfig")).clone());
        }

        let made: BTreeMap<String, Value> = made.into_iter().map(plain).collect();
        let planned: BTreeMap<String, Value> = plan(&spec, &inputs).into_iter().map(plain).collect();
        assert_eq!(made.keys().collect::<Vec<_>>(), planned.keys().collect::<Vec<_>>());
        for (name, object) in &planned {
            assert!(
                &made[name] == object,
                "{name} by git:\n{:#}\nby the provisioner:\n{object:#}",
                made[name]
            );
        }
    }
}

#[test]
fn a_control_plane_whose_name_is_not_its_uid_gets_nothing() {
    if !is_available() {
        return;
    }
    let workshop = Workshop::new();
    let mut object = announcement(&spec("web"), &inputs());
    object["metadata"]["name"] = "another".into();
    assert_eq!(workshop.kyverno("pair.yaml", &object), Vec::<Value>::new());
    object["metadata"]["name"] = PLANE.into();
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(workshop.kyverno("pair.yaml", &object), Vec::<Value>::new());
}

#[test]
fn the_kind_is_the_one_that_core_servers_have() {
    let path = top().join("deploy/gitops/crd.yaml");
    let kinds = freehold_api::infra_crds();
    if std::env::var_os("UPDATE").is_some() {
        let texts = kinds.iter().map(|kind| serde_saphyr::to_string(kind).expect("a kind can be written"));
        let text = format!(
            "# Made from the program: UPDATE=1 cargo test -p freehold-tests-deploy\n{}",
            texts.collect::<Vec<_>>().join("---\n")
        );
        std::fs::write(&path, text).expect("deploy/gitops can be written");
    }
    let there = parse(&std::fs::read_to_string(&path).unwrap_or_default());
    assert!(there == kinds, "deploy/gitops/crd.yaml is old: UPDATE=1 cargo test -p freehold-tests-deploy");
}
