//! Shuts one gate after the other, and tries everything at each.

use super::{Found, GATES, RESOURCES, Way, probes};
use crate::{PATIENCE, quota::registration, text};
use freehold_tests_integration::{HookServer, Http, Server, until};
use http::Method;
use serde_json::{Value, json};

/// Kinds that one registration is about.
const KINDS: usize = 20;

/// Lets a webhook refuse what the test's users do, then a policy, and gives back what is to be deleted in the end.
fn shut(http: &Http, hooks: &HookServer, gate: &str) -> String {
    const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
    let ours = json!([{"name": "ours", "expression": "request.userInfo.username.startsWith('walls-')"}]);
    let all = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]});
    let make = |resource: &str, kind: &str, body: Value| {
        let mut object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "shut"}});
        object.as_object_mut().expect("an object").extend(body.as_object().expect("an object").clone());
        let made = http.json(Method::POST, &format!("{ADMISSION}/{resource}"), &object);
        assert_eq!(made.code, 201, "{}", made.body);
        format!("{ADMISSION}/{resource}/shut")
    };
    if gate == "webhooks" {
        let hook = json!({"name": "all.example.com", "clientConfig": hooks.by_url("/"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "matchConditions": ours, "rules": [all]});
        return make(
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            json!({"webhooks": [hook]}),
        );
    }
    let spec = json!({"matchConstraints": {"resourceRules": [all]}, "matchConditions": ours,
        "validations": [{"expression": "false", "message": "the policy is shut", "reason": "Forbidden"}]});
    make("validatingadmissionpolicies", "ValidatingAdmissionPolicy", json!({"spec": spec}));
    let binding = json!({"policyName": "shut", "validationActions": ["Deny"]});
    make("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", json!({"spec": binding}))
}

/// Registrations of each kind that can be made, of which nobody is granted anything, and policies by which they are claimed.
fn allowances(way: &Way<'_>) -> String {
    let kinds: Vec<_> = probes::claiming(&way.probes).into_iter().collect();
    let mut manifests = String::new();
    for (nth, part) in kinds.chunks(KINDS).enumerate() {
        let resource = format!("none-{nth}");
        let claiming: Vec<String> = part
            .iter()
            .map(|(version, kind)| {
                let group = version.split_once('/').map_or("", |(group, _)| group);
                format!("{{apiGroup: '{group}', kind: {kind}}}")
            })
            .collect();
        manifests += &registration(&resource, "Organization", &claiming.join(", "));
        for (at, (version, kind)) in part.iter().enumerate() {
            let spec = json!({
                "trigger": {"resource": {"apiVersion": version, "kind": kind},
                    "constraints": [{"expression": "user.name.startsWith('walls-')"}]},
                "target": {"resourceClaimTemplate": {"spec": {"requests": [{"resourceType": resource, "amount": 1}]}}},
            });
            let policy = json!({"apiVersion": "quota.freehold.dev/v1alpha1", "kind": "ClaimCreationPolicy",
                "metadata": {"name": format!("none-{nth}-{at}")}, "spec": spec});
            manifests += &format!("{policy}\n---\n");
        }
    }
    manifests
}

/// Waits until a request that anybody could make is refused at a gate, or at none.
fn until_at(way: &Way<'_>, gate: &str, says: Option<&str>) {
    let probe = way.probes.iter().find(|probe| probe.label() == way.waits);
    let probe = probe.unwrap_or_else(|| panic!("{} has no {}", way.name, way.waits));
    until(&format!("{gate} of {}: {says:?}", way.name), PATIENCE, || {
        let answer = probe.send(&way.owner, "waits");
        let message = text(&answer.body, "/message");
        match says {
            Some(says) => message.contains(says).then_some(()),
            None => GATES.iter().all(|(_, says)| !message.contains(says)).then_some(()),
        }
    });
}

/// Shuts one gate after the other, and tries everything at each.
pub(super) fn try_gates(server: &Server, way: &Way<'_>, inside: &Http, hooks: &HookServer) -> Found {
    let mut found = Found::default();
    way.pass("authorization", &mut found);
    for (gate, says) in
        GATES.into_iter().filter(|(gate, _)| matches!(*gate, "webhooks" | "policies") && way.has(gate))
    {
        let shut = shut(inside, hooks, gate);
        until_at(way, gate, Some(says));
        way.pass(gate, &mut found);
        assert_eq!(inside.json(Method::DELETE, &shut, &json!({})).code, 200);
        until_at(way, gate, None);
    }
    if way.has("quota") {
        let hard: serde_json::Map<String, Value> =
            probes::counted(&way.probes).map(|key| (key, "0".into())).collect();
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": hard}});
        let made = inside.json(Method::POST, "/api/v1/namespaces/walls/resourcequotas", &quota);
        assert_eq!(made.code, 201, "{}", made.body);
        until_at(way, "quota", Some("exceeded quota"));
        way.pass("quota", &mut found);
        inside.json(Method::DELETE, "/api/v1/namespaces/walls/resourcequotas/none", &json!({}));
        until_at(way, "quota", None);
    }
    if way.has("allowances") {
        let core = server.kubectl();
        let manifests = allowances(way);
        core.apply(&manifests);
        until_at(way, "allowances", Some("exceeded quota of organization"));
        way.pass("allowances", &mut found);
        core.run_with_input(&["delete", "-f", "-"], &manifests).expect_ok();
        until_at(way, "allowances", None);
    }
    if way.has("suspension") {
        let core = Http::of(&server.kubectl());
        let suspend = |suspension: Value| {
            let patch = json!({"spec": {"suspension": suspension}}).to_string();
            let done = core.send(
                Method::PATCH,
                &format!("{RESOURCES}/{}", way.suspends),
                "application/merge-patch+json",
                patch,
            );
            assert_eq!(done.code, 200, "{}", done.body);
        };
        suspend(json!({"reason": "the test", "liftedBy": "Platform"}));
        until_at(way, "suspension", Some("is suspended"));
        way.pass("suspension", &mut found);
        suspend(Value::Null);
        until_at(way, "suspension", None);
    }
    found
}
