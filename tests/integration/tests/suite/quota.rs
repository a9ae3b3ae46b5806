//! Quota of organizations and projects, as those who set it and those who are held to it see it.

use crate::{PATIENCE, Scratch, contains_all, items, text};
use freehold_tests_integration::{Kubectl, World, facts, until};
use serde_json::json;

facts!(world:
    objects_claim_what_their_organization_was_granted_and_give_it_back,
    what_grows_claims_more_and_a_dry_run_says_whether_it_may,
    a_claim_is_of_all_resources_or_of_none,
    an_expression_that_fails_refuses,
    a_grant_comes_and_goes_with_what_it_is_for,
    a_correction_says_who_made_it,
    organizations_read_their_allowances_and_do_not_write_them,
    a_project_that_goes_gives_back_what_it_claimed,
    claims_of_what_went_without_them_are_given_back,
    what_a_fork_or_an_import_begins_with_is_claimed_before_it_is_there,
    what_a_restore_brings_back_is_claimed_before_and_what_becomes_less_is_given_back,
    all_that_becomes_less_with_a_restore_is_given_back,
    quotas_of_a_namespace_are_given_back_with_the_delete,
    devices_are_limited_under_the_extended_names_of_their_classes,
);

/// Something that is counted, with what claims it.
pub(crate) fn registration(name: &str, consumer: &str, claiming: &str) -> String {
    format!(
        "apiVersion: quota.freehold.dev/v1alpha1\nkind: ResourceRegistration\nmetadata: {{name: {name}}}\n\
         spec: {{resourceType: {name}, type: Allocation, baseUnit: unit, consumerType: {{kind: {consumer}}}, \
         claimingResources: [{claiming}]}}\n---\n"
    )
}

pub(crate) fn grant(organization: &str, consumer: &str, resource: &str, amount: u32) -> String {
    format!(
        "apiVersion: quota.freehold.dev/v1alpha1\nkind: ResourceGrant\n\
         metadata: {{name: {resource}, namespace: organization-{organization}}}\n\
         spec: {{consumerRef: {consumer}, allowances: [{{resourceType: {resource}, buckets: [{{amount: {amount}}}]}}]}}\n---\n"
    )
}

pub(crate) fn organization(name: &str) -> String {
    format!("{{kind: Organization, name: {name}}}")
}

/// A policy by which ConfigMaps of an organization's projects claim.
pub(crate) fn policy(name: &str, organization: &str, requests: &str) -> String {
    format!(
        "apiVersion: quota.freehold.dev/v1alpha1\nkind: ClaimCreationPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  trigger:\n    resource: {{apiVersion: v1, kind: ConfigMap}}\n    \
         constraints: [{{expression: 'organization == \"{organization}\" && trigger.metadata.name.startsWith(\"paid\")'}}]\n  \
         target: {{resourceClaimTemplate: {{spec: {{requests: [{requests}]}}}}}}\n---\n"
    )
}

pub(crate) const MAP_KIND: &str = "{kind: ConfigMap}";

/// What a bucket says: limit, allocated, available, claims.
pub(crate) fn bucket(admin: &Kubectl, organization: &str, resource: &str) -> Option<[i64; 4]> {
    let list = admin.json(&["get", "allowancebuckets", "-n", &format!("organization-{organization}")]);
    let found = items(&list).find(|bucket| text(bucket, "/spec/resourceType") == resource)?;
    let number = |field: &str| found["status"][field].as_i64().unwrap_or(-1);
    Some(["limit", "allocated", "available", "claimCount"].map(number))
}

fn objects_claim_what_their_organization_was_granted_and_give_it_back(world: &World) {
    world.organization("claiming", &["claiming-a", "claiming-b"]);
    let admin = world.admin();
    admin.apply(&registration("maps", "Organization", MAP_KIND));
    admin.apply(&grant("claiming", &organization("claiming"), "maps", 2));
    admin.apply(&policy("maps", "claiming", "{resourceType: maps, amount: 1}"));
    assert_eq!(bucket(&admin, "claiming", "maps"), Some([2, 0, 2, 0]));
    let (a, b) = (world.server().project("claiming-a"), world.server().project("claiming-b"));
    a.ok(&["create", "configmap", "free"]);
    a.ok(&["create", "configmap", "paid-1"]);
    b.ok(&["create", "configmap", "paid-1"]);
    assert_eq!(bucket(&admin, "claiming", "maps"), Some([2, 2, 0, 2]));
    let refused = a.fails(&["create", "configmap", "paid-2"]);
    let words =
        "exceeded quota of organization \"claiming\", requested: maps=1, used: maps=2, limited: maps=2";
    contains_all(&refused, &["is forbidden", words]);
    let claims = admin.json(&["get", "resourceclaims.quota.freehold.dev", "-n", "organization-claiming"]);
    let of_b = items(&claims).find(|claim| text(claim, "/spec/resourceRef/name") == "paid-1");
    let of_b = of_b.expect("a claim says what it is for");
    assert_eq!(text(of_b, "/status/conditions/0/reason"), "QuotaAvailable");
    b.ok(&["delete", "configmap", "paid-1"]);
    assert_eq!(bucket(&admin, "claiming", "maps"), Some([2, 1, 1, 1]), "at once");
    a.ok(&["label", "configmap", "paid-1", "a=b"]);
    a.ok(&["create", "configmap", "paid-2"]);
    admin.apply(&grant("claiming", &organization("claiming"), "maps", 1));
    assert_eq!(bucket(&admin, "claiming", "maps"), Some([1, 2, 0, 2]), "a grant may shrink");
    a.ok(&["label", "configmap", "paid-1", "a=c", "--overwrite"]);
    a.ok(&["delete", "configmap", "paid-1", "paid-2"]);
    admin.ok(&["delete", "resourcegrant", "maps", "-n", "organization-claiming"]);
    assert_eq!(bucket(&admin, "claiming", "maps"), None);
    contains_all(&a.fails(&["create", "configmap", "paid-3"]), &["limited: maps=0"]);
}

fn what_grows_claims_more_and_a_dry_run_says_whether_it_may(world: &World) {
    world.organization("growing", &["growing-a"]);
    let admin = world.admin();
    admin.apply(&registration("sizes", "Project", MAP_KIND));
    admin.apply(&grant("growing", "{kind: Project, name: growing-a}", "sizes", 10));
    let request = "{resourceType: sizes, amountExpression: \"int(trigger.data.size)\"}";
    admin.apply(&policy("sizes", "growing", request));
    let project = world.server().project("growing-a");
    let sized = |name: &str, size: u32, more: &[&str]| {
        let patch = format!("{{\"data\":{{\"size\":\"{size}\"}}}}");
        project.run(&[&["patch", "configmap", name, "--type=merge", "-p", &patch], more].concat())
    };
    let create = |name: &str, size: u32, more: &[&str]| {
        let literal = format!("--from-literal=size={size}");
        project.run(&[&["create", "configmap", name, &literal], more].concat())
    };
    contains_all(&create("paid", 11, &["--dry-run=server"]).expect_failure(), &["requested: sizes=11"]);
    create("paid", 6, &["--dry-run=server"]).expect_ok();
    assert_eq!(bucket(&admin, "growing", "sizes"), Some([10, 0, 10, 0]), "a dry run claims nothing");
    create("paid", 6, &[]).expect_ok();
    sized("paid", 9, &[]).expect_ok();
    assert_eq!(bucket(&admin, "growing", "sizes"), Some([10, 9, 1, 1]));
    let refused = sized("paid", 11, &[]).expect_failure();
    contains_all(&refused, &["requested: sizes=2, used: sizes=9, limited: sizes=10"]);
    contains_all(&sized("paid", 12, &["--dry-run=server"]).expect_failure(), &["requested: sizes=3"]);
    sized("paid", 4, &[]).expect_ok();
    assert_eq!(bucket(&admin, "growing", "sizes"), Some([10, 4, 6, 1]));
    contains_all(&create("paid-too", 7, &[]).expect_failure(), &["requested: sizes=7, used: sizes=4"]);
}

fn a_claim_is_of_all_resources_or_of_none(world: &World) {
    world.organization("both", &["both-a"]);
    let admin = world.admin();
    for (resource, amount) in [("left", 5), ("right", 1)] {
        admin.apply(&registration(resource, "Organization", MAP_KIND));
        admin.apply(&grant("both", &organization("both"), resource, amount));
    }
    admin.apply(&policy("both", "both", "{resourceType: left, amount: 1}, {resourceType: right, amount: 1}"));
    let project = world.server().project("both-a");
    project.ok(&["create", "configmap", "paid-1"]);
    contains_all(&project.fails(&["create", "configmap", "paid-2"]), &["right=1"]);
    assert_eq!(bucket(&admin, "both", "left"), Some([5, 1, 4, 1]));
    let claim = |requests: &str| {
        format!(
            "apiVersion: quota.freehold.dev/v1alpha1\nkind: ResourceClaim\n\
             metadata: {{name: by-hand, namespace: organization-both}}\n\
             spec: {{consumerRef: {{kind: Organization, name: both}}, requests: [{requests}]}}\n"
        )
    };
    let apply = |manifest: &str| admin.run_with_input(&["apply", "-f", "-"], manifest);
    let too_much = claim("{resourceType: left, amount: 1}, {resourceType: right, amount: 1}");
    contains_all(&apply(&too_much).expect_failure(), &["exceeded quota"]);
    apply(&claim("{resourceType: left, amount: 3}")).expect_ok();
    assert_eq!(bucket(&admin, "both", "left"), Some([5, 4, 1, 2]));
    contains_all(&apply(&claim("{resourceType: left, amount: 5}")).expect_failure(), &["requested: left=2"]);
    contains_all(&apply(&claim("{resourceType: unheard, amount: 1}")).expect_failure(), &["not registered"]);
    admin.ok(&["delete", "resourceclaims.quota.freehold.dev", "by-hand", "-n", "organization-both"]);
    assert_eq!(bucket(&admin, "both", "left"), Some([5, 1, 4, 1]));
}

fn an_expression_that_fails_refuses(world: &World) {
    world.organization("failing", &["failing-a"]);
    let admin = world.admin();
    admin.apply(&registration("fails", "Organization", MAP_KIND));
    admin.apply(&grant("failing", &organization("failing"), "fails", 100));
    let broken = policy("fails", "failing", "{resourceType: fails, amountExpression: \"1 +\"}");
    let refused = admin.run_with_input(&["apply", "-f", "-"], &broken).expect_failure();
    contains_all(&refused, &["is invalid", "ERROR"]);
    let request = "{resourceType: fails, amountExpression: \"int(trigger.data.size)\"}";
    admin.apply(&policy("fails", "failing", request));
    let project = world.server().project("failing-a");
    contains_all(
        &project.fails(&["create", "configmap", "paid"]),
        &["is forbidden", "ClaimCreationPolicy \"fails\"", "no such key: data"],
    );
    project.ok(&["create", "configmap", "paid", "--from-literal=size=3"]);
    let deleted = admin.run(&["delete", "resourceregistration", "fails"]).expect_failure();
    contains_all(&deleted, &["it is granted in namespace \"organization-failing\""]);
    project.ok(&["delete", "configmap", "paid"]);
    assert_eq!(bucket(&admin, "failing", "fails"), Some([100, 0, 100, 0]));
}

fn a_grant_comes_and_goes_with_what_it_is_for(world: &World) {
    world.organization("granting", &[]);
    let admin = world.admin();
    admin.apply(&registration("rooms", "Project", MAP_KIND));
    admin.apply(
        "apiVersion: quota.freehold.dev/v1alpha1\nkind: GrantCreationPolicy\nmetadata: {name: rooms}\n\
         spec:\n  trigger:\n    resource: {apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project}\n    \
         constraints: [{expression: 'organization == \"granting\"'}]\n  target:\n    resourceGrantTemplate:\n      \
         metadata: {labels: {of: \"{{ trigger.metadata.name }}\"}}\n      \
         spec: {consumerRef: {kind: Project, name: \"{{ trigger.metadata.name }}\"}, \
         allowances: [{resourceType: rooms, buckets: [{amount: 3}, {amount: 4}]}]}\n",
    );
    world.organization("granting", &["granting-a"]);
    assert_eq!(bucket(&admin, "granting", "rooms"), Some([7, 0, 7, 0]));
    let grants = admin.json(&["get", "resourcegrants", "-n", "organization-granting", "-l", "of=granting-a"]);
    assert_eq!(items(&grants).count(), 1);
    admin.ok(&["delete", "project", "granting-a", "--timeout=120s"]);
    assert_eq!(bucket(&admin, "granting", "rooms"), None);
    admin.ok(&["delete", "grantcreationpolicy", "rooms"]);
}

fn a_correction_says_who_made_it(world: &World) {
    world.organization("correcting", &["correcting-a"]);
    let admin = world.admin();
    admin.apply(&registration("corrected", "Organization", MAP_KIND));
    admin.apply(&grant("correcting", &organization("correcting"), "corrected", 5));
    let namespace = "organization-correcting";
    let name = admin.ok(&["get", "allowancebuckets", "-n", namespace, "-o", "name"]).trim().to_owned();
    let patch = "{\"status\":{\"allocated\":4,\"limit\":900}}";
    admin.ok(&["patch", &name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch]);
    let corrected = admin.json(&["get", &name, "-n", namespace]);
    assert_eq!(bucket(&admin, "correcting", "corrected"), Some([5, 4, 1, 0]), "grants alone are the limit");
    let by = text(&corrected, "/metadata/annotations/quota.freehold.dev~1corrected-by");
    assert!(!by.is_empty(), "{corrected}");
    let events = admin.json(&["get", "events", "-n", namespace]);
    let found = items(&events).any(|event| {
        text(event, "/reason") == "QuotaCorrected" && text(event, "/message").contains("from 0 to 4")
    });
    assert!(found, "{events}");
    contains_all(&admin.fails(&["delete", &name, "-n", namespace]), &["go with the last grant"]);
}

fn organizations_read_their_allowances_and_do_not_write_them(world: &World) {
    world.organization("reading", &["reading-a"]);
    let admin = world.admin();
    admin.apply(&registration("read", "Organization", MAP_KIND));
    admin.apply(&grant("reading", &organization("reading"), "read", 5));
    admin.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: OrganizationMembership\n\
         metadata: {name: olga, namespace: organization-reading}\n\
         spec: {organizationRef: {name: reading}, userRef: {name: olga}, roles: [owner]}\n",
    );
    let olga = world.at("/organizations/reading").with(&["--as", "olga"]);
    let there = olga.json(&["get", "allowancebuckets", "-n", "organization-reading"]);
    assert_eq!(items(&there).count(), 1);
    let more = grant("reading", &organization("reading"), "read", 500);
    let refused = olga.run_with_input(&["apply", "-f", "-"], &more).expect_failure();
    contains_all(&refused, &["Forbidden"]);
    contains_all(
        &olga.fails(&["delete", "resourcegrant", "read", "-n", "organization-reading"]),
        &["Forbidden"],
    );
}

fn a_project_that_goes_gives_back_what_it_claimed(world: &World) {
    world.organization("going", &["going-a"]);
    let admin = world.admin();
    admin.apply(&registration("gone", "Organization", MAP_KIND));
    admin.apply(&grant("going", &organization("going"), "gone", 9));
    admin.apply(&policy("gone", "going", "{resourceType: gone, amount: 3}"));
    let project = world.server().project("going-a");
    project.ok(&["create", "configmap", "paid-1"]);
    project.ok(&["create", "configmap", "paid-2"]);
    assert_eq!(bucket(&admin, "going", "gone"), Some([9, 6, 3, 2]));
    // What an import that is under way claims while the project is deleted is not all known to who deletes it.
    let plane = admin.json(&["get", "project", "going-a"])["metadata"]["uid"].clone();
    let object = json!({"kind": "ConfigMap", "namespace": "default", "name": "paid-3", "plane": plane});
    admin.apply(
        &json!({
            "apiVersion": "quota.freehold.dev/v1alpha1", "kind": "ResourceClaim",
            "metadata": {"name": "late", "namespace": "organization-going"},
            "spec": {
                "consumerRef": {"kind": "Organization", "name": "going"}, "resourceRef": object,
                "requests": [{"resourceType": "gone", "amount": 3}],
            },
        })
        .to_string(),
    );
    assert_eq!(bucket(&admin, "going", "gone"), Some([9, 9, 0, 3]));
    admin.ok(&["delete", "project", "going-a", "--timeout=120s"]);
    until("all is given back", PATIENCE, || {
        (bucket(&admin, "going", "gone") == Some([9, 0, 9, 0])).then_some(())
    });
}

fn claims_of_what_went_without_them_are_given_back(world: &World) {
    world.organization("stale", &["stale-a"]);
    let admin = world.admin();
    admin.apply(&registration(
        "stale",
        "Organization",
        "{kind: ConfigMap}, {apiGroup: stale.example, kind: Widget}",
    ));
    admin.apply(&grant("stale", &organization("stale"), "stale", 9));
    let claims = |name: &str, of: &str, when: &str| {
        admin.apply(&format!(
            "apiVersion: quota.freehold.dev/v1alpha1\nkind: ClaimCreationPolicy\nmetadata: {{name: {name}}}\n\
             spec: {{trigger: {{resource: {of}, constraints: [{{expression: '{when}'}}]}}, \
             target: {{resourceClaimTemplate: {{spec: {{requests: [{{resourceType: stale, amount: 1}}]}}}}}}}}\n"
        ));
    };
    let paid = "organization == \"stale\" && trigger.metadata.name.startsWith(\"paid\")";
    claims("stale-maps", "{apiVersion: v1, kind: ConfigMap}", paid);
    claims("stale-widgets", "{apiVersion: stale.example/v1, kind: Widget}", "true");
    let project = world.server().project("stale-a");
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.stale.example"},
        "spec": {
            "group": "stale.example", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    project.apply(&crd.to_string());
    project.ok(&["wait", "--for=condition=Established", "crd/widgets.stale.example", "--timeout=120s"]);
    for name in ["a", "b"] {
        let widget = json!({"apiVersion": "stale.example/v1", "kind": "Widget", "metadata": {"name": name}});
        project.apply(&widget.to_string());
    }
    project.ok(&["create", "configmap", "paid-0"]);
    assert_eq!(bucket(&admin, "stale", "stale"), Some([9, 3, 6, 3]));
    project.ok(&["delete", "crd", "widgets.stale.example", "--timeout=120s"]);
    let allocated = |count: i64| {
        until(&format!("{count} are claimed"), PATIENCE, || {
            (bucket(&admin, "stale", "stale") == Some([9, count, 9 - count, count])).then_some(())
        });
    };
    allocated(1);
    // A project that goes back to a snapshot has what it had then, and claims for no more.
    let view = admin.with(&["--namespace", "organization-stale"]);
    let restore = |kind: &str, name: &str, spec: serde_json::Value| {
        view.apply(&json!({
            "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        }).to_string());
    };
    restore("ProjectSnapshot", "before", json!({"projectRef": {"name": "stale-a"}}));
    view.ok(&["wait", "--for=jsonpath={.status.phase}=Ready", "projectsnapshot/before", "--timeout=120s"]);
    project.ok(&["create", "configmap", "paid-1"]);
    project.ok(&["create", "configmap", "paid-2"]);
    assert_eq!(bucket(&admin, "stale", "stale"), Some([9, 3, 6, 3]));
    restore(
        "ProjectRestore",
        "back",
        json!({"projectRef": {"name": "stale-a"}, "snapshotRef": {"name": "before"}}),
    );
    view.ok(&["wait", "--for=jsonpath={.status.phase}=Completed", "projectrestore/back", "--timeout=120s"]);
    allocated(1);
    project.ok(&["delete", "configmap", "paid-0"]);
    assert_eq!(bucket(&admin, "stale", "stale"), Some([9, 0, 9, 0]));
}

fn what_a_fork_or_an_import_begins_with_is_claimed_before_it_is_there(world: &World) {
    world.organization("copied", &["copied-a"]);
    let admin = world.admin();
    admin.apply(&registration("copies", "Organization", MAP_KIND));
    admin.apply(&grant("copied", &organization("copied"), "copies", 7));
    admin.apply(&policy("copies", "copied", "{resourceType: copies, amount: 1}"));
    let original = world.server().project("copied-a");
    original.ok(&["create", "configmap", "paid-1"]);
    original.ok(&["create", "configmap", "paid-2"]);
    original.ok(&["create", "configmap", "free"]);
    let allocated = |limit: i64, count: i64| {
        assert_eq!(bucket(&admin, "copied", "copies"), Some([limit, count, limit - count, count]));
    };
    allocated(7, 2);
    let file = Scratch::new(world, "copied.fha", "");
    std::fs::remove_file(file.path()).expect("it is there");
    let freehold = |args: &[&str]| world.server().freehold(&[&["project"], args].concat());
    let import = |to: &str| freehold(&["import", file.path(), "--to", to, "--organization", "copied"]);
    freehold(&["fork", "copied-a", "--to", "copied-b"]).expect_ok();
    allocated(7, 4);
    freehold(&["export", "copied-a", file.path()]).expect_ok();
    import("copied-c").expect_ok();
    allocated(7, 6);
    let [fork, imported] = ["copied-b", "copied-c"].map(|name| world.server().project(name));
    for copy in [&fork, &imported] {
        assert_eq!(copy.ok(&["get", "configmap", "paid-1", "paid-2", "-o", "name"]).lines().count(), 2);
        copy.ok(&["label", "configmap", "paid-1", "a=b"]);
    }
    allocated(7, 6);
    // All of it or nothing.
    let words =
        "exceeded quota of organization \"copied\", requested: copies=2, used: copies=6, limited: copies=7";
    let refused = freehold(&["fork", "copied-a", "--to", "copied-d"]).expect_failure();
    contains_all(&refused, &["QuotaExceeded", words]);
    contains_all(&import("copied-e").expect_failure(), &[words]);
    allocated(7, 6);
    admin.ok(&["wait", "--for=delete", "project/copied-e", "--timeout=60s"]);
    // There is room: the fork goes on.
    admin.apply(&grant("copied", &organization("copied"), "copies", 8));
    world.wait_ready("copied-d");
    allocated(8, 8);
    contains_all(&fork.fails(&["create", "configmap", "paid-3"]), &["used: copies=8, limited: copies=8"]);
    // Each has its own claim, though a fork's objects have the uids of their source; it goes with its object, at once.
    let late = world.server().project("copied-d");
    for (nth, project) in (1..).zip([&original, &fork, &imported, &late]) {
        project.ok(&["delete", "configmap", "paid-1", "paid-2"]);
        allocated(8, 8 - 2 * nth);
    }
    admin.ok(&["delete", "resourcegrant", "copies", "-n", "organization-copied"]);
}

fn what_a_restore_brings_back_is_claimed_before_and_what_becomes_less_is_given_back(world: &World) {
    world.organization("returning", &["returning-a"]);
    let admin = world.admin();
    admin.apply(&registration("returned", "Organization", MAP_KIND));
    admin.apply(&grant("returning", &organization("returning"), "returned", 10));
    let request = "{resourceType: returned, amountExpression: \"int(trigger.data.size)\"}";
    admin.apply(&policy("returned", "returning", request));
    let project = world.server().project("returning-a");
    let create = |name: &str, size: u32| {
        project.ok(&["create", "configmap", name, &format!("--from-literal=size={size}")]);
    };
    let resize = |name: &str, size: u32| {
        let patch = format!("{{\"data\":{{\"size\":\"{size}\"}}}}");
        project.ok(&["patch", "configmap", name, "--type=merge", "-p", &patch]);
    };
    let is = |allocated: i64, claims: i64| {
        bucket(&admin, "returning", "returned") == Some([10, allocated, 10 - allocated, claims])
    };
    let freehold = |args: &[&str]| world.server().freehold(&[&["project"], args].concat());
    let restore = || freehold(&["restore", "returning-a", "--snapshot", "sized"]);
    create("paid-1", 6);
    create("paid-2", 2);
    freehold(&["snapshot", "returning-a", "--name", "sized"]).expect_ok();
    resize("paid-1", 1);
    project.ok(&["delete", "configmap", "paid-2"]);
    create("paid-3", 1);
    assert!(is(2, 2));
    restore().expect_ok();
    until("what went is given back, what came is claimed", PATIENCE, || is(8, 2).then_some(()));
    resize("paid-1", 8);
    assert!(is(10, 2));
    restore().expect_ok();
    assert!(is(8, 2), "what became less is given back with the restore");
    // A server that is killed after a restore and before that leaves more charged, until the controller asks again.
    let view = admin.with(&["--namespace", "organization-returning"]);
    let claims = view.json(&["get", "resourceclaims.quota.freehold.dev"]);
    let of_paid_1 =
        items(&claims).find(|claim| text(claim, "/spec/resourceRef/name") == "paid-1").expect("its claim");
    let left = json!({
        "metadata": {"annotations": {"quota.freehold.dev/ahead-of": "1 2026-01-01T00:00:00Z"}},
        "spec": {"requests": [{"resourceType": "returned", "amount": 8}]},
    });
    let name = text(of_paid_1, "/metadata/name");
    view.ok(&["patch", "resourceclaims.quota.freehold.dev", name, "--type=merge", "-p", &left.to_string()]);
    assert!(is(10, 2));
    let restored = view.json(&["get", "projectrestores"]);
    let restored = text(items(&restored).next().expect("a restore"), "/metadata/uid");
    let snapshot = view.json(&["get", "projectsnapshot", "sized"]);
    let again = format!(
        "/planes/{}/stack?layer={}&operation=restore-{restored}",
        text(&snapshot, "/status/plane"),
        text(&snapshot, "/status/layer"),
    );
    admin.run_with_input(&["replace", "--raw", &again, "-f", "-"], "{}").expect_ok();
    assert!(is(8, 2));
    // Without room it stays as it is.
    resize("paid-1", 1);
    create("paid-4", 7);
    let words = "exceeded quota of organization \"returning\", requested: returned=5, used: returned=10";
    contains_all(&restore().expect_failure(), &["QuotaExceeded", words]);
    assert!(is(10, 3));
    assert_eq!(text(&project.json(&["get", "configmap", "paid-1"]), "/data/size"), "1");
    project.ok(&["delete", "configmap", "paid-1", "paid-2", "paid-4"]);
    assert!(is(0, 0));
}

/// Keys from before the switch are taken away meanwhile.
fn all_that_becomes_less_with_a_restore_is_given_back(world: &World) {
    const COUNT: u32 = 60;
    world.organization("lessening", &["lessening-a"]);
    let admin = world.admin();
    admin.apply(&registration("lessened", "Organization", MAP_KIND));
    admin.apply(&grant("lessening", &organization("lessening"), "lessened", 3 * COUNT));
    let request = "{resourceType: lessened, amountExpression: \"int(trigger.data.size)\"}";
    admin.apply(&policy("lessened", "lessening", request));
    let project = world.server().project("lessening-a");
    let sized = |size: u32| {
        let map = |nth| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("paid-{nth}")}, "data": {"size": size.to_string()},
            })
        };
        let maps: Vec<_> = (0..COUNT).map(map).collect();
        project.apply(&json!({"apiVersion": "v1", "kind": "List", "items": maps}).to_string());
    };
    let is = |allocated: u32| {
        let expected = Some([3 * COUNT, allocated, 3 * COUNT - allocated, COUNT].map(i64::from));
        assert_eq!(bucket(&admin, "lessening", "lessened"), expected);
    };
    let freehold = |args: &[&str]| world.server().freehold(&[&["project"], args].concat()).expect_ok();
    sized(1);
    is(COUNT);
    freehold(&["snapshot", "lessening-a", "--name", "lesser"]);
    sized(3);
    is(3 * COUNT);
    freehold(&["restore", "lessening-a", "--snapshot", "lesser"]);
    is(COUNT);
}

fn quotas_of_a_namespace_are_given_back_with_the_delete(world: &World) {
    let kubectl = world.namespace("quota-exact", "small");
    let hard = "--hard=count/configmaps=3,services.nodeports=1,count/deployments.apps=1";
    kubectl.ok(&["create", "quota", "small", hard]);
    until("it is counted", PATIENCE, || {
        let quota = kubectl.json(&["get", "quota", "small"]);
        (text(&quota, "/status/used/count~1configmaps") == "1").then_some(())
    });
    for _ in 0..5 {
        for kind in
            [&["create", "configmap", "a"][..], &["create", "deployment", "d", "--image=i", "--replicas=0"]]
        {
            kubectl.ok(kind);
        }
        kubectl.ok(&["create", "service", "nodeport", "s", "--tcp=80"]);
        kubectl.fails(&["create", "deployment", "e", "--image=i"]);
        kubectl.fails(&["create", "service", "nodeport", "t", "--tcp=80"]);
        kubectl.ok(&["delete", "configmap/a", "service/s", "deployment/d", "--cascade=orphan"]);
        let used = kubectl.json(&["get", "quota", "small"])["status"]["used"].clone();
        let expected =
            json!({"count/configmaps": "1", "services.nodeports": "0", "count/deployments.apps": "0"});
        assert_eq!(used, expected, "given back in the delete's own commit");
    }
}

fn devices_are_limited_under_the_extended_names_of_their_classes(world: &World) {
    let kubectl = world.namespace("quota-devices", "devices");
    let class = |extended: &str| {
        kubectl.apply(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "quota-devices"},
            "spec": {"extendedResourceName": extended},
        }).to_string());
    };
    let claim = |name: &str, devices: u32| {
        let exactly =
            json!({"deviceClassName": "quota-devices", "allocationMode": "ExactCount", "count": devices});
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}},
        })
        .to_string()
    };
    let pod = |devices: u32| {
        let limits = json!({"limits": {"quota-devices.example/gold": devices.to_string()}});
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "devices"},
            "spec": {"containers": [{"name": "a", "image": "i", "resources": limits}]},
        })
        .to_string()
    };
    let (gold, of_class) =
        ("requests.quota-devices.example/gold", "requests.deviceclass.resource.kubernetes.io/quota-devices");
    let used = || {
        let quota = kubectl.json(&["get", "quota", "devices"]);
        [gold, of_class].map(|name| quota["status"]["used"][name].as_str().unwrap_or_default().to_owned())
    };
    let counted = |amounts: [&str; 2]| until("it is counted", PATIENCE, || (used() == amounts).then_some(()));
    class("quota-devices.example/gold");
    kubectl.ok(&["create", "quota", "devices", &format!("--hard={gold}=3,{of_class}=9")]);
    counted(["0", "0"]);
    kubectl.apply(&claim("a", 2));
    assert_eq!(used(), ["2", "2"]);
    let refusal = kubectl.run_with_input(&["create", "-f", "-"], &claim("b", 2));
    let words = format!("exceeded quota: devices, requested: {gold}=2, used: {gold}=2, limited: {gold}=3");
    contains_all(&refusal.expect_failure(), &[words.as_str()]);
    contains_all(
        &kubectl.run_with_input(&["create", "-f", "-"], &pod(2)).expect_failure(),
        &[words.as_str()],
    );
    kubectl.apply(&pod(1));
    assert_eq!(used(), ["3", "2"]);
    kubectl.ok(&["delete", "resourceclaim", "a"]);
    assert_eq!(used(), ["1", "0"], "given back in the delete's own commit");
    kubectl.apply(&claim("a", 2));
    class("quota-devices.example/silver");
    counted(["1", "2"]);
    class("quota-devices.example/gold");
    counted(["3", "2"]);
    kubectl.ok(&["delete", "deviceclass", "quota-devices"]);
}
