//! What the platform gives counts in dedicated control planes too: their pairs are told of it, request by request.

use crate::access::{becomes, member, watch};
use crate::contains_all;
use freehold_tests_integration::{Background, World, facts};

facts!(world: a_members_role_counts_in_a_dedicated_project_and_ends);

fn a_members_role_counts_in_a_dedicated_project_and_ends(world: &World) {
    let manifest = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: paired}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: paired-a}
spec: {ownerRef: {kind: Organization, name: paired}, controlPlane: {mode: Dedicated}}
";
    let people = [("pair-olga", "owner"), ("pair-ed", "editor"), ("pair-vera", "viewer")];
    let members: String = people.iter().map(|(user, role)| member("paired", user, role)).collect();
    let admin = world.admin();
    admin.apply(&format!("{manifest}{members}"));
    world.wait_ready("paired-a");
    let [olga, ed, vera] = people.map(|(user, _)| world.person(user, "/projects/paired-a"));
    becomes(&vera, &["get", "configmaps"], true);
    becomes(&vera, &["get", "secrets"], false);
    becomes(&vera, &["create", "configmap", "no", "--dry-run=server"], false);
    becomes(&ed, &["create", "configmap", "made", "--dry-run=server"], true);
    let bind =
        |role: &'static str| ["create", "clusterrolebinding", "b", role, "--user=y", "--dry-run=server"];
    becomes(&olga, &bind("--clusterrole=cluster-admin"), true);
    becomes(&ed, &bind("--clusterrole=cluster-admin"), false);
    becomes(&world.person("pair-nobody", "/projects/paired-a"), &["get", "configmaps"], false);
    // Nobody says of themselves what the platform gives them, nor of whom they become.
    let masters = ["get", "configmaps", "--as=anybody", "--as-group=system:masters"];
    contains_all(&vera.fails(&masters), &["cannot impersonate"]);
    let granted = "--as-user-extra=iam.freehold.dev/granted=yes";
    assert!(!vera.run(&["get", "secrets", "--as=pair-vera", granted]).success);
    contains_all(&olga.ok(&["auth", "can-i", "get", "secrets"]), &["yes"]);
    // What RBAC in the pair gives by name ends with the membership too.
    let inside = world.server().project("paired-a");
    inside.ok(&["create", "clusterrolebinding", "ed", "--clusterrole=view", "--user=pair-ed"]);
    inside.ok(&["create", "clusterrolebinding", "all", "--clusterrole=view", "--group=system:authenticated"]);
    let mut watches = [&ed, &vera].map(|person| watch(person, "paired-a"));
    for user in ["pair-ed", "pair-vera"] {
        admin.ok(&["delete", "organizationmembership", user, "--namespace=organization-paired"]);
    }
    watches.iter_mut().for_each(Background::wait_for_end);
    becomes(&ed, &["get", "configmaps"], false);
    becomes(
        &world.person("pair-nobody", "/projects/paired-a"),
        &["get", "--raw", "/projects/paired-a/apis"],
        false,
    );
    let mut last = watch(&olga, "paired-a");
    let suspension = "{\"spec\":{\"suspension\":{\"reason\":\"unpaid\"}}}";
    admin.ok(&["patch", "project", "paired-a", "--type=merge", "--patch", suspension]);
    last.wait_for_end();
    contains_all(&olga.fails(&["get", "configmaps"]), &["suspended: unpaid"]);
    admin.ok(&["delete", "project", "paired-a", "--timeout=120s"]);
}
