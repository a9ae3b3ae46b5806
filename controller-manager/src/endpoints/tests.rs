//! What is decided about Endpoints and slices, without a server.

use super::subsets::{MAX, OVER_CAPACITY};
use super::{Pod, mirror, single, sliced, slices::Plan};
use freehold_controllers_context::object::items;
use freehold_controllers_context::pods::{NamedPort, Phase, PodView};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::Key;
use serde_json::json;
use std::sync::Arc;

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "n", "uid": "s", "labels": {"of": "mine"}},
        "spec": {
            "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [
                {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"},
                {"name": "admin", "port": 81, "targetPort": 9000, "protocol": "TCP"},
                {"name": "unknown", "port": 82, "targetPort": "none", "protocol": "TCP"},
            ],
        },
    })
}

fn pod(name: &str, ip: &str, ready: bool) -> Pod {
    pod_with(name, ip, ready, |_| {})
}

fn pod_with(name: &str, ip: &str, ready: bool, change: impl FnOnce(&mut PodView)) -> Pod {
    let port = NamedPort { name: "web".into(), protocol: "TCP".into(), number: 8080 };
    let mut view = PodView {
        uid: name.into(),
        ips: vec![ip.to_owned()],
        ready,
        node: "node".into(),
        phase: Phase::Running,
        ports: vec![port],
        ..PodView::default()
    };
    change(&mut view);
    (Key::new(PlaneId::core(), "n", name), Arc::new(view))
}

fn many(count: usize) -> Vec<Pod> {
    let one = |nth: usize| pod(&format!("p{nth:05}"), &format!("10.{}.{}.1", nth / 250, nth % 250), true);
    (0..count).map(one).collect()
}

fn plan(service: &Value, pods: &[Pod], existing: &[Value], max: usize) -> Plan {
    sliced::decide(service, pods, existing, |_| Some("zone".to_owned()), max)
}

/// What is there when a plan has been carried out.
fn carried_out(existing: &[Value], plan: Plan) -> Vec<Value> {
    let gone = |slice: &&Value| !plan.delete.iter().any(|d| meta::name(d) == meta::name(slice));
    let now = |slice: &Value| {
        plan.update.iter().find(|u| meta::name(u) == meta::name(slice)).unwrap_or(slice).clone()
    };
    let mut all: Vec<Value> = existing.iter().filter(gone).map(now).collect();
    for mut made in plan.create {
        meta::set(&mut made, "name", format!("web-{}", all.len() + 100));
        all.push(made);
    }
    all
}

fn counts(slices: &[Value]) -> Vec<usize> {
    let mut counts: Vec<usize> = slices.iter().map(|s| items(s, "/endpoints").len()).collect();
    counts.sort_unstable();
    counts
}

fn numbers(ports: &[Value]) -> Vec<i64> {
    ports.iter().filter_map(|port| port["port"].as_i64()).collect()
}

#[test]
fn ready_pods_are_addresses_and_others_are_told_apart() {
    let going = pod_with("going", "10.0.0.3", true, |pod| pod.deleting = true);
    let ended = pod_with("ended", "10.0.0.4", false, |pod| pod.phase = Phase::Failed);
    let pods = [pod("b", "10.0.0.2", false), pod("a", "10.0.0.1", true), going, ended];
    let endpoints = single::decide(&service(), &pods, None, Some("now".into())).unwrap();
    let subset = &endpoints["subsets"][0];
    assert_eq!(subset["addresses"][0]["ip"], "10.0.0.1");
    assert_eq!(subset["notReadyAddresses"][0]["targetRef"]["name"], "b");
    assert_eq!((items(subset, "/addresses").len(), items(subset, "/notReadyAddresses").len()), (1, 1));
    assert_eq!(numbers(items(subset, "/ports")), [9000, 8080]);
    assert_eq!(endpoints["metadata"]["annotations"][super::TRIGGER], "now");
    assert_eq!(single::decide(&service(), &pods, Some(&endpoints), None), None, "they are so already");

    let slices = carried_out(&[], plan(&service(), &pods, &[], 100));
    let said: Vec<&Value> = items(&slices[0], "/endpoints").iter().map(|e| &e["conditions"]).collect();
    let condition = |ready: bool, serving: bool, terminating: bool| json!({"ready": ready, "serving": serving, "terminating": terminating});
    assert_eq!(
        said,
        [&condition(true, true, false), &condition(false, false, false), &condition(false, true, true)]
    );
    assert_eq!(slices[0]["endpoints"][0]["zone"], "zone");
    assert_eq!(slices[0]["metadata"]["labels"][super::SERVICE_NAME], "web");
}

#[test]
fn who_asks_for_it_sees_pods_that_are_not_ready_and_on_no_node() {
    let mut service = service();
    let pods = [pod("a", "10.0.0.1", false)];
    let nowhere = |service: &Value| sliced::decide(service, &pods, &[], |_| None, 100);
    assert_eq!(counts(&carried_out(&[], nowhere(&service))), [0]);
    service["spec"]["publishNotReadyAddresses"] = true.into();
    let slices = carried_out(&[], nowhere(&service));
    assert_eq!(slices[0]["endpoints"][0]["conditions"]["ready"], true);
    let endpoints = single::decide(&service, &pods, None, None).unwrap();
    assert_eq!(items(&endpoints, "/subsets/0/addresses").len(), 1);
}

#[test]
fn ports_that_pods_name_differently_have_slices_and_subsets_of_their_own() {
    let other = |pod: &mut PodView| pod.ports[0].number = 9090;
    let lacks = |pod: &mut PodView| pod.ports.clear();
    let pods = [
        pod("a", "10.0.0.1", true),
        pod_with("b", "10.0.0.2", true, other),
        pod_with("c", "10.0.0.3", true, lacks),
    ];
    let slices = carried_out(&[], plan(&service(), &pods, &[], 100));
    let mut ports: Vec<Vec<i64>> = slices.iter().map(|s| numbers(items(s, "/ports"))).collect();
    ports.sort();
    assert_eq!(ports, [vec![8080, 9000], vec![9000], vec![9090, 9000]]);
    let endpoints = single::decide(&service(), &pods, None, None).unwrap();
    let mut subsets: Vec<(Vec<i64>, usize)> = items(&endpoints, "/subsets")
        .iter()
        .map(|s| (numbers(items(s, "/ports")), items(s, "/addresses").len()))
        .collect();
    subsets.sort();
    assert_eq!(subsets, [(vec![8080], 1), (vec![9000], 3), (vec![9090], 1)]);
    assert!(plan(&service(), &pods, &slices, 100) == Plan::default(), "nothing is left to do");
}

#[test]
fn slices_are_full_and_change_as_little_as_possible() {
    let service = service();
    let mut pods = many(250);
    let first = carried_out(&[], plan(&service, &pods, &[], 100));
    assert_eq!(counts(&first), [50, 100, 100]);
    // One that goes and one that comes change one slice.
    pods.remove(0);
    pods.push(pod("new", "10.9.9.9", true));
    let next = plan(&service, &pods, &first, 100);
    assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (0, 1, 0));
    let second = carried_out(&first, next);
    assert_eq!(counts(&second), [50, 100, 100]);
    // Sixty more don't fit where there is room for fifty: a slice for all of them.
    let more: Vec<Pod> = pods
        .iter()
        .cloned()
        .chain((0..60).map(|n| pod(&format!("x{n}"), &format!("10.8.0.{n}"), true)))
        .collect();
    let next = plan(&service, &more, &second, 100);
    assert_eq!((next.create.len(), next.update.len(), counts(&next.create)), (1, 0, vec![60]));
    // Forty fit.
    let next = plan(&service, &more[..290], &second, 100);
    assert_eq!((next.create.len(), next.update.len(), counts(&next.update)), (0, 1, vec![90]));
    // When all are gone one stays, without any.
    let last = carried_out(&second, plan(&service, &[], &second, 100));
    assert_eq!((counts(&last), items(&last[0], "/ports").len()), (vec![0], 0));
    assert!(plan(&service, &[], &last, 100) == Plan::default(), "it stays");
    let again = plan(&service, &pods[..1], &last, 100);
    assert_eq!((again.create.len(), again.update.len(), again.delete.len()), (0, 1, 0), "it is used again");
}

#[test]
fn each_address_family_has_slices_of_its_own_and_one_that_goes_takes_its_own_along() {
    let mut service = service();
    service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    let both = pod_with("a", "10.0.0.1", true, |pod| pod.ips.push("fd00:0::1".into()));
    let slices = carried_out(&[], plan(&service, std::slice::from_ref(&both), &[], 100));
    let addresses: Vec<&Value> = slices.iter().map(|s| &s["endpoints"][0]["addresses"][0]).collect();
    assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
    service["spec"]["ipFamilies"] = json!(["IPv4"]);
    let next = plan(&service, &[both], &slices, 100);
    assert_eq!(next.delete.iter().map(|s| &s["addressType"]).collect::<Vec<_>>(), ["IPv6"]);
}

#[test]
fn labels_follow_the_service_and_slices_of_another_uid_are_replaced() {
    let mut service = service();
    let pods = many(1);
    let slices = carried_out(&[], plan(&service, &pods, &[], 100));
    service["metadata"]["labels"] = json!({"of": "others", "kubernetes.io/service-name": "stolen"});
    let next = plan(&service, &pods, &slices, 100);
    let labels = &next.update[0]["metadata"]["labels"];
    assert_eq!((&labels["of"], &labels[super::SERVICE_NAME]), (&json!("others"), &json!("web")));
    service["metadata"]["uid"] = "made anew".into();
    let next = plan(&service, &pods, &slices, 100);
    assert_eq!((next.create.len(), next.delete.len()), (1, 1), "the old one is the garbage collector's");
}

#[test]
fn a_service_without_an_address_says_so_and_needs_no_ports() {
    let mut service = service();
    service["spec"]["clusterIP"] = "None".into();
    service["spec"]["ports"] = json!([]);
    let named = pod_with("a", "10.0.0.1", true, |pod| pod.host = ("a".into(), "web".into()));
    let pods = [named, pod_with("b", "10.0.0.2", true, |pod| pod.host = ("b".into(), "other".into()))];
    let slices = carried_out(&[], plan(&service, &pods, &[], 100));
    let hostnames: Vec<&Value> = items(&slices[0], "/endpoints").iter().map(|e| &e["hostname"]).collect();
    assert_eq!(hostnames, [&json!("a"), &Value::Null]);
    let endpoints = single::decide(&service, &pods, None, None).unwrap();
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["hostname"], "a");
    assert!(endpoints["subsets"][0].get("ports").is_none());
    for object in [&slices[0], &endpoints] {
        assert_eq!(object["metadata"]["labels"][super::HEADLESS], "");
    }
}

#[test]
fn endpoints_have_a_thousand_addresses_and_say_that_there_are_more() {
    let mut pods = many(1200);
    pods.extend(
        (0..300).map(|nth| pod(&format!("w{nth}"), &format!("10.77.{}.{}", nth / 200, nth % 200), false)),
    );
    let endpoints = single::decide(&service(), &pods, None, None).unwrap();
    let count =
        |field: &str| -> usize { items(&endpoints, "/subsets").iter().map(|s| items(s, field).len()).sum() };
    assert_eq!((count("/addresses"), count("/notReadyAddresses")), (MAX, 0));
    assert_eq!(endpoints["metadata"]["annotations"][OVER_CAPACITY], "truncated");
    assert_eq!(single::decide(&service(), &pods, Some(&endpoints), None), None);
    let fewer = single::decide(&service(), &pods[..900], Some(&endpoints), None).unwrap();
    assert!(fewer["metadata"].get("annotations").is_none());
    let ready_first = single::decide(&service(), &pods[600..], None, None).unwrap();
    let count = |field: &str| items(&ready_first["subsets"][0], field).len();
    assert_eq!((count("/addresses"), count("/notReadyAddresses")), (600, 300));
}

#[test]
fn hints_follow_the_wish_of_the_service() {
    let mut service = service();
    let pods = [pod("a", "10.0.0.1", true), pod("b", "10.0.0.2", false)];
    let slices = carried_out(&[], plan(&service, &pods, &[], 100));
    let zone = json!({"forZones": [{"name": "zone"}]});
    for (wish, hints) in [
        ("PreferClose", zone.clone()),
        ("PreferSameNode", json!({"forZones": [{"name": "zone"}], "forNodes": [{"name": "node"}]})),
    ] {
        service["spec"]["trafficDistribution"] = wish.into();
        let next = plan(&service, &pods, &slices, 100);
        let endpoints = items(&next.update[0], "/endpoints");
        assert_eq!((&endpoints[0]["hints"], &endpoints[1]["hints"]), (&hints, &Value::Null), "{wish}");
        let hinted = carried_out(&slices, next);
        assert!(plan(&service, &pods, &hinted, 100) == Plan::default(), "{wish}");
        service["spec"]["trafficDistribution"] = Value::Null;
        let next = plan(&service, &pods, &hinted, 100);
        assert!(next.update[0]["endpoints"][0].get("hints").is_none());
        service["spec"]["trafficDistribution"] = wish.into();
    }
}

#[test]
fn what_is_badly_written_makes_no_endpoints_and_no_panic() {
    let bad = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "s", "labels": 7, "annotations": "x"},
        "spec": {"ports": [7, {"port": "x", "targetPort": {}}], "ipFamilies": [3], "selector": {"a": "b"}, "clusterIP": 9},
    });
    let pods = [pod_with("a", "nonsense", true, |pod| pod.node = String::new())];
    assert!(single::decide(&bad, &pods, None, None).is_some());
    assert_eq!(counts(&carried_out(&[], plan(&bad, &pods, &[json!({"endpoints": 3})], 100))), [0, 0]);
    let (plan, skipped) = mirror::decide(
        &json!({"metadata": 3, "subsets": [{"addresses": [{"ip": "x"}, 3], "ports": "no"}, 7]}),
        &[],
    );
    assert!(plan.create.is_empty() && skipped.invalid > 0, "{plan:?}");
}

fn by_hand(subsets: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Endpoints", "subsets": subsets,
        "metadata": {
            "name": "db", "namespace": "n", "uid": "e", "labels": {"of": "mine"},
            "annotations": {"note": "kept", "endpoints.kubernetes.io/last-change-trigger-time": "dropped"},
        },
    })
}

#[test]
fn endpoints_by_hand_are_mirrored_by_family_and_ports() {
    let endpoints = by_hand(json!([{
        "addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1", "hostname": "six"}, {"ip": "not an address"}],
        "notReadyAddresses": [{"ip": "10.0.0.2", "nodeName": "node"}], "ports": [{"port": 5432, "name": "pg"}],
    }]));
    let (first, skipped) = mirror::decide(&endpoints, &[]);
    assert_eq!((skipped.invalid, skipped.too_many), (1, 0));
    let slices = carried_out(&[], first);
    let four = slices.iter().find(|s| s["addressType"] == "IPv4").unwrap();
    let ready: Vec<&Value> = items(four, "/endpoints").iter().map(|e| &e["conditions"]["ready"]).collect();
    assert_eq!((slices.len(), ready), (2, vec![&json!(true), &json!(false)]));
    assert_eq!(four["metadata"]["annotations"], json!({"note": "kept"}));
    assert_eq!(four["metadata"]["labels"][super::MANAGED_BY], super::MIRROR);
    assert!(mirror::decide(&endpoints, &slices).0 == Plan::default());
    // Other ports: the slice is used again.
    let mut changed = endpoints.clone();
    changed["subsets"][0]["ports"][0]["port"] = 5433.into();
    let (next, _) = mirror::decide(&changed, &slices);
    assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (0, 2, 0));
    let (none, _) = mirror::decide(&by_hand(json!([])), &slices);
    assert_eq!(none.delete.len(), 2);
}

#[test]
fn of_a_subset_by_hand_a_thousand_addresses_are_mirrored() {
    let addresses: Vec<Value> =
        (0..1003).map(|n| json!({"ip": format!("10.{}.{}.1", n / 250, n % 250)})).collect();
    let (plan, skipped) = mirror::decide(&by_hand(json!([{"addresses": addresses}])), &[]);
    assert_eq!((counts(&plan.create), skipped.too_many), (vec![1000], 3));
}

#[test]
fn the_time_of_a_change_is_that_of_the_first_pod_that_turned() {
    let triggers = super::trigger::Triggers::default();
    let key = Key::new(PlaneId::core(), "n", "web");
    let mut service = service();
    meta::set(&mut service, "creationTimestamp", "2026-01-01T00:00:00Z");
    let at = |name: &str, second: u32| {
        pod_with(name, "10.0.0.1", true, |pod| pod.ready_since = format!("2026-01-01T00:01:{second:02}Z"))
    };
    let look = |pods: &[Pod]| triggers.look(&key, &service, pods);
    assert_eq!(look(&[at("a", 5)]).as_deref(), Some("2026-01-01T00:00:00Z"), "it is new");
    assert_eq!(look(&[at("a", 5)]), None);
    assert_eq!(look(&[at("a", 5), at("b", 9), at("c", 7)]).as_deref(), Some("2026-01-01T00:01:07Z"));
    assert_eq!(look(&[at("a", 8), at("b", 9)]).as_deref(), Some("2026-01-01T00:01:08Z"));
    assert_eq!(look(&[]), None, "what goes has no time");
}
