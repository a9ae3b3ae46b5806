//! Pod security standards.

use crate::world::{World, Write, create, only, pod};
use freehold_apiserver_admission::Verb;
use serde_json::{Value, json};

fn namespace(labels: Value) -> World {
    World::new(vec![("", "namespaces", json!({"metadata": {"name": "ns", "labels": labels}}))])
}

fn refusal(spec: Value, labels: Value) -> Option<String> {
    let chain = only("PodSecurity");
    let object = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec});
    create("/pods", object).run(&chain, &namespace(labels)).err().map(|status| status.message)
}

#[test]
fn each_level_refuses_in_the_words_of_kubernetes() {
    let plain = json!({"containers": [{"name": "c"}]});
    let enforce = |level: &str| json!({"pod-security.kubernetes.io/enforce": level});
    assert_eq!(refusal(plain.clone(), json!({})), None);
    assert_eq!(refusal(plain.clone(), enforce("baseline")), None);
    assert_eq!(
        refusal(plain.clone(), enforce("restricted")).unwrap(),
        "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false \
         (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities \
         (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true \
         (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" \
         must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
    );
    let bad = json!({
        "hostNetwork": true, "hostPID": true,
        "securityContext": {"sysctls": [{"name": "kernel.msgmax"}], "seLinuxOptions": {"type": "x", "user": "u"}},
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
        "initContainers": [{"name": "i", "ports": [{"hostPort": 80}], "securityContext": {"privileged": true}}],
        "containers": [{"name": "c", "securityContext": {"privileged": true, "capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}}],
    });
    assert_eq!(
        refusal(bad, enforce("baseline")).unwrap(),
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": non-default capabilities (container \"c\" \
         must not include \"SYS_ADMIN\" in securityContext.capabilities.add), host namespaces (hostNetwork=true, \
         hostPID=true), hostPath volumes (volume \"v\"), hostPort (container \"i\" uses hostPort 80), privileged \
         (containers \"i\", \"c\" must not set securityContext.privileged=true), seLinuxOptions (pod set forbidden \
         securityContext.seLinuxOptions: type \"x\"; user may not be set), forbidden sysctls (kernel.msgmax)"
    );
    let good = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    assert_eq!(refusal(good, enforce("restricted")), None);
}

#[test]
fn a_version_of_the_standards_can_be_named() {
    let sysctl = json!({"containers": [{"name": "c"}], "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}});
    let at = |version: &str| json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": version});
    assert_eq!(refusal(sysctl.clone(), at("v1.32")), None);
    assert!(refusal(sysctl, at("v1.31")).unwrap().contains("\"baseline:v1.31\": forbidden sysctls"));
}

#[test]
fn labels_of_namespaces_must_be_right() {
    let chain = only("PodSecurity");
    let write = |labels: Value| create("/namespaces", json!({"metadata": {"name": "n", "labels": labels}}));
    let run = |write: Write<'_>| write.run(&chain, &World::default()).map_err(|status| status.message);
    assert!(run(write(json!({"pod-security.kubernetes.io/warn": "restricted"}))).is_ok());
    let said = run(write(json!({"pod-security.kubernetes.io/enforce": "strict"}))).unwrap_err();
    assert_eq!(
        said,
        "Namespace \"n\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": \
         must be one of privileged, baseline, restricted"
    );
}

#[test]
fn what_makes_pods_is_not_refused_and_updates_count_when_they_change_images() {
    let chain = only("PodSecurity");
    let world = namespace(json!({"pod-security.kubernetes.io/enforce": "restricted"}));
    let template = json!({"metadata": {"name": "d", "namespace": "ns"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
    assert!(create("apps/deployments", template).run(&chain, &world).is_ok());
    let old = pod(json!([{"name": "c", "image": "a"}]));
    let update = |new: Value| Write { verb: Verb::Update, old: old.clone(), ..create("/pods", new) };
    assert!(update(old.clone()).run(&chain, &world).is_ok());
    assert!(update(pod(json!([{"name": "c", "image": "b"}]))).run(&chain, &world).is_err());
}
