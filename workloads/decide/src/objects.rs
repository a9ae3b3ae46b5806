//! Host objects of what Pods refer to: ConfigMaps, Secrets, claims and Services.

use crate::Refusal;
use crate::names::{host_name, host_namespace, is_tenants};
use crate::pod::{labels, origin};
use freehold_api::ClassWorkloads;
use freehold_machinery::{Map, Value, meta};
use serde_json::json;

/// Types of Secrets that mean the same everywhere. Others could make a controller of the host act.
const SECRET_TYPES: [&str; 6] = [
    "Opaque",
    "kubernetes.io/basic-auth",
    "kubernetes.io/dockercfg",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/ssh-auth",
    "kubernetes.io/tls",
];
/// Fields of a Service that are passed on as they are.
const SERVICE_FIELDS: [&str; 7] = [
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "publishNotReadyAddresses",
    "sessionAffinity",
    "sessionAffinityConfig",
    "trafficDistribution",
];
/// Fields of a Service's port that are passed on.
const PORT_FIELDS: [&str; 5] = ["appProtocol", "name", "port", "protocol", "targetPort"];
/// Fields of a claim that are passed on as they are.
const CLAIM_FIELDS: [&str; 3] = ["accessModes", "resources", "volumeMode"];
/// Fields of a claim that name other objects.
const CLAIM_REFERENCES: [&str; 5] =
    ["dataSource", "dataSourceRef", "selector", "volumeAttributesClassName", "volumeName"];
/// The StorageClasses that a class has no name for.
const OTHERS: &str = "*";

fn host(object: &Value, project: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": host_name(meta::name(object)),
            "namespace": host_namespace(project, meta::namespace(object)),
            "labels": labels(object, project),
            "annotations": origin(object).into_iter().collect::<Map>(),
        },
    })
}

fn copy(from: &Value, fields: &[&str], to: &mut Value) {
    for field in fields {
        if let Some(value) = from.get(*field).filter(|value| !value.is_null()) {
            to[*field] = value.clone();
        }
    }
}

/// The host ConfigMap of a project's.
pub fn config_map(object: &Value, project: &str) -> Value {
    let mut map = host(object, project, "ConfigMap");
    copy(object, &["data", "binaryData"], &mut map);
    map
}

/// The host Secret of a project's.
pub fn secret(object: &Value, project: &str) -> Value {
    let mut secret = host(object, project, "Secret");
    copy(object, &["data"], &mut secret);
    let type_ = object["type"].as_str().filter(|type_| SECRET_TYPES.contains(type_));
    secret["type"] = type_.unwrap_or("Opaque").into();
    secret
}

/// The host claim of a project's.
///
/// # Errors
/// Its StorageClass is none of the class', or it names volumes or other claims.
pub fn claim(object: &Value, project: &str, class: &ClassWorkloads) -> Result<Value, Refusal> {
    let spec = &object["spec"];
    if let Some(field) = CLAIM_REFERENCES.iter().find(|field| spec.get(**field).is_some_and(is_given)) {
        return Err(Refusal::field(&format!("spec.{field}"), "it can't be on a shared cluster"));
    }
    let name = spec["storageClassName"].as_str().unwrap_or_default();
    let storage = class.storage_classes.get(name).or_else(|| class.storage_classes.get(OTHERS));
    let Some(storage) = storage else {
        let known: Vec<&str> = class.storage_classes.keys().map(String::as_str).collect();
        let why = format!("the project's class has {known:?} and not {name:?}");
        return Err(Refusal::field("spec.storageClassName", &why));
    };
    let mut claim = host(object, project, "PersistentVolumeClaim");
    let mut host = json!({"storageClassName": storage});
    copy(spec, &CLAIM_FIELDS, &mut host);
    claim["spec"] = host;
    Ok(claim)
}

fn is_given(value: &Value) -> bool {
    !value.is_null() && *value != json!("")
}

/// The host Service of a project's; `None` for one that the host can't have: that of the API, and those without a selector,
/// whose endpoints anybody could name.
pub fn service(object: &Value, project: &str, class: &ClassWorkloads) -> Option<Value> {
    let spec = &object["spec"];
    let selector: Map = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| is_tenants(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if selector.is_empty() {
        return None;
    }
    let mut service = host(object, project, "Service");
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| {
        let mut host = json!({});
        copy(port, &PORT_FIELDS, &mut host);
        host
    });
    let is_balancer = spec["type"] == "LoadBalancer" && class.load_balancers;
    let type_ = if is_balancer { "LoadBalancer" } else { "ClusterIP" };
    let mut host = json!({"selector": selector, "ports": ports.collect::<Vec<_>>(), "type": type_});
    copy(spec, &SERVICE_FIELDS, &mut host);
    if spec["clusterIP"] == "None" {
        host["clusterIP"] = "None".into();
    }
    service["spec"] = host;
    Some(service)
}

/// The status of a project's claim that its host claim gives; `None` where it has it already.
pub fn claim_status(claim: &Value, host: &Value) -> Option<Value> {
    let mut status = json!({});
    copy(&host["status"], &["phase", "capacity", "accessModes", "conditions"], &mut status);
    (status != json!({}) && status != claim["status"]).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(more: Value) -> Value {
        let mut object = json!({"metadata": {
            "name": "a", "namespace": "n", "uid": "u", "annotations": {"evil": "x"}, "finalizers": ["tenant/holds"],
            "labels": {"app": "a", "workloads.freehold.dev/project": "other"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}],
        }});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    }

    #[test]
    fn nothing_of_a_tenants_metadata_but_labels_reaches_the_host() {
        let map = config_map(&object(json!({"data": {"k": "v"}, "immutable": true})), "p");
        let metadata = map["metadata"].as_object().unwrap();
        assert_eq!(metadata.keys().collect::<Vec<_>>(), ["annotations", "labels", "name", "namespace"]);
        assert_eq!(metadata["labels"], json!({"app": "a", "workloads.freehold.dev/project": "p"}));
        assert_eq!(metadata["annotations"].as_object().unwrap().len(), 3);
        assert_eq!((&map["data"]["k"], map.get("immutable")), (&json!("v"), None));
    }

    #[test]
    fn secrets_keep_only_types_that_make_nobody_act() {
        for (type_, expected) in [
            ("kubernetes.io/tls", "kubernetes.io/tls"),
            ("kubernetes.io/service-account-token", "Opaque"),
            ("bootstrap.kubernetes.io/token", "Opaque"),
            ("helm.sh/release.v1", "Opaque"),
        ] {
            assert_eq!(secret(&object(json!({"type": type_})), "p")["type"], expected);
        }
    }

    #[test]
    fn claims_get_a_storage_class_that_the_class_names_and_refer_to_nothing() {
        let class: ClassWorkloads =
            serde_json::from_value(json!({"storageClasses": {"fast": "host-ssd", "*": "host-disk"}}))
                .unwrap();
        let claim = |spec: Value| super::claim(&object(json!({"spec": spec})), "p", &class);
        assert_eq!(
            claim(json!({"storageClassName": "fast"})).unwrap()["spec"]["storageClassName"],
            "host-ssd"
        );
        assert_eq!(claim(json!({})).unwrap()["spec"]["storageClassName"], "host-disk");
        for field in CLAIM_REFERENCES {
            assert!(claim(json!({field: {"name": "x"}})).is_err(), "{field}");
        }
        let none = super::claim(&object(json!({"spec": {}})), "p", &ClassWorkloads::default());
        assert!(none.unwrap_err().0.contains("storageClassName"));
    }

    #[test]
    fn services_expose_nothing_that_the_class_does_not_allow() {
        let spec = json!({
            "type": "LoadBalancer", "selector": {"app": "a"}, "clusterIP": "10.96.0.9", "externalIPs": ["8.8.8.8"],
            "loadBalancerIP": "1.1.1.1", "ports": [{"port": 80, "targetPort": "http", "nodePort": 30000}],
        });
        let host = service(&object(json!({"spec": spec})), "p", &ClassWorkloads::default()).unwrap();
        let expected = json!({
            "type": "ClusterIP", "selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": "http"}],
        });
        assert_eq!(host["spec"], expected);
        let class = ClassWorkloads { load_balancers: true, ..ClassWorkloads::default() };
        let host = service(&object(json!({"spec": spec})), "p", &class).unwrap();
        assert_eq!(host["spec"]["type"], "LoadBalancer");
        for spec in [
            json!({"ports": [{"port": 80}]}),
            json!({"selector": {"workloads.freehold.dev/project": "other"}, "ports": []}),
            json!({"type": "ExternalName", "externalName": "kubernetes.default.svc"}),
        ] {
            assert_eq!(service(&object(json!({"spec": spec})), "p", &class), None, "{spec}");
        }
    }
}
