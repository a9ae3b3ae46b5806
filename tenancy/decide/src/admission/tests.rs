use super::*;
use freehold_tenancy_api::tenant::TenantSpec;
use serde_json::json;

/// Tenants and namespaces of a test.
#[derive(Default)]
struct Fixed {
    tenants: Vec<Arc<Tenant>>,
    namespaces: Vec<(&'static str, &'static str)>,
    hosts: Vec<(&'static str, HostUse)>,
}

impl Index for Fixed {
    fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        let (name, tenant) = self.namespaces.iter().find(|(known, _)| *known == name)?;
        let labels = [(TENANT_LABEL.to_owned(), (*tenant).to_owned())].into();
        Some(Arc::new(Namespace { name: (*name).to_owned(), labels, ..Namespace::default() }))
    }
    fn tenant(&self, name: &str) -> Option<Arc<Tenant>> {
        self.tenants.iter().find(|tenant| tenant.metadata.name == name).cloned()
    }
    fn tenants_of(&self, subject: &Subject) -> Vec<Arc<Tenant>> {
        let has = |tenant: &&Arc<Tenant>| tenant.spec.members.iter().any(|m| m.subjects.contains(subject));
        self.tenants.iter().filter(has).cloned().collect()
    }
    fn host_uses(&self, host: &str, _: &str) -> Vec<HostUse> {
        self.hosts.iter().filter(|(known, _)| *known == host).map(|(_, other)| other.clone()).collect()
    }
}

fn tenant(name: &str, spec: Value) -> Arc<Tenant> {
    Arc::new(Tenant::new(name, serde_json::from_value::<TenantSpec>(spec).unwrap()))
}

fn world() -> Fixed {
    let member = |role: &str, name: &str| json!([{"role": role, "subjects": [{"name": name}]}]);
    let web = json!({
        "parent": "corp", "members": member("editor", "ann"), "namespaces": {"selfService": true, "requirePrefix": true},
        "classes": {"storage": {"allowed": ["fast", "slow"], "default": "slow"}, "priority": {"allowed": ["low"]}},
        "images": {"registries": ["docker.io/library", "r.example.com/web"]},
        "hosts": {"allowed": ["*.web.example.com"], "forbidWildcards": true, "collisionScope": "Cluster"},
        "services": {"types": ["ClusterIP"], "externalIps": ["10.1.0.0/16"]},
        "scheduling": {"nodeSelector": {"pool": "web"}, "tolerations": ["spot"]},
        "metadata": {"labelRules": {"required": {"stage": ["test", "prod"]}, "forbidden": ["admin/*"], "protected": ["cost"]}},
    });
    let corp = json!({"classes": {"storage": {"allowed": ["slow"]}}, "members": member("owner", "boss")});
    let still = json!({"cordoned": true, "members": member("owner", "ann")});
    let user = HostUse { namespace: "db-x".into(), tenant: Some("db".into()), name: "i".into() };
    Fixed {
        tenants: vec![tenant("web", web), tenant("corp", corp), tenant("still", still)],
        namespaces: vec![("web-a", "web"), ("still-a", "still"), ("free", "")],
        hosts: vec![("taken.web.example.com", user)],
    }
}

fn user(name: &str) -> User {
    User { name: name.into(), groups: vec!["system:authenticated".into()] }
}

const NULL: Value = Value::Null;

fn create(resource: &str, namespace: &str, object: &Value, who: &str) -> Decision {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let groups = if who == "root" { vec!["system:masters".to_owned()] } else { Vec::new() };
    let user = User { groups, ..user(who) };
    let request = Request {
        operation: Operation::Create,
        resource: GroupResource::new(group, resource),
        subresource: "",
        namespace,
        name: "x",
        object,
        old: &NULL,
        user: &user,
    };
    admit(&request, &world(), &Exempt::default())
}

fn denied(decision: &Decision) -> &str {
    match decision {
        Decision::Deny(message) => message,
        Decision::Allow(_) => "",
    }
}

#[test]
fn objects_are_held_to_the_rules_of_all_tenants_above() {
    let pod = |spec: Value| ("pods", json!({"spec": spec}));
    let ingress = |host: &str| ("ingresses.networking.k8s.io", json!({"spec": {"rules": [{"host": host}]}}));
    let rows = [
        (("persistentvolumeclaims", json!({"spec": {"storageClassName": "fast"}})), "StorageClass \"fast\""),
        (("persistentvolumeclaims", json!({"spec": {"storageClassName": "slow"}})), ""),
        (pod(json!({"priorityClassName": "high"})), "PriorityClass \"high\""),
        (pod(json!({"containers": [{"image": "nginx"}, {"image": "r.example.com/web/a:1"}]})), ""),
        (pod(json!({"containers": [{"image": "r.example.com/webs/a"}]})), "image \"r.example.com/webs/a\""),
        (pod(json!({"initContainers": [{"image": "quay.io/a/b"}]})), "image \"quay.io/a/b\""),
        (pod(json!({"volumes": [{"image": {"reference": "quay.io/a/b"}}]})), "image \"quay.io/a/b\""),
        (pod(json!({"nodeSelector": {"pool": "db"}})), "node selector pool"),
        (pod(json!({"tolerations": [{"key": "gpu"}]})), "toleration \"gpu\""),
        (pod(json!({"tolerations": [{"operator": "Exists"}]})), "toleration \"of all taints\""),
        (pod(json!({"tolerations": [{"key": "spot"}, {"key": "node.kubernetes.io/not-ready"}]})), ""),
        (("services", json!({"spec": {"type": "LoadBalancer"}})), "Service type LoadBalancer"),
        (("services", json!({"spec": {"externalIPs": ["10.2.0.1"]}})), "external IP 10.2.0.1"),
        (("services", json!({"spec": {"externalIPs": ["10.1.9.1"]}})), ""),
        (ingress("a.web.example.com"), ""),
        (ingress("example.com"), "host \"example.com\" is not allowed"),
        (ingress("*.web.example.com"), "wildcard host"),
        (ingress("taken.web.example.com"), "used by another tenant"),
        (
            ("ingresses.networking.k8s.io", json!({"spec": {"defaultBackend": {}}})),
            "host \"\" is not allowed",
        ),
        (("httproutes.gateway.networking.k8s.io", json!({"spec": {}})), "host \"\" is not allowed"),
        (("httproutes.gateway.networking.k8s.io", json!({"spec": {"hostnames": ["b.web.example.com"]}})), ""),
    ];
    for ((resource, object), expected) in rows {
        let decision = create(resource, "web-a", &object, "ann");
        let message = denied(&decision);
        assert_eq!(message.is_empty(), expected.is_empty(), "{object}: {message}");
        assert!(message.contains(expected), "{object}: {message}");
        assert_eq!(denied(&create(resource, "web-a", &object, "root")), "", "administrators are exempt");
        assert_eq!(denied(&create(resource, "free", &object, "ann")), "", "other namespaces are free");
    }
}

#[test]
fn providers_of_shared_apis_are_no_part_of_the_cluster() {
    let made = |who: &str| create("configmaps", "still-a", &json!({}), who);
    assert!(denied(&made("system:freehold:provider:p:e")).contains("cordoned"));
    assert_eq!(denied(&made("system:freehold:controller-manager")), "");
}

#[test]
fn controllers_with_all_rights_are_held_to_the_rules_of_those_they_act_for() {
    let pod = |owners: Value| json!({"metadata": {"ownerReferences": owners}, "spec": {"containers": [{"image": "quay.io/a"}]}});
    let owned = json!([{"kind": "ReplicaSet", "name": "r", "controller": true}]);
    let rows = [
        ("admin", json!([]), true),
        ("admin", json!([{"kind": "ReplicaSet", "name": "r"}]), true),
        ("admin", owned.clone(), false),
        ("system:freehold:controller-manager", json!([]), false),
        ("system:kube-controller-manager", json!([]), false),
        ("system:serviceaccount:kube-system:replicaset-controller", json!([]), false),
        ("system:serviceaccount:argocd:application-controller", json!([]), false),
    ];
    for (name, owners, allowed) in rows {
        let object = pod(owners);
        let user = User { name: name.into(), groups: vec!["system:masters".into()] };
        let mut request = Request {
            operation: Operation::Create,
            resource: GroupResource::new("", "pods"),
            subresource: "",
            namespace: "web-a",
            name: "x",
            object: &object,
            old: &NULL,
            user: &user,
        };
        let decided = |request: &Request<'_>| admit(request, &world(), &Exempt::default());
        assert_eq!(denied(&decided(&request)).is_empty(), allowed, "{name}: {object}");
        // Rules may have become stricter: finalizers are removed all the same.
        let mut old = object.clone();
        old["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
        (request.operation, request.old) = (Operation::Update, &old);
        assert_eq!(denied(&decided(&request)), "", "{name}");
    }
}

#[test]
fn defaults_are_given_where_nothing_is_named() {
    let claim = create("persistentvolumeclaims", "web-a", &json!({"spec": {}}), "ann");
    let patch = json!({"op": "add", "path": "/spec/storageClassName", "value": "slow"});
    assert_eq!(claim, Decision::Allow(vec![patch]));
    let pod = create("pods", "web-a", &json!({"spec": {"nodeSelector": {"disk": "ssd"}}}), "ann");
    let merged = json!({"disk": "ssd", "pool": "web"});
    assert_eq!(
        pod,
        Decision::Allow(vec![json!({"op": "add", "path": "/spec/nodeSelector", "value": merged})])
    );
}

#[test]
fn namespaces_join_the_tenant_of_their_creator() {
    let namespace = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let rows = [
        ("ann", namespace("web-b", json!({"stage": "test"})), ""),
        ("ann", namespace("web-b", json!({"stage": "test", TENANT_LABEL: "web"})), ""),
        ("boss", namespace("web-b", json!({"stage": "test", TENANT_LABEL: "web"})), ""),
        ("ann", namespace("web-b", json!({})), "\"stage\" is required"),
        ("ann", namespace("web-b", json!({"stage": "dev"})), "must be one of: test, prod"),
        ("ann", namespace("b", json!({"stage": "test"})), "begin with \"web-\""),
        ("ann", namespace("web-b", json!({"stage": "test", "admin/x": "y"})), "forbidden"),
        (
            "ann",
            namespace("web-b", json!({"stage": "test", TENANT_LABEL: "corp"})),
            "may not create namespaces of tenant \"corp\"",
        ),
        ("eve", namespace("web-b", json!({TENANT_LABEL: "web"})), "may not create namespaces"),
        (
            "ann",
            namespace("web-b", json!({"stage": "test", "pod-security.kubernetes.io/enforce": "privileged"})),
            "cannot be changed",
        ),
        ("eve", namespace("other", json!({})), ""),
        ("eve", namespace("other", json!({"tenancy.freehold.dev/cordoned": "true"})), "cannot be changed"),
        ("root", namespace("anything", json!({TENANT_LABEL: "web"})), ""),
    ];
    for (who, object, expected) in rows {
        let decision = create("namespaces", "x", &object, who);
        let message = denied(&decision);
        assert_eq!(message.is_empty(), expected.is_empty(), "{who} {object}: {message}");
        assert!(message.contains(expected), "{who} {object}: {message}");
    }
    let Decision::Allow(patch) =
        create("namespaces", "x", &namespace("web-b", json!({"stage": "test"})), "ann")
    else {
        panic!("it is allowed")
    };
    assert!(
        patch
            .iter()
            .any(|op| op["path"] == "/metadata/labels/tenancy.freehold.dev~1tenant" && op["value"] == "web")
    );
}

#[test]
fn cordoned_tenants_and_managed_objects_cannot_be_changed_by_members() {
    let object = json!({"metadata": {"name": "x"}});
    assert!(denied(&create("configmaps", "still-a", &object, "ann")).contains("cordoned"));
    assert_eq!(denied(&create("configmaps", "still-a", &object, "root")), "");
    assert_eq!(
        denied(&create(
            "pods",
            "still-a",
            &object,
            "system:serviceaccount:kube-system:replicaset-controller"
        )),
        ""
    );
    let managed = json!({"metadata": {"labels": {MANAGED_LABEL: "namespace-controller"}}});
    assert!(denied(&create("limitranges", "web-a", &managed, "ann")).contains("change the Tenant instead"));
}

#[test]
fn tenants_keep_out_of_cycles_and_stay_while_their_deletion_is_prevented() {
    let with_parent =
        |name: &str, parent: &str| json!({"metadata": {"name": name}, "spec": {"parent": parent}});
    let of = |object: &Value| create("tenants.tenancy.freehold.dev", "", object, "root");
    assert_eq!(denied(&of(&with_parent("new", "web"))), "");
    assert!(denied(&of(&with_parent("corp", "web"))).contains("its own ancestor"));
    assert_eq!(denied(&of(&with_parent("new", "none"))), "", "manifests come in any order");
    assert!(denied(&of(&with_parent("Not_A_Label", ""))).contains("DNS label"));
    let old = json!({"spec": {"preventDeletion": true}});
    let root = User { name: "root".into(), groups: vec!["system:masters".into()] };
    let request = Request {
        operation: Operation::Delete,
        resource: GroupResource::new(GROUP, "tenants"),
        subresource: "",
        namespace: "",
        name: "web",
        object: &NULL,
        old: &old,
        user: &root,
    };
    assert!(denied(&admit(&request, &world(), &Exempt::default())).contains("preventDeletion"));
}

#[test]
fn annotations_of_former_times_name_classes_too() {
    let claim = |annotation: &str, class: Value| {
        let annotations = json!({STORAGE_CLASS_ANNOTATION: annotation});
        let object = json!({"metadata": {"annotations": annotations}, "spec": {"storageClassName": class}});
        create("persistentvolumeclaims", "web-a", &object, "ann")
    };
    assert!(denied(&claim("gold", NULL)).contains("\"gold\" is not allowed"));
    assert!(denied(&claim("gold", "slow".into())).contains("\"gold\" is not allowed"));
    assert_eq!(claim("slow", NULL), Decision::Allow(Vec::new()), "it names a class: no default is given");
    // A later annotation counts as much as one at creation.
    let old = json!({"metadata": {}, "spec": {"rules": []}});
    let mut new = old.clone();
    new["metadata"]["annotations"] = json!({INGRESS_CLASS_ANNOTATION: "private"});
    let limited = json!({"classes": {"ingress": {"allowed": ["public"]}}});
    let world = Fixed {
        tenants: vec![tenant("web", limited)],
        namespaces: vec![("web-a", "web")],
        ..Fixed::default()
    };
    let request = Request {
        operation: Operation::Update,
        resource: GroupResource::new("networking.k8s.io", "ingresses"),
        subresource: "",
        namespace: "web-a",
        name: "x",
        object: &new,
        old: &old,
        user: &user("ann"),
    };
    assert!(denied(&admit(&request, &world, &Exempt::default())).contains("\"private\" is not allowed"));
}

#[test]
fn images_without_registry_are_of_docker_io() {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    let rows = [
        ("nginx", &["docker.io"][..], true),
        ("nginx", &["docker.io/library"][..], true),
        ("team/app", &["docker.io/team"][..], true),
        ("docker.io.evil.com/a", &["docker.io"][..], false),
        ("localhost:5000/a", &["localhost:5000"][..], true),
        ("r.io/a", &[][..], false),
    ];
    for (image, registries, allowed) in rows {
        assert_eq!(image_is_allowed(image, &list(registries)), allowed, "{image}");
    }
}
