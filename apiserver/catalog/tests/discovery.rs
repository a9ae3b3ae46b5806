//! Discovery and type sets, against facts of kube-apiserver.

#![allow(clippy::unwrap_used)]

use freehold_apiserver_catalog::{
    Remote, TypeSet, builtin, custom_types, discovery, schema_of_definition, schema_of_kind, share,
};
use freehold_machinery::{GroupVersionKind, Value, resource::Cell};
use freehold_machinery_table::is_function;
use serde_json::json;
use std::sync::Arc;

fn crd(plural: &str, kind: &str, versions: &[&str]) -> Value {
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": *name == versions[0],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            "subresources": {"status": {}},
        })
    };
    json!({
        "metadata": {"name": format!("{plural}.stable.example.com")},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

fn names(list: &Value) -> Vec<&str> {
    list["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect()
}

#[test]
fn core_lists_the_resources_of_kubernetes_in_its_order() {
    let list = discovery::resource_list(&TypeSet::builtin(), "", "v1").unwrap();
    assert_eq!(
        names(&list).join(" "),
        "bindings componentstatuses configmaps endpoints events limitranges namespaces namespaces/finalize \
         namespaces/status nodes nodes/proxy nodes/status persistentvolumeclaims persistentvolumeclaims/status \
         persistentvolumes persistentvolumes/status pods pods/attach pods/binding pods/ephemeralcontainers \
         pods/eviction pods/exec pods/log pods/portforward pods/proxy pods/resize pods/status podtemplates replicationcontrollers replicationcontrollers/scale \
         replicationcontrollers/status resourcequotas resourcequotas/status secrets serviceaccounts \
         serviceaccounts/token services services/proxy services/status"
    );
}

#[test]
fn entries_are_those_of_kube_apiserver() {
    let all = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    let rows = [
        (
            "",
            "v1",
            json!({
                "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": all,
                "shortNames": ["po"], "categories": ["all"], "storageVersionHash": "xPOwRZ+Yhw8=",
            }),
        ),
        (
            "",
            "v1",
            json!({
                "name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
                "kind": "Eviction", "verbs": ["create"],
            }),
        ),
        (
            "",
            "v1",
            json!({
                "name": "pods/binding", "singularName": "", "namespaced": true, "kind": "Binding", "verbs": ["create"],
            }),
        ),
        (
            "",
            "v1",
            json!({
                "name": "serviceaccounts/token", "singularName": "", "namespaced": true,
                "group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest", "verbs": ["create"],
            }),
        ),
        (
            "",
            "v1",
            json!({
                "name": "events", "singularName": "event", "namespaced": true, "kind": "Event", "verbs": all,
                "shortNames": ["ev"], "storageVersionHash": "r2yiGXH7wu8=",
            }),
        ),
        (
            "apps",
            "v1",
            json!({
                "name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
                "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
            }),
        ),
        (
            "autoscaling",
            "v1",
            json!({
                "name": "horizontalpodautoscalers", "singularName": "horizontalpodautoscaler", "namespaced": true,
                "kind": "HorizontalPodAutoscaler", "verbs": all, "shortNames": ["hpa"], "categories": ["all"],
                "storageVersionHash": "qwQve8ut294=",
            }),
        ),
        (
            "networking.k8s.io",
            "v1",
            json!({
                "name": "ingresses", "singularName": "ingress", "namespaced": true, "kind": "Ingress", "verbs": all,
                "shortNames": ["ing"], "storageVersionHash": "39NQlfNR+bo=",
            }),
        ),
        (
            "authorization.k8s.io",
            "v1",
            json!({
                "name": "subjectaccessreviews", "singularName": "subjectaccessreview", "namespaced": false,
                "kind": "SubjectAccessReview", "verbs": ["create"],
            }),
        ),
        (
            "storage.k8s.io",
            "v1",
            json!({
                "name": "csinodes", "singularName": "csinode", "namespaced": false, "kind": "CSINode", "verbs": all,
                "storageVersionHash": "Pe62DkZtjuo=",
            }),
        ),
    ];
    for (group, version, expected) in rows {
        let list = discovery::resource_list(&TypeSet::builtin(), group, version).unwrap();
        let entry = list["resources"].as_array().unwrap().iter().find(|r| r["name"] == expected["name"]);
        assert_eq!(entry, Some(&expected));
    }
}

#[test]
fn groups_come_in_the_order_of_their_priorities() {
    let list = discovery::group_list(&TypeSet::builtin());
    let groups: Vec<_> =
        list["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert_eq!(
        groups.join(" "),
        "apiregistration.k8s.io apps events.k8s.io authentication.k8s.io authorization.k8s.io autoscaling batch \
         certificates.k8s.io networking.k8s.io policy rbac.authorization.k8s.io storage.k8s.io \
         admissionregistration.k8s.io apiextensions.k8s.io scheduling.k8s.io coordination.k8s.io node.k8s.io \
         discovery.k8s.io resource.k8s.io flowcontrol.apiserver.k8s.io"
    );
    let autoscaling = discovery::group(&TypeSet::builtin(), "autoscaling").unwrap();
    assert_eq!(autoscaling["preferredVersion"]["groupVersion"], "autoscaling/v2");
    assert_eq!(autoscaling["versions"][1]["version"], "v1");
    assert_eq!(discovery::group(&TypeSet::builtin(), ""), None, "core is not below /apis");
}

#[test]
fn aggregated_discovery_has_everything_at_once() {
    let set = share(custom_types(&crd("crontabs", "CronTab", &["v1"])).unwrap(), vec![]);
    let apis = discovery::aggregated(&set, false);
    let of = |group: &str| {
        let items = apis["items"].as_array().unwrap();
        items.iter().find(|item| item["metadata"]["name"] == group).cloned().unwrap()
    };
    let deployments = of("apps")["versions"][0]["resources"][2].clone();
    assert_eq!(deployments["resource"], "deployments");
    assert_eq!(deployments["responseKind"], json!({"group": "", "version": "", "kind": "Deployment"}));
    assert_eq!(
        deployments["subresources"][0],
        json!({
            "subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
            "verbs": ["get", "patch", "update"],
        })
    );
    let crontabs = of("stable.example.com")["versions"][0].clone();
    assert_eq!(crontabs["freshness"], "Current");
    assert_eq!(
        crontabs["resources"][0]["responseKind"],
        json!({"group": "stable.example.com", "version": "v1", "kind": "CronTab"})
    );
    let core = discovery::aggregated(&set, true);
    assert_eq!(core["items"][0]["versions"][0]["resources"].as_array().unwrap().len(), 17);
}

#[test]
fn each_built_in_kind_has_a_schema_and_valid_columns() {
    let set = TypeSet::builtin();
    assert!(set.iter().count() > 60);
    for ty in set.iter() {
        let schema = ty.schema.get().unwrap_or_else(|| panic!("{} has no schema", ty.plural));
        assert!(schema.properties.contains_key("metadata"), "{}", ty.plural);
        for column in &ty.columns {
            let Cell::Function(call) = column.cell else {
                panic!("{}: built-in columns are computed", ty.plural)
            };
            assert!(is_function(call), "{}: {call} is no cell function", ty.plural);
        }
        // Options are parameters of a request, and no objects.
        for sub in ty.subresources.iter().filter(|sub| !sub.kind.kind.ends_with("Options")) {
            assert!(schema_of_kind(&sub.kind).is_some(), "{}/{} has no schema", ty.plural, sub.name);
        }
    }
}

#[test]
fn schemas_say_what_the_overlay_states() {
    let pod = schema_of_definition("io.k8s.api.core.v1.PodSpec").unwrap();
    let containers = &pod.properties["containers"];
    assert_eq!(containers.list_map_keys, ["name".into()]);
    assert!(containers.patch_strategies.merge);
    assert!(pod.properties["volumes"].patch_strategies.retain_keys);
    assert!(pod.properties["nodeSelector"].atomic_map);
    let ports = &containers.items.as_ref().unwrap().properties["ports"];
    assert_eq!(ports.list_map_keys, ["containerPort".into(), "protocol".into()]);
    assert_eq!(ports.items.as_ref().unwrap().properties["protocol"].default, Some("TCP".into()));
    let meta = schema_of_definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").unwrap();
    assert!(meta.properties["managedFields"].items.as_ref().unwrap().properties["fieldsV1"].preserve_unknown);
}

#[test]
fn equal_schemas_are_there_once() {
    let set = TypeSet::builtin();
    let containers = |plural| {
        let schema = set.find("apps", "v1", plural).unwrap().schema.get().unwrap();
        let template = &schema.properties["spec"].properties["template"];
        template.properties["spec"].properties["containers"].clone()
    };
    assert!(Arc::ptr_eq(&containers("deployments"), &containers("replicasets")));
}

#[test]
fn types_are_found_by_resource_and_kind() {
    let set = share(custom_types(&crd("crontabs", "CronTab", &["v1beta1", "v1"])).unwrap(), vec![]);
    assert_eq!(set.find("", "v1", "pods").unwrap().kind, "Pod");
    assert_eq!(set.by_kind("apps", "v1", "Deployment").unwrap().plural, "deployments");
    assert_eq!(set.by_resource("autoscaling", "horizontalpodautoscalers").unwrap().version, "v2");
    assert_eq!(set.by_resource("stable.example.com", "crontabs").unwrap().version, "v1");
    for (group, version, resource) in
        [("", "v2", "pods"), ("", "v1", "deployments"), ("absent", "v1", "pods")]
    {
        assert!(set.find(group, version, resource).is_none());
    }
    assert!(TypeSet::builtin().group("stable.example.com").is_none());
}

#[test]
fn planes_with_equal_types_share_them() {
    let (a, b) = (crd("shared", "Shared", &["v1"]), crd("shared", "Shared", &["v1"]));
    let (first, second) = (custom_types(&a).unwrap(), custom_types(&b).unwrap());
    assert!(Arc::ptr_eq(&first[0], &second[0]), "an equal CRD gives the same type");
    let (one, other) = (share(first.clone(), vec![]), share(second, vec![]));
    assert!(Arc::ptr_eq(&one, &other), "equal types give the same set");
    let third = share(custom_types(&crd("others", "Other", &["v1"])).unwrap(), vec![]);
    assert_ne!(one.hash(), third.hash());
    assert!(Arc::ptr_eq(&share(vec![], vec![]), builtin().types()), "without customs there is one set");
}

#[test]
fn a_custom_type_does_not_replace_a_built_in_one() {
    let mut deployments = crd("deployments", "Deployment", &["v1"]);
    deployments["spec"]["group"] = "apps".into();
    let set = TypeSet::new(custom_types(&deployments).unwrap(), vec![]);
    assert!(!set.find("apps", "v1", "deployments").unwrap().custom);
}

#[test]
fn groups_of_other_servers_take_part_in_discovery() {
    let remote = Remote {
        group: "metrics.k8s.io".to_owned(),
        version: "v1beta1".to_owned(),
        group_priority: 100,
        version_priority: 100,
        resources: vec![json!({"resource": "nodes"})],
        fresh: false,
        openapi: String::new(),
    };
    let set = TypeSet::new(vec![], vec![Arc::new(remote)]);
    let apis = discovery::aggregated(&set, false);
    let last = apis["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["metadata"]["name"], "metrics.k8s.io");
    assert_eq!(
        last["versions"],
        json!([{"version": "v1beta1", "freshness": "Stale", "resources": [{"resource": "nodes"}]}])
    );
    assert_eq!(discovery::resource_list(&set, "metrics.k8s.io", "v1beta1"), None, "its server answers that");
}

#[test]
fn a_kind_that_only_a_subresource_speaks_has_a_schema() {
    let gvk = GroupVersionKind { group: "policy".into(), version: "v1".into(), kind: "Eviction".into() };
    assert!(schema_of_kind(&gvk).unwrap().properties.contains_key("deleteOptions"));
}

#[test]
fn a_type_shows_in_the_contexts_that_its_definition_names() {
    let mut bound = crd("crontabs", "CronTab", &["v1"]);
    bound["metadata"]["annotations"] = json!({"freehold.dev/contexts": "project, Organization,nonsense"});
    let types = custom_types(&bound).unwrap();
    assert_eq!(types[0].contexts, ["organization", "project"]);
    let mut all = types;
    all.extend(custom_types(&crd("others", "Other", &["v1"])).unwrap());
    let set = share(all, vec![]);
    let shown = |context: &str| {
        let shown = set.shown_in(context);
        ["crontabs", "others"].map(|plural| shown.find("stable.example.com", "v1", plural).is_some())
    };
    assert_eq!(
        ["platform", "organization", "project", "user"].map(shown),
        [[false, true], [true, true], [true, true], [false, true]]
    );
    let free = share(custom_types(&crd("others", "Other", &["v1"])).unwrap(), vec![]);
    assert!(std::sync::Arc::ptr_eq(&free, &free.shown_in("user")), "nothing is made where nothing is bound");
}

#[test]
fn a_definition_that_ends_lets_nothing_be_made() {
    let mut ending = crd("crontabs", "CronTab", &["v1"]);
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let types = custom_types(&ending).unwrap();
    assert!(types[0].terminating);
    let list = discovery::resource_list(&share(types, vec![]), "stable.example.com", "v1");
    let verbs = &list.unwrap()["resources"][0]["verbs"];
    assert_eq!(*verbs, json!(["delete", "deletecollection", "get", "list", "watch"]));
}
