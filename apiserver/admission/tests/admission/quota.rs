//! What writes use, and whether it fits.

use crate::world::*;
use freehold_apiserver_admission::{Verb, quota};
use freehold_machinery::Value;
use freehold_machinery_quota::{Surroundings, usage};
use jiff::Timestamp;
use serde_json::json;

fn at(second: i64) -> Surroundings {
    Surroundings::at(Timestamp::from_second(second).unwrap())
}

fn quota_of(hard: Value, used: Value, spec: Value) -> Value {
    in_ns("q", json!({"spec": spec, "status": {"hard": hard, "used": used}}))
}

fn quota_check(write: &Write<'_>, quotas: &[Value]) -> Result<Vec<Value>, String> {
    let mut object = write.object.clone();
    let changed = write.with(&mut object, |attributes| quota::check(attributes, quotas, &at(0)));
    changed
        .map(|quotas| quotas.iter().map(|q| q["status"]["used"].clone()).collect())
        .map_err(|status| status.message)
}

#[test]
fn quotas_are_charged_and_not_exceeded() {
    let resources = json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1"}});
    let a_pod = || {
        create(
            "/pods",
            pod(json!([{"name": "a", "resources": resources}, {"name": "b", "resources": resources}])),
        )
    };
    let bare = || create("/pods", pod(json!([{"name": "a"}, {"name": "b"}])));
    let service = |kind: &str, ports: usize| {
        in_ns("s", json!({"spec": {"type": kind, "ports": vec![json!({}); ports]}}))
    };
    let claim = |size: &str| {
        in_ns(
            "c",
            json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": size}}}}),
        )
    };
    let grown =
        Write { verb: Verb::Update, old: claim("1Gi"), ..create("/persistentvolumeclaims", claim("3Gi")) };
    let shrunk =
        Write { verb: Verb::Update, old: claim("3Gi"), ..create("/persistentvolumeclaims", claim("1Gi")) };
    let deployment = || create("apps/deployments", in_ns("d", json!({})));
    let gold = "gold.storageclass.storage.k8s.io/requests.storage";
    type Row<'a> = (Write<'a>, Value, Value, Result<Vec<Value>, &'a str>);
    let rows: Vec<Row<'_>> = vec![
        (a_pod(), json!({"pods": "5"}), json!({"pods": "4"}), Ok(vec![json!({"pods": "5"})])),
        (
            a_pod(),
            json!({"pods": "5"}),
            json!({"pods": "5"}),
            Err(
                "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5",
            ),
        ),
        (
            a_pod(),
            json!({"count/pods": "1"}),
            json!({"count/pods": "0"}),
            Ok(vec![json!({"count/pods": "1"})]),
        ),
        (
            a_pod(),
            json!({"requests.cpu": "2", "limits.cpu": "3", "memory": "8Gi", "secrets": "1"}),
            json!({"requests.cpu": "500m", "limits.cpu": "1", "memory": "1Gi", "secrets": "1"}),
            Ok(vec![json!({"requests.cpu": "1500m", "limits.cpu": "3", "memory": "3Gi", "secrets": "1"})]),
        ),
        (
            a_pod(),
            json!({"requests.cpu": "1", "limits.cpu": "2"}),
            json!({"requests.cpu": "100m", "limits.cpu": "500m"}),
            Err(
                "pods \"p\" is forbidden: exceeded quota: q, requested: limits.cpu=2,requests.cpu=1, used: limits.cpu=500m,requests.cpu=100m, limited: limits.cpu=2,requests.cpu=1",
            ),
        ),
        (
            bare(),
            json!({"limits.cpu": "1", "memory": "1"}),
            json!({}),
            Err(
                "pods \"p\" is forbidden: failed quota: q: must specify limits.cpu for: a,b; memory for: a,b",
            ),
        ),
        (
            bare(),
            json!({"pods": "1", "secrets": "1"}),
            json!({"secrets": "0"}),
            Err("pods \"p\" is forbidden: status unknown for quota: q, resources: pods"),
        ),
        (bare(), json!({"secrets": "0"}), json!({}), Ok(vec![])),
        (bare(), json!({}), json!({}), Ok(vec![])),
        (
            create("/services", service("LoadBalancer", 2)),
            json!({"services.nodeports": "2", "services.loadbalancers": "1", "services": "9"}),
            json!({"services.nodeports": "0", "services.loadbalancers": "0", "services": "3"}),
            Ok(vec![json!({"services.nodeports": "2", "services.loadbalancers": "1", "services": "4"})]),
        ),
        (
            Write {
                verb: Verb::Update,
                old: service("ClusterIP", 2),
                ..create("/services", service("NodePort", 2))
            },
            json!({"services.nodeports": "1", "services": "1"}),
            json!({"services.nodeports": "0", "services": "1"}),
            Err(
                "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1",
            ),
        ),
        (
            grown,
            json!({"requests.storage": "9Gi", gold: "9Gi"}),
            json!({"requests.storage": "1Gi", gold: "1Gi"}),
            Ok(vec![json!({"requests.storage": "3Gi", gold: "3Gi"})]),
        ),
        (
            shrunk,
            json!({"requests.storage": "1Gi"}),
            json!({"requests.storage": "3Gi"}),
            Ok(vec![json!({"requests.storage": "1Gi"})]),
        ),
        (
            deployment(),
            json!({"count/deployments.apps": "1"}),
            json!({"count/deployments.apps": "1"}),
            Err(
                "deployments.apps \"d\" is forbidden: exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1",
            ),
        ),
        (
            Write { verb: Verb::Update, old: in_ns("d", json!({})), ..deployment() },
            json!({"count/deployments.apps": "0"}),
            json!({"count/deployments.apps": "1"}),
            Ok(vec![]),
        ),
        (
            Write { verb: Verb::Delete, old: in_ns("d", json!({})), ..deployment() },
            json!({"count/deployments.apps": "0"}),
            json!({"count/deployments.apps": "1"}),
            Ok(vec![json!({"count/deployments.apps": "0"})]),
        ),
        (
            create("/pods", pod(json!([{"name": "a", "resources": {"requests": {"cpu": "-1"}}}]))),
            json!({"cpu": "1"}),
            json!({"cpu": "0"}),
            Err("pods \"p\" is forbidden: quota usage is negative for resource(s): cpu,requests.cpu"),
        ),
    ];
    for (write, hard, used, expected) in rows {
        let outcome = quota_check(&write, &[quota_of(hard.clone(), used, json!({}))]);
        assert_eq!(
            outcome,
            expected.map_err(str::to_owned),
            "{} {} under {hard}",
            write.target,
            write.object
        );
    }
}

#[test]
fn scopes_choose_pods() {
    let pods = [
        ("plain", pod(json!([{"name": "a"}]))),
        ("sized", pod(json!([{"name": "a", "resources": {"requests": {"cpu": "1"}}}]))),
        ("ending", in_ns("p", json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high"}}))),
        (
            "reaching",
            in_ns(
                "p",
                json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["x"]}]}}}}),
            ),
        ),
    ];
    let class = |operator: &str, values: Value| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
    let rows = [
        (json!({}), "plain sized ending reaching"),
        (json!({"scopes": ["BestEffort"]}), "plain ending reaching"),
        (json!({"scopes": ["NotBestEffort"]}), "sized"),
        (json!({"scopes": ["Terminating"]}), "ending"),
        (json!({"scopes": ["NotTerminating", "BestEffort"]}), "plain reaching"),
        (json!({"scopes": ["CrossNamespacePodAffinity"]}), "reaching"),
        (json!({"scopes": ["Unknown"]}), ""),
        (class("In", json!(["high", "low"])), "ending"),
        (class("NotIn", json!(["high"])), "plain sized reaching"),
        (class("Exists", json!([])), "ending"),
        (class("DoesNotExist", json!([])), "plain sized reaching"),
    ];
    for (spec, expected) in rows {
        let quota = quota_of(
            json!({"pods": "0", "services": "0"}),
            json!({"pods": "0", "services": "0"}),
            spec.clone(),
        );
        let chosen = pods.iter().filter(|(_, pod)| {
            quota_check(&create("/pods", pod.clone()), std::slice::from_ref(&quota)).is_err()
        });
        assert_eq!(chosen.map(|(name, _)| *name).collect::<Vec<_>>().join(" "), expected, "{spec}");
        if spec != json!({}) {
            assert_eq!(
                quota_check(&create("/services", in_ns("s", json!({}))), &[quota]),
                Ok(vec![]),
                "scopes are about Pods"
            );
        }
    }
}

#[test]
fn a_pod_uses_what_it_needs_at_most_at_one_time() {
    let sized = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let object = in_ns(
        "p",
        json!({"spec": {
            "containers": [{"resources": sized("1")}, {"resources": sized("2")}],
            "initContainers": [
                {"resources": sized("500m"), "restartPolicy": "Always"},
                {"resources": sized("4")},
            ],
            "overhead": {"cpu": "100m"},
        }}),
    );
    let resource = freehold_machinery::GroupResource::new("", "pods");
    assert_eq!(usage(&resource, &object, &at(0))["requests.cpu"].to_string(), "4600m");
    let mut ended = object.clone();
    ended["status"]["phase"] = "Succeeded".into();
    let used = |pod: &Value, second| usage(&resource, pod, &at(second));
    assert_eq!(used(&ended, 0).keys().collect::<Vec<_>>(), ["count/pods"]);
}

#[test]
fn a_pod_that_does_not_end_in_the_time_that_it_had_uses_nothing_more() {
    let mut stuck = pod(json!([{"name": "a", "resources": {"requests": {"cpu": "2"}}}]));
    stuck["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
    stuck["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    let resource = freehold_machinery::GroupResource::new("", "pods");
    let pods = |second| usage(&resource, &stuck, &at(second)).contains_key("pods");
    assert!(pods(90) && !pods(91));
}

#[test]
fn a_pod_whose_time_becomes_limited_counts_for_other_quotas() {
    let sized = || pod(json!([{"name": "a", "resources": {"requests": {"cpu": "2"}}}]));
    let mut limited = sized();
    limited["spec"]["activeDeadlineSeconds"] = 60.into();
    let quota = |scope: &str, used: &str| {
        quota_of(json!({"pods": "1"}), json!({"pods": used}), json!({"scopes": [scope]}))
    };
    let update = Write { verb: Verb::Update, old: sized(), ..create("/pods", limited) };
    let both = [quota("Terminating", "0"), quota("NotTerminating", "1")];
    assert_eq!(quota_check(&update, &both), Ok(vec![json!({"pods": "1"}), json!({"pods": "0"})]));
    let refused = quota_check(&update, &[quota("Terminating", "1")]).unwrap_err();
    assert!(refused.contains("exceeded quota"), "{refused}");
}

#[test]
fn claims_count_devices_and_classes_of_attributes() {
    let request =
        |mode: &str, count: u32| json!({"deviceClassName": "gold", "allocationMode": mode, "count": count});
    let claim = in_ns(
        "c",
        json!({"spec": {"devices": {"requests": [
            {"exactly": request("ExactCount", 2)},
            {"firstAvailable": [request("ExactCount", 3), request("ExactCount", 1)]},
        ]}}}),
    );
    let resource = freehold_machinery::GroupResource::new("resource.k8s.io", "resourceclaims");
    let name = "gold.deviceclass.resource.k8s.io/devices";
    assert_eq!(usage(&resource, &claim, &at(0))[name].to_string(), "5");
    let all = in_ns("c", json!({"spec": {"devices": {"requests": [{"exactly": request("All", 0)}]}}}));
    assert_eq!(usage(&resource, &all, &at(0))[name].to_string(), "32");

    let selector = json!([{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["fast"]}]);
    let quota = quota_of(
        json!({"persistentvolumeclaims": "1"}),
        json!({"persistentvolumeclaims": "1"}),
        json!({"scopeSelector": {"matchExpressions": selector}}),
    );
    let volume = |class: &str| in_ns("v", json!({"spec": {"volumeAttributesClassName": class}}));
    let check = |class: &str| {
        quota_check(&create("/persistentvolumeclaims", volume(class)), std::slice::from_ref(&quota))
    };
    assert!(check("fast").is_err());
    assert_eq!(check("slow"), Ok(vec![]));
}

/// A claim for two devices of class `gold`, made at a second for the extended resources of the Pod with a uid.
fn claim_for(name: &str, second: u32, pod: &str) -> Value {
    let devices = json!({"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2});
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod, "controller": true});
    json!({
        "metadata": {
            "name": name, "namespace": "default", "creationTimestamp": format!("1970-01-01T00:00:{second:02}Z"),
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [{"exactly": devices}]}},
    })
}

/// A Pod that asks for devices by the name of their class as an extended resource.
fn pod_with(devices: u32, uid: &str, claim: Option<&str>) -> Value {
    let resources = json!({"requests": {"example.com/gold": devices.to_string()}});
    let mut pod = pod(json!([{"name": "a", "resources": resources}]));
    pod["metadata"]["uid"] = uid.into();
    if let Some(claim) = claim {
        pod["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": claim});
    }
    pod
}

#[test]
fn devices_count_as_extended_resources_where_the_pod_they_are_for_does_not_count_them() {
    let class = json!({"metadata": {"name": "gold"}, "spec": {"extendedResourceName": "example.com/gold"}});
    let plain = json!({"metadata": {"name": "gold"}, "spec": {}});
    let a = || claim_for("a", 5, "u");
    let by_hand = || {
        let mut claim = a();
        claim["metadata"]["annotations"] = json!({});
        claim
    };
    let ended = || {
        let mut pod = pod_with(2, "u", Some("a"));
        pod["status"]["phase"] = "Succeeded".into();
        pod
    };
    let (gold, of_class) = ("requests.example.com/gold", "requests.deviceclass.resource.kubernetes.io/gold");
    // The claim, its class, the namespace's claims and Pods, what it counts under the class' name.
    let rows = [
        (by_hand(), &plain, vec![], vec![], None),
        (by_hand(), &class, vec![], vec![pod_with(2, "u", Some("a"))], Some("2")),
        (a(), &class, vec![a()], vec![], Some("2")),
        (a(), &class, vec![a()], vec![pod_with(2, "u", Some("a"))], None),
        (a(), &class, vec![a()], vec![pod_with(1, "u", Some("a"))], Some("1")),
        (a(), &class, vec![a()], vec![pod_with(2, "u", Some("b"))], Some("2")),
        (a(), &class, vec![a()], vec![pod_with(2, "another", Some("a"))], Some("2")),
        (a(), &class, vec![a()], vec![ended()], Some("2")),
        (a(), &class, vec![a()], vec![pod_with(2, "u", None)], None),
        (a(), &class, vec![a(), claim_for("b", 5, "u")], vec![pod_with(2, "u", None)], None),
        (a(), &class, vec![a(), claim_for("b", 4, "u")], vec![pod_with(2, "u", None)], Some("2")),
        (a(), &class, vec![a(), claim_for("b", 4, "v")], vec![pod_with(2, "u", None)], None),
    ];
    let resource = freehold_machinery::GroupResource::new("resource.k8s.io", "resourceclaims");
    for (claim, class, claims, pods, expected) in rows {
        let around = at(0).with_devices(std::slice::from_ref(class), &claims, &pods);
        let used = usage(&resource, &claim, &around);
        let amount = |name: &str| used.get(name).map(ToString::to_string);
        assert_eq!(amount(gold).as_deref(), expected, "{claim} of {claims:?} beside {pods:?}");
        let always = [of_class, "gold.deviceclass.resource.k8s.io/devices"].map(|name| amount(name).unwrap());
        assert_eq!(always, ["2", "2"], "{claim}");
    }
}

#[test]
fn devices_of_a_pod_with_a_claim_are_given_back_by_who_counts_both() {
    let limits = json!({"requests.example.com/gold": "4", "count/pods": "4"});
    let quota = quota_of(limits.clone(), limits, json!({}));
    let delete = |object: Value| Write { verb: Verb::Delete, old: object.clone(), ..create("/pods", object) };
    let left = |gold: &str| Ok(vec![json!({"requests.example.com/gold": gold, "count/pods": "3"})]);
    let rows = [(None, left("2")), (Some("a"), left("4"))];
    for (claim, expected) in rows {
        assert_eq!(quota_check(&delete(pod_with(2, "u", claim)), std::slice::from_ref(&quota)), expected);
    }
}

#[test]
fn what_goes_or_ends_is_given_back() {
    let sized = || pod(json!([{"name": "a", "resources": {"requests": {"cpu": "2"}}}]));
    let mut ended = sized();
    ended["status"]["phase"] = "Failed".into();
    let (hard, used) = (json!({"requests.cpu": "1", "pods": "1"}), json!({"requests.cpu": "3", "pods": "2"}));
    let quota = quota_of(hard, used, json!({}));
    let rest = json!({"requests.cpu": "1", "pods": "1"});
    let status = Write { verb: Verb::Update, old: sized(), ..create("/pods/status", ended.clone()) };
    assert_eq!(quota_check(&status, std::slice::from_ref(&quota)), Ok(vec![rest]), "although it is exceeded");
    let again = Write { verb: Verb::Update, old: ended.clone(), ..create("/pods/status", ended) };
    assert_eq!(quota_check(&again, std::slice::from_ref(&quota)), Ok(vec![]));
    let grown = pod(json!([{"name": "a", "resources": {"requests": {"cpu": "5"}}}]));
    let resize = Write { verb: Verb::Update, old: sized(), ..create("/pods/resize", grown) };
    assert!(quota_check(&resize, &[quota]).is_err(), "a resize is a claim");
}
