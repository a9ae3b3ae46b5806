use super::*;

#[test]
fn selectors_stay_as_they_are() {
    let change = json!({"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}}}}});
    let fixed = "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable";
    for resource in ["deployments", "replicasets", "daemonsets"] {
        check_updates(
            "apps",
            resource,
            &workload(),
            &[(change.clone(), &[fixed]), (json!({"spec": {"replicas": 3}}), &[])],
        );
    }
    let detail = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                  'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' \
                  are forbidden";
    check_updates("apps", "statefulsets", &workload(), &[(json!({"spec": {"serviceName": "s"}}), &[detail])]);
}

#[test]
fn pods_keep_all_but_their_images_and_a_few_fields() {
    let good =
        json!({"spec": {"containers": [container()], "tolerations": [{"key": "a", "operator": "Exists"}]}});
    let image =
        json!({"spec": {"containers": [{"name": "c", "image": "other:1", "imagePullPolicy": "Always"}]}});
    check_updates("", "pods", &good, &[(image, &[]), (json!({"spec": {"activeDeadlineSeconds": 5}}), &[])]);
    let moved = patch::merge(&good, &json!({"spec": {"hostNetwork": true}}));
    let found = problems("", "pods", &moved, Some(&good));
    assert!(
        found[0].starts_with("spec: Forbidden: pod updates may not change fields other than"),
        "{found:?}"
    );
    check_updates(
        "",
        "pods",
        &good,
        &[(
            json!({"spec": {"tolerations": null}}),
            &[
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
            ],
        )],
    );
}

#[test]
fn jobs_keep_their_template_and_completions() {
    let mut template = template();
    template["spec"]["restartPolicy"] = "Never".into();
    let job = json!({"spec": {"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let rows: &[(Value, &[&str])] = &[
        (json!({"spec": {"completions": 2}}), &["spec.completions: Invalid value: 2: field is immutable"]),
        (json!({"spec": {"completions": 1, "parallelism": 2, "suspend": true}}), &[]),
    ];
    check_updates("batch", "jobs", &job, rows);
    let changed = patch::merge(&job, &json!({"spec": {"template": {"spec": {"hostname": "h"}}}}));
    let found = problems("batch", "jobs", &changed, Some(&job));
    assert!(
        found[0].starts_with("spec.template.spec: Invalid value: ")
            && found[0].ends_with("field is immutable"),
        "{found:?}"
    );
}

#[test]
fn what_is_frozen_stays() {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let claim =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let rows: &[(&str, &str, Value, Value, &[&str])] = &[
        (
            "",
            "secrets",
            json!({"type": "a", "data": {"k": "eA=="}}),
            json!({"type": "b"}),
            &["type: Invalid value: \"b\": field is immutable"],
        ),
        (
            "",
            "configmaps",
            json!({"data": {"k": "x"}, "immutable": true}),
            json!({"data": {"k": "y"}}),
            &["data: Forbidden: field is immutable when `immutable` is set"],
        ),
        (
            "",
            "persistentvolumeclaims",
            claim.clone(),
            json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
            &[
                "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n@@ -1,6 +1,6 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteOnce\"\n+  \"ReadWriteMany\"\n  ],\n  \"Selector\": null,\n  \"Resources\": {\n",
            ],
        ),
        ("", "persistentvolumeclaims", claim, json!({"spec": {"volumeName": "v"}}), &[]),
        (
            "storage.k8s.io",
            "storageclasses",
            json!({"provisioner": "a.b/c"}),
            json!({"provisioner": "a.b/d"}),
            &["provisioner: Invalid value: \"a.b/d\": field is immutable"],
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"metadata": {"name": "p"}, "value": 1}),
            json!({"value": 2}),
            &["value: Forbidden: may not be changed in an update."],
        ),
        (
            RBAC,
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}}),
            json!({"roleRef": {"name": "s"}}),
            &[
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"s\"}: cannot change roleRef",
            ],
        ),
    ];
    for (group, resource, good, change, want) in rows {
        check_updates(group, resource, good, &[(change.clone(), want)]);
    }
}
