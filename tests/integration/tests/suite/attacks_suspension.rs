//! Suspensions: they hold on every way to what an organization has, and who set one for the platform lifts it.

use crate::access::{becomes, member};
use crate::attacks_rights::{IAM, RM, ask, assert_refused, owned, ways};
use crate::{PATIENCE, contains_all, text};
use freehold_tests_integration::{World, facts, until};
use http::Method;
use serde_json::json;

facts!(world:
    a_suspension_holds_on_every_way_to_an_organization,
    what_the_platform_suspends_the_platform_lifts,
);

const MERGE: &str = "application/merge-patch+json";

fn suspend(world: &World, kind: &str, name: &str, to: &str) {
    let patch = format!("{{\"spec\":{{\"suspension\":{to}}}}}");
    world.admin().ok(&["patch", kind, name, "--type=merge", "--patch", &patch]);
}

fn a_suspension_holds_on_every_way_to_an_organization(world: &World) {
    owned(world, "held-org", &["held-org-a"], "hal");
    world.admin().apply(&member("held-org", "held-vic", "viewer"));
    world.admin().apply(
        "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding, metadata: {name: held-ops, namespace: freehold-system},
          spec: {roleRef: {name: owner}, subjects: [{kind: User, name: held-ops}], target: {kind: Platform}}}\n",
    );
    let (namespace, hal) = ("organization-held-org", ask(world, "hal"));
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    assert_eq!(hal.json(Method::POST, &maps, &map("before")).code, 201);
    suspend(world, "organization", "held-org", "{\"reason\":\"abuse\"}");
    until("the suspension is known", PATIENCE, || {
        (hal.json(Method::POST, &format!("{maps}?dryRun=All"), &map("x")).code == 403).then_some(())
    });
    let refused = hal.json(Method::POST, &maps, &map("x"));
    contains_all(text(&refused.body, "/message"), &["held-org", "suspended: abuse"]);
    let label = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let binding = json!({"apiVersion": "iam.freehold.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "b"},
        "spec": {"roleRef": {"name": "viewer", "namespace": "freehold-system"},
            "subjects": [{"kind": "User", "name": "held-vic"}], "target": {"kind": "Organization", "name": "held-org"}}});
    for way in ways("held-org", "hal") {
        let members = format!("{way}{RM}/namespaces/{namespace}/organizationmemberships");
        let bindings = format!("{way}{IAM}/namespaces/{namespace}/policybindings");
        assert_refused(&hal.json(Method::POST, &format!("{way}{maps}"), &map("x")), &way);
        assert_refused(&hal.send(Method::DELETE, &format!("{way}{maps}/before"), "", ""), &way);
        assert_refused(&hal.json(Method::POST, &bindings, &binding), &way);
        for one in [
            format!("{members}/held-vic"),
            format!("{members}/hal"),
            format!("{way}{RM}/projects/held-org-a"),
            format!("{way}{RM}/organizations/held-org"),
        ] {
            assert_refused(&hal.send(Method::PATCH, &one, MERGE, label.clone()), &one);
            assert_refused(&hal.send(Method::DELETE, &one, "", ""), &one);
        }
        let lifted = json!({"spec": {"suspension": null}}).to_string();
        assert_refused(
            &hal.send(Method::PATCH, &format!("{way}{RM}/organizations/held-org"), MERGE, lifted),
            &way,
        );
    }
    assert_eq!(hal.get(&format!("{maps}/before")).code, 200, "what is there is read");
    let there = world.admin().json(&["get", "project", "held-org-a"]);
    assert!(there["metadata"]["deletionTimestamp"].is_null() && there["metadata"]["labels"]["a"].is_null());
    // Who may suspend on the platform goes on.
    let ops = ask(world, "held-ops");
    assert_eq!(ops.send(Method::DELETE, &format!("{maps}/before"), "", "").code, 200);
    suspend(world, "organization", "held-org", "null");
    until("it is lifted", PATIENCE, || {
        (hal.json(Method::POST, &maps, &map("after")).code == 201).then_some(())
    });
}

fn what_the_platform_suspends_the_platform_lifts(world: &World) {
    let olaf = owned(world, "lift-org", &["lift-org-a"], "olaf");
    let change = |to: &str| {
        let patch = format!("{{\"spec\":{{\"suspension\":{to}}}}}");
        olaf.run(&["patch", "project", "lift-org-a", "--type=merge", "--patch", &patch])
    };
    let lifted_by = |kind: &str, name: &str| {
        text(&world.admin().json(&["get", kind, name]), "/spec/suspension/liftedBy").to_owned()
    };
    // Who sets it and does not say who lifts it decides that by what they may.
    change("{\"reason\":\"moved\"}").expect_ok();
    assert_eq!(lifted_by("project", "lift-org-a"), "Organization");
    change("null").expect_ok();
    suspend(world, "project", "lift-org-a", "{\"reason\":\"abuse\"}");
    assert_eq!(lifted_by("project", "lift-org-a"), "Platform");
    for to in ["null", "{\"reason\":\"mine\",\"liftedBy\":\"Organization\"}", "{\"reason\":\"mine\"}"] {
        contains_all(&change(to).expect_failure(), &["may not set or lift"]);
    }
    // Nor is it got rid of with the project, of which another of the name could be made.
    let gone = olaf.fails(&["delete", "project", "lift-org-a"]);
    contains_all(&gone, &["Forbidden", "suspended by the platform: abuse"]);
    contains_all(&olaf.fails(&["label", "project", "lift-org-a", "a=b"]), &["suspended by the platform"]);
    contains_all(&olaf.fails(&["delete", "projects", "--all"]), &["suspended by the platform"]);
    suspend(world, "project", "lift-org-a", "null");
    becomes(&olaf, &["label", "project", "lift-org-a", "a=b"], true);
    suspend(world, "organization", "lift-org", "{\"reason\":\"abuse\"}");
    assert_eq!(lifted_by("organization", "lift-org"), "Platform");
    for args in [
        &["patch", "organization", "lift-org", "--type=merge", "-p={\"spec\":{\"suspension\":null}}"][..],
        &["label", "organization", "lift-org", "a=b"],
        &["delete", "organization", "lift-org"],
    ] {
        contains_all(&olaf.fails(args), &["orbidden"]);
    }
    suspend(world, "organization", "lift-org", "null");
    // An owner's own holds too, and is the owner's to lift, by any way.
    let own = [
        "patch",
        "organization",
        "lift-org",
        "--type=merge",
        "-p={\"spec\":{\"suspension\":{\"reason\":\"break\"}}}",
    ];
    becomes(&olaf, &own, true);
    until("it holds", PATIENCE, || {
        (!olaf.run(&["label", "project", "lift-org-a", "c=d"]).success).then_some(())
    });
    let lift = ["patch", "organization", "lift-org", "--type=merge", "-p={\"spec\":{\"suspension\":null}}"];
    becomes(&world.person("olaf", ""), &lift, true);
}
