//! Point 5: an organization's view of what is its own, and over all of its projects.

use crate::{PATIENCE, contains_all, items, names, row, text};
use freehold_tests_integration::{World, facts, until};

facts!(world:
    an_organization_lists_its_own_projects_and_memberships,
    an_organization_watches_its_own_projects,
    configmaps_of_all_projects_are_listed_with_their_project,
    configmaps_of_all_projects_are_watched,
    members_may_do_what_their_roles_say,
    projects_are_made_and_deleted_in_the_organizations_view,
);

fn membership(organization: &str, user: &str, role: &str) -> String {
    format!(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: OrganizationMembership\n\
         metadata: {{name: {user}, namespace: organization-{organization}}}\n\
         spec: {{organizationRef: {{name: {organization}}}, userRef: {{name: {user}}}, roles: [{role}]}}\n"
    )
}

fn an_organization_lists_its_own_projects_and_memberships(world: &World) {
    world.organization("own", &["own-a", "own-b"]);
    world.organization("foreign", &["foreign-a"]);
    let admin = world.admin();
    for (organization, user) in [("own", "ann"), ("foreign", "fred")] {
        admin.apply(&membership(organization, user, "viewer"));
    }
    let own = world.at("/organizations/own");
    assert_eq!(names(&own.json(&["get", "projects"])), ["own-a", "own-b"]);
    assert_eq!(names(&own.json(&["get", "organizations"])), ["own"]);
    assert_eq!(names(&own.json(&["get", "organizationmemberships", "-A"])), ["ann"]);
    contains_all(&own.ok(&["get", "projects"]), &["NAME", "MODE", "READY", "own-a"]);
    contains_all(&own.fails(&["get", "project", "foreign-a"]), &["NotFound"]);
    contains_all(&own.fails(&["delete", "project", "foreign-a"]), &["NotFound"]);
    contains_all(&own.fails(&["label", "project", "foreign-a", "a=b"]), &["NotFound"]);
    let foreign = own.run(&["get", "organizationmemberships", "--namespace", "organization-foreign"]);
    assert!(!foreign.stdout.contains("fred"), "{foreign}");
    let long = world.at("/apis/resourcemanager.freehold.dev/v1alpha1/organizations/own/control-plane");
    assert_eq!(names(&long.json(&["get", "projects"])), ["own-a", "own-b"]);
    contains_all(&world.at("/organizations/nobody").fails(&["get", "projects"]), &["NotFound"]);
}

fn an_organization_watches_its_own_projects(world: &World) {
    world.organization("looking", &["looking-a"]);
    let watch = world.at("/organizations/looking").background(&["get", "projects", "--watch", "-o", "name"]);
    watch.wait_for("looking-a");
    world.organization("elsewhere", &["elsewhere-a"]);
    world.organization("looking", &["looking-b"]);
    watch.wait_for("looking-b");
    world.admin().ok(&["label", "project", "elsewhere-a", "a=b"]);
    world.admin().ok(&["delete", "project", "looking-a", "--wait=false"]);
    until("the deletion is seen", PATIENCE, || {
        (watch.printed().matches("looking-a").count() > 1).then_some(())
    });
    assert!(!watch.printed().contains("elsewhere"), "{}", watch.printed());
}

fn configmaps_of_all_projects_are_listed_with_their_project(world: &World) {
    world.organization("across", &["across-a", "across-b"]);
    world.organization("beside", &["beside-a"]);
    for project in ["across-a", "across-b", "beside-a"] {
        let kubectl = world.server().project(project);
        kubectl.ok(&["create", "configmap", &format!("of-{project}")]);
        kubectl.ok(&["create", "configmap", "common", &format!("--from-literal=from={project}")]);
    }
    let view = world.at("/organizations/across");
    let table = view.ok(&["get", "configmaps", "-A"]);
    contains_all(table.lines().next().unwrap_or_default(), &["NAMESPACE", "NAME", "PROJECT", "DATA", "AGE"]);
    for project in ["across-a", "across-b"] {
        let line = table.lines().find(|line| line.contains(&format!("of-{project}"))).unwrap_or_default();
        assert_eq!(line.matches(project).count(), 2, "its name and its project:\n{table}");
    }
    assert!(!table.contains("beside"), "{table}");
    let list = view.json(&["get", "configmaps", "-A"]);
    let common: Vec<_> = items(&list).filter(|map| text(map, "/metadata/name") == "common").collect();
    assert_eq!(common.len(), 2, "{list}");
    for map in common {
        let project = text(map, "/metadata/annotations/resourcemanager.freehold.dev~1project");
        assert_eq!(project, text(map, "/data/from"), "{map}");
    }
    let selected = view.json(&["get", "configmaps", "-A", "--field-selector", "metadata.name=of-across-b"]);
    assert_eq!(names(&selected), ["of-across-b"]);
    let refused = view.run(&["create", "configmap", "nowhere", "--namespace", "default"]);
    assert!(!refused.success, "{refused}");
}

fn configmaps_of_all_projects_are_watched(world: &World) {
    world.organization("across-watch", &["watched-a"]);
    world.organization("beside-watch", &["beside-b"]);
    let watch = world.at("/organizations/across-watch").background(&["get", "configmaps", "-A", "--watch"]);
    watch.wait_for("PROJECT");
    world.server().project("beside-b").ok(&["create", "configmap", "not-yours"]);
    world.server().project("watched-a").ok(&["create", "configmap", "early-map"]);
    watch.wait_for("early-map");
    world.organization("across-watch", &["watched-b"]);
    world.server().project("watched-b").ok(&["create", "configmap", "late-map"]);
    watch.wait_for("late-map");
    let printed = watch.printed();
    let line = printed.lines().find(|line| line.contains("late-map")).unwrap_or_default();
    assert!(line.contains("watched-b"), "{printed}");
    assert!(!printed.contains("not-yours"), "{printed}");
}

fn members_may_do_what_their_roles_say(world: &World) {
    world.organization("roles", &["roles-a"]);
    for (user, role) in [("olga", "owner"), ("ed", "editor"), ("vera", "viewer")] {
        world.admin().apply(&membership("roles", user, role));
    }
    let view = world.at("/organizations/roles");
    let rows: [(&str, &[&str], bool); 7] = [
        ("vera", &["get", "projects"], true),
        ("vera", &["label", "project", "roles-a", "v=1"], false),
        ("ed", &["label", "project", "roles-a", "e=1"], true),
        ("ed", &["delete", "organizationmembership", "vera", "--namespace=organization-roles"], false),
        ("olga", &["delete", "organizationmembership", "vera", "--namespace=organization-roles"], true),
        ("vera", &["get", "projects"], false),
        ("nobody", &["get", "projects"], false),
    ];
    for (user, args, allowed) in rows {
        let kubectl = view.with(&["--as", user]);
        until(&format!("{user} {args:?}: {allowed}"), PATIENCE, || {
            let output = kubectl.run(args);
            assert!(output.success || output.stderr.contains("orbidden"), "{output}");
            (output.success == allowed).then_some(())
        });
    }
    for user in ["olga", "ed"] {
        let answer = view.with(&["--as", user]).run(&["auth", "can-i", "impersonate", "users"]);
        assert!(
            !answer.success && answer.stdout.contains("no"),
            "a role makes nobody somebody else: {answer}"
        );
    }
    assert!(!world.server().project("roles-a").with(&["--as", "nobody"]).run(&["get", "configmaps"]).success);
}

fn projects_are_made_and_deleted_in_the_organizations_view(world: &World) {
    world.organization("making", &[]);
    let view = world.at("/organizations/making");
    let project = |name: &str, owner: &str| {
        format!(
            "---\n{{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {{name: {name}}},
              spec: {{ownerRef: {{kind: Organization, name: {owner}}}}}}}"
        )
    };
    view.apply(&project("making-a", "making"));
    view.ok(&["wait", "--for=condition=Ready", "project/making-a", "--timeout=120s"]);
    assert_eq!(row(&view.ok(&["get", "projects"]), "making-a")[1], "making");
    let refused = view.run_with_input(&["create", "-f", "-"], &project("making-b", "tests")).expect_failure();
    contains_all(&refused, &["Forbidden"]);
    view.ok(&["delete", "project", "making-a"]);
    World::gone(&world.admin(), &["project", "making-a"]);
}
