//! Roles of an organization reach into its projects, and what is taken away ends at once.

use crate::{PATIENCE, contains_all, items, names, text};
use freehold_tests_integration::{Background, Http, Kubectl, World, facts, until};
use http::Method;
use serde_json::json;

facts!(world:
    a_members_role_counts_in_each_project_through_its_own_credentials,
    a_binding_reaches_what_its_target_says,
    nobody_gives_more_than_they_hold,
    an_organization_s_objects_do_not_reach_beyond_it,
    reviews_take_the_platform_s_roles_into_account,
    can_i_says_which_binding_allows_or_what_is_missing,
    a_watch_ends_when_what_allowed_it_goes,
    a_suspended_project_answers_nobody,
    who_may_lift_a_suspension_is_asked,
    each_verb_in_an_organization_s_view_keeps_to_it,
    what_was_given_at_an_organization_or_project_goes_with_it,
);

/// A membership; with an empty role one of a guest, for whom bindings count.
pub(crate) fn member(organization: &str, user: &str, role: &str) -> String {
    format!(
        "---\n{{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: OrganizationMembership,
          metadata: {{name: {user}, namespace: organization-{organization}}},
          spec: {{organizationRef: {{name: {organization}}}, userRef: {{name: {user}}}, roles: [{role}]}}}}\n"
    )
}

/// A binding of a role to a user.
fn binding(organization: &str, (user, role): (&str, &str), target: &str) -> String {
    let (role, home) = role.split_once('@').unwrap_or((role, "freehold-system"));
    format!(
        "---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding,
          metadata: {{name: {user}-{role}, namespace: organization-{organization}}},
          spec: {{roleRef: {{name: {role}, namespace: {home}}}, subjects: [{{kind: User, name: {user}}}], target: {target}}}}}\n"
    )
}

/// Waits until a command succeeds, or is forbidden.
pub(crate) fn becomes(kubectl: &Kubectl, args: &[&str], allowed: bool) {
    until(&format!("{args:?}: {allowed}"), PATIENCE, || {
        let output = kubectl.run(args);
        let refused = output.stderr.contains("orbidden") || output.stderr.contains("nauthorized");
        assert!(output.success || refused || output.stderr.contains("must be logged in"), "{output}");
        (output.success == allowed).then_some(())
    });
}

fn a_members_role_counts_in_each_project_through_its_own_credentials(world: &World) {
    world.organization("reach", &["reach-a", "reach-b"]);
    for (user, role) in [("reach-olga", "owner"), ("reach-ed", "editor"), ("reach-vera", "viewer")] {
        world.admin().apply(&member("reach", user, role));
    }
    let maker = ["create", "configmap", "made", "--dry-run=server"];
    let rows: [(&str, &[&str], bool); 9] = [
        ("reach-vera", &["get", "pods"], true),
        ("reach-vera", &["get", "secrets"], false),
        ("reach-vera", &maker, false),
        ("reach-ed", &maker, true),
        (
            "reach-ed",
            &["create", "clusterrolebinding", "x", "--clusterrole=view", "--user=y", "--dry-run=server"],
            true,
        ),
        (
            "reach-ed",
            &[
                "create",
                "clusterrolebinding",
                "x",
                "--clusterrole=cluster-admin",
                "--user=y",
                "--dry-run=server",
            ],
            false,
        ),
        (
            "reach-olga",
            &[
                "create",
                "clusterrolebinding",
                "x",
                "--clusterrole=cluster-admin",
                "--user=y",
                "--dry-run=server",
            ],
            true,
        ),
        ("reach-nobody", &["get", "pods"], false),
        ("reach-olga", &["get", "crd"], true),
    ];
    for project in ["reach-a", "reach-b"] {
        for (user, args, allowed) in rows {
            becomes(&world.person(user, &format!("/projects/{project}")), args, allowed);
        }
    }
    world.organization("unreached", &["unreached-a"]);
    becomes(&world.person("reach-olga", "/projects/unreached-a"), &["get", "pods"], false);
    // A certificate of the project is of the project alone: no name of it is a member's.
    let own = world.server().project("reach-a").with(&["--as=reach-olga"]);
    contains_all(&own.fails(&["get", "secrets"]), &["Forbidden"]);
}

fn a_binding_reaches_what_its_target_says(world: &World) {
    world.organization("targets", &["targets-a", "targets-b"]);
    let role = "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: Role,
        metadata: {name: deployer, namespace: organization-targets},
        spec: {includedPermissions: [apps/deployments.create, core/pods/log.get],
               inheritedRoles: [{name: viewer, namespace: freehold-system}]}}\n";
    let maps = "{kind: Organization, name: targets, resource: {resource: configmaps, namespace: shop}}";
    let everything = [
        role.to_owned(),
        ["dora", "max", "tina"].map(|guest| member("targets", guest, "")).concat(),
        binding("targets", ("dora", "deployer@organization-targets"), "{kind: Project, name: targets-a}"),
        binding("targets", ("max", "editor"), maps),
        "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: Group, metadata: {name: team, namespace: organization-targets}, spec: {}}\n".into(),
        "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: GroupMembership, metadata: {name: tina, namespace: organization-targets},
          spec: {groupRef: {name: team}, userRef: {name: tina}}}\n".into(),
        "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding, metadata: {name: team, namespace: organization-targets},
          spec: {roleRef: {name: viewer, namespace: freehold-system}, subjects: [{kind: Group, name: team}], target: {kind: Organization, name: targets}}}\n".into(),
    ];
    world.admin().apply(&everything.concat());
    world.admin().ok(&[
        "wait",
        "--for=condition=Ready",
        "policybinding",
        "--all",
        "--namespace=organization-targets",
        "--timeout=120s",
    ]);
    let (a, b) = ("/projects/targets-a", "/projects/targets-b");
    let make = ["create", "deployment", "d", "--image=x", "--dry-run=server"];
    let rows: [(&str, &str, &[&str], bool); 9] = [
        ("dora", a, &make, true),
        ("dora", a, &["get", "pods"], true),
        ("dora", a, &["delete", "deployment", "none", "--ignore-not-found"], false),
        ("dora", b, &make, false),
        ("max", b, &["get", "configmaps", "--namespace=shop"], true),
        ("max", b, &["get", "configmaps"], false),
        ("max", b, &["get", "secrets", "--namespace=shop"], false),
        ("tina", b, &["get", "pods"], true),
        ("tina", b, &make, false),
    ];
    for (user, path, args, allowed) in rows {
        becomes(&world.person(user, path), args, allowed);
    }
    world.admin().ok(&["delete", "groupmembership", "tina", "--namespace=organization-targets"]);
    becomes(&world.person("tina", b), &["get", "pods"], false);
}

fn nobody_gives_more_than_they_hold(world: &World) {
    world.organization("giving", &["giving-a"]);
    let target = "{kind: Organization, name: giving}";
    let given = [
        member("giving", "giver-ann", "owner"),
        member("giving", "mia", ""),
        binding("giving", ("mia", "people-manager"), target),
    ];
    world.admin().apply(&given.concat());
    let mia = world.person("mia", "/organizations/giving");
    becomes(&mia, &["get", "organizationmemberships", "--namespace=organization-giving"], true);
    for (given, missing) in [
        (member("giving", "friend", "owner"), "what they do not hold"),
        (member("giving", "mia", "owner"), "what they do not hold"),
    ] {
        let refused = mia.run_with_input(&["apply", "-f", "-"], &given).expect_failure();
        contains_all(&refused, &["Forbidden", missing]);
    }
    let refused = mia.run_with_input(&["apply", "-f", "-"], &binding("giving", ("mia", "owner"), target));
    contains_all(&refused.expect_failure(), &["Forbidden"]);
    let ann = world.person("giver-ann", "/organizations/giving");
    ann.apply(&binding("giving", ("friend", "viewer"), target));
    ann.apply(&binding("giving", ("friend", "owner"), target));
    // What was given to somebody counts with the membership: who makes that gives it.
    let friend = world.person("friend", "/projects/giving-a");
    becomes(&friend, &["get", "pods"], false);
    let refused = mia.run_with_input(&["apply", "-f", "-"], &member("giving", "friend", ""));
    contains_all(&refused.expect_failure(), &["Forbidden", "what they do not hold"]);
    ann.apply(&member("giving", "friend", ""));
    becomes(&friend, &["get", "pods"], true);
}

fn an_organization_s_objects_do_not_reach_beyond_it(world: &World) {
    world.organization("inside", &["inside-a"]);
    world.organization("outside", &["outside-a"]);
    world.admin().apply(&member("inside", "ivan", "owner"));
    let ivan = world.person("ivan", "/organizations/inside");
    becomes(&ivan, &["get", "projects"], true);
    for target in
        ["{kind: Platform}", "{kind: Organization, name: outside}", "{kind: Project, name: outside-a}"]
    {
        // Whoever may write it: it counts for nothing.
        world.admin().apply(&binding("inside", ("ivan", "owner"), target));
        for path in ["/projects/outside-a", "/organizations/outside"] {
            becomes(&world.person("ivan", path), &["get", "configmaps", "-A"], false);
        }
        becomes(&world.person("ivan", ""), &["get", "projects"], false);
        world.admin().ok(&["delete", "policybinding", "ivan-owner", "--namespace=organization-inside"]);
    }
    let http = http(world, &ivan, "/organizations/inside");
    let foreign = json!({
        "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": "stolen"},
        "spec": {"ownerRef": {"kind": "Organization", "name": "outside"}},
    });
    let path = "/apis/resourcemanager.freehold.dev/v1alpha1/projects";
    assert_eq!(http.json(Method::POST, path, &foreign).code, 403);
    for name in ["outside-a", "none"] {
        assert!(matches!(http.get(&format!("{path}/{name}")).code, 403 | 404), "{name}");
    }
}

fn reviews_take_the_platform_s_roles_into_account(world: &World) {
    world.organization("reviews", &["reviews-a"]);
    world.admin().apply(&member("reviews", "rita", "viewer"));
    let rita = world.person("rita", "/projects/reviews-a");
    until("rita may read", PATIENCE, || rita.run(&["auth", "can-i", "list", "pods"]).success.then_some(()));
    assert!(rita.run(&["auth", "can-i", "create", "pods"]).stdout.contains("no"));
    contains_all(&rita.ok(&["auth", "can-i", "--list"]), &["*.*", "[get list watch]"]);
    let asks = http(world, &rita, "/projects/reviews-a");
    let rules = asks.json(
        Method::POST,
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}}),
    );
    assert_eq!(rules.body["status"]["incomplete"], true, "what is excluded can't be said in rules");
    let review = |user: &str, verb: &str| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": {"verb": verb, "resource": "pods"}},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        http(world, &world.admin(), "/projects/reviews-a").json(Method::POST, path, &review).body["status"]
            .clone()
    };
    assert_eq!(review("rita", "get")["allowed"], true);
    contains_all(text(&review("rita", "get"), "/reason"), &["OrganizationMembership", "rita", "viewer"]);
    assert_eq!(review("rita", "delete")["allowed"], false);
    assert_eq!(review("nobody", "get")["allowed"], false);
}

fn can_i_says_which_binding_allows_or_what_is_missing(world: &World) {
    world.organization("explained", &["explained-a"]);
    world.admin().apply(&member("explained", "xena", "viewer"));
    let ask = |args: &[&str]| {
        let fixed = ["can-i", "--explain", "--as=xena", "--project=explained-a"];
        world.server().freehold(&[&fixed[..], args].concat())
    };
    until("the membership counts", PATIENCE, || ask(&["get", "pods"]).success.then_some(()));
    let yes = ask(&["get", "pods"]).expect_ok();
    contains_all(
        &yes,
        &["yes", "OrganizationMembership \"organization-explained/xena\"", "Role \"freehold-system/viewer\""],
    );
    let no = ask(&["get", "secrets"]);
    assert!(!no.success && no.stdout.starts_with("no\n"), "{no}");
    contains_all(&no.stdout, &["nothing allows core/secrets.get", "the role excludes core/secrets.get"]);
    contains_all(&ask(&["create", "deployments.apps"]).stdout, &["does not include apps/deployments.create"]);
    let other = world.server().freehold(&[
        "can-i",
        "--explain",
        "--as=stranger",
        "--project=explained-a",
        "get",
        "pods",
    ]);
    contains_all(&other.stdout, &["no\n", "nothing allows core/pods.get to User \"stranger\""]);
    assert!(!other.stdout.contains("OrganizationMembership"), "{other}");
}

/// Starts a watch of a project's ConfigMaps that has begun. `kubectl get --raw` wants the whole path.
pub(crate) fn watch(kubectl: &Kubectl, project: &str) -> Background {
    let path = format!("/projects/{project}/api/v1/configmaps?watch=true");
    let watch = kubectl.background(&["get", "--raw", &path]);
    watch.wait_for("kube-root-ca.crt");
    watch
}

/// Asks as who a `kubectl` is, below a path of the server.
pub(crate) fn http(world: &World, kubectl: &Kubectl, path: &str) -> Http {
    Http::of_elsewhere(kubectl, &format!("{}{path}", world.server().url()))
}

fn a_watch_ends_when_what_allowed_it_goes(world: &World) {
    world.organization("closing", &["ending-a"]);
    let admin = world.admin();
    let target = "{kind: Project, name: ending-a}";
    let users = ["end-member", "end-bound", "end-locked", "end-rbac"];
    let given = [
        member("closing", "end-member", "viewer"),
        member("closing", "end-bound", ""),
        binding("closing", ("end-bound", "viewer"), target),
        member("closing", "end-locked", "viewer"),
        member("closing", "end-rbac", ""),
    ];
    admin.apply(&given.concat());
    let project = world.at("/projects/ending-a");
    project.ok(&["create", "clusterrolebinding", "end", "--clusterrole=view", "--user=end-rbac"]);
    let people = users.map(|user| world.person(user, "/projects/ending-a"));
    people.iter().for_each(|person| becomes(person, &["get", "configmaps"], true));
    let mut watches = people.each_ref().map(|person| watch(person, "ending-a"));
    admin.ok(&["delete", "organizationmembership", "end-member", "--namespace=organization-closing"]);
    admin.ok(&["delete", "policybinding", "end-bound-viewer", "--namespace=organization-closing"]);
    admin.apply(
        "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: UserDeactivation, metadata: {name: end-locked},
          spec: {userRef: {name: end-locked}, reason: left}}",
    );
    project.ok(&["delete", "clusterrolebinding", "end"]);
    watches.iter_mut().for_each(Background::wait_for_end);
    people.iter().for_each(|person| becomes(person, &["get", "configmaps"], false));
    // A deactivated user is nobody, wherever they ask.
    for path in ["", "/organizations/closing", "/users/end-locked"] {
        becomes(&world.person("end-locked", path), &["get", "projects"], false);
    }
    admin.ok(&["delete", "userdeactivation", "end-locked"]);
    becomes(&people[2], &["get", "configmaps"], true);
}

fn a_suspended_project_answers_nobody(world: &World) {
    world.organization("resting", &["resting-a", "resting-b"]);
    world.admin().apply(&member("resting", "rob", "owner"));
    let own = world.server().project("resting-a");
    let rob = world.person("rob", "/projects/resting-a");
    becomes(&rob, &["get", "configmaps"], true);
    let mut watches = [&own, &rob].map(|kubectl| watch(kubectl, "resting-a"));
    let suspend = |kind: &str, name: &str, to: &str| {
        let patch = format!("{{\"spec\":{{\"suspension\":{to}}}}}");
        world.admin().ok(&["patch", kind, name, "--type=merge", "--patch", &patch]);
    };
    suspend("project", "resting-a", "{\"reason\":\"unpaid\"}");
    watches.iter_mut().for_each(Background::wait_for_end);
    for kubectl in [&own, &rob] {
        becomes(kubectl, &["get", "configmaps"], false);
        contains_all(&kubectl.fails(&["get", "configmaps"]), &["resting-a", "suspended: unpaid"]);
    }
    let view = world.person("rob", "/organizations/resting");
    let of_project = "resourcemanager.freehold.dev/project";
    let shown = view.ok(&["get", "configmaps", "-A", "-o", "json"]);
    assert!(shown.contains(&format!("\"{of_project}\": \"resting-b\"")), "{shown}");
    assert!(!shown.contains("resting-a"), "{shown}");
    world.at("/projects/resting-a").ok(&["get", "configmaps"]);
    suspend("project", "resting-a", "null");
    becomes(&own, &["get", "configmaps"], true);
    suspend("organization", "resting", "{\"reason\":\"closed\",\"liftedBy\":\"Platform\"}");
    becomes(&rob, &["get", "configmaps"], false);
    view.ok(&["get", "projects"]);
    contains_all(&view.fails(&["label", "project", "resting-a", "a=b"]), &["suspended: closed"]);
    contains_all(&view.fails(&["get", "configmaps", "-A"]), &["suspended: closed"]);
    suspend("organization", "resting", "null");
    becomes(&rob, &["get", "configmaps"], true);
}

fn who_may_lift_a_suspension_is_asked(world: &World) {
    world.organization("lifting", &["lifting-a"]);
    let people = [("lift-olga", "owner"), ("lift-ed", "editor")];
    world.admin().apply(&people.map(|(user, role)| member("lifting", user, role)).concat());
    let patch = |kubectl: &Kubectl, to: &str| {
        let patch = format!("{{\"spec\":{{\"suspension\":{to}}}}}");
        kubectl.run(&["patch", "project", "lifting-a", "--type=merge", "--patch", &patch])
    };
    let [olga, ed] = people.map(|(user, _)| world.person(user, "/organizations/lifting"));
    becomes(&ed, &["get", "projects"], true);
    let (own, platforms) = ("{\"reason\":\"r\"}", "{\"reason\":\"r\",\"liftedBy\":\"Platform\"}");
    contains_all(&patch(&ed, own).expect_failure(), &["may not set or lift"]);
    patch(&olga, own).expect_ok();
    contains_all(&patch(&ed, "null").expect_failure(), &["may not set or lift"]);
    patch(&olga, "null").expect_ok();
    contains_all(&patch(&olga, platforms).expect_failure(), &["may not set or lift"]);
    patch(&world.admin(), platforms).expect_ok();
    contains_all(&patch(&olga, "null").expect_failure(), &["may not set or lift"]);
    patch(&world.admin(), "null").expect_ok();
}

fn each_verb_in_an_organization_s_view_keeps_to_it(world: &World) {
    world.organization("verbs-own", &["verbs-own-a"]);
    world.organization("verbs-other", &["verbs-other-a"]);
    world
        .admin()
        .apply(&[member("verbs-own", "vic", "owner"), member("verbs-other", "oth", "owner")].concat());
    let other = "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: Group, metadata: {name: theirs, namespace: organization-verbs-other}, spec: {}}";
    world.admin().apply(other);
    let vic = world.person("vic", "/organizations/verbs-own");
    becomes(&vic, &["get", "projects"], true);
    let http = http(world, &vic, "/organizations/verbs-own");
    let (rm, iam) = ("/apis/resourcemanager.freehold.dev/v1alpha1", "/apis/iam.freehold.dev/v1alpha1");
    // Lists and deletions of all: what is another's is not there.
    for path in [
        format!("{rm}/projects"),
        format!("{rm}/organizations"),
        format!("{iam}/groups"),
        format!("{rm}/organizationmemberships"),
    ] {
        let listed = http.get(&path);
        assert_eq!(listed.code, 200, "{path} {}", listed.body);
        assert!(!listed.body.to_string().contains("verbs-other"), "{path} {}", listed.body);
        assert!(names(&listed.body).iter().all(|name| !name.contains("other")), "{path}");
    }
    assert_eq!(names(&http.get(&format!("{rm}/projects")).body), ["verbs-own-a"]);
    let all = http.send(Method::DELETE, &format!("{iam}/namespaces/organization-verbs-other/groups"), "", "");
    assert!(matches!(all.code, 403 | 404), "{}", all.body);
    let everywhere = http.send(Method::DELETE, &format!("{rm}/projects?labelSelector=none%3Dnone"), "", "");
    assert_eq!(everywhere.code, 200, "{}", everywhere.body);
    assert_eq!(
        items(&world.admin().json(&["get", "groups.iam.freehold.dev", "-n", "organization-verbs-other"]))
            .count(),
        1
    );
    // Single objects of others, whatever the verb.
    for (method, path) in [
        (Method::GET, format!("{rm}/projects/verbs-other-a")),
        (Method::PATCH, format!("{rm}/projects/verbs-other-a")),
        (Method::DELETE, format!("{rm}/projects/verbs-other-a")),
        (Method::GET, format!("{rm}/organizations/verbs-other")),
        (Method::GET, format!("{iam}/namespaces/organization-verbs-other/groups/theirs")),
        (Method::DELETE, format!("{iam}/namespaces/organization-verbs-other/groups/theirs")),
        (Method::GET, "/api/v1/namespaces/organization-verbs-other/secrets".to_owned()),
    ] {
        let is_patch = method == Method::PATCH;
        let media_type = if is_patch { "application/merge-patch+json" } else { "application/json" };
        let answer = http.send(method.clone(), &path, media_type, "{}");
        assert!(matches!(answer.code, 403 | 404), "{method} {path} {} {}", answer.code, answer.body);
    }
    // A watch is of its own too.
    let watch =
        vic.background(&["get", "--raw", &format!("/organizations/verbs-own{rm}/projects?watch=true")]);
    watch.wait_for("verbs-own-a");
    world.admin().ok(&["label", "project", "verbs-other-a", "seen=no"]);
    world.admin().ok(&["label", "project", "verbs-own-a", "seen=yes"]);
    watch.wait_for("\"seen\":\"yes\"");
    assert!(!watch.printed().contains("verbs-other"), "{}", watch.printed());
    // The user's own view has what is theirs.
    let mine = world.person("vic", "/users/vic");
    assert_eq!(names(&mine.json(&["get", "organizations"])), ["verbs-own"]);
    assert_eq!(names(&mine.json(&["get", "projects"])), ["verbs-own-a"]);
    contains_all(&mine.fails(&["get", "project", "verbs-other-a"]), &["NotFound"]);
    becomes(&world.person("vic", "/users/oth"), &["get", "organizations"], false);
}

fn what_was_given_at_an_organization_or_project_goes_with_it(world: &World) {
    let admin = world.admin();
    world.organization("again", &["again-a", "again-b"]);
    let platforms = |name: &str, kind: &str, target: &str| {
        format!(
            "---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding, metadata: {{name: {name}, namespace: freehold-system}},
              spec: {{roleRef: {{name: viewer}}, subjects: [{{kind: User, name: {name}}}], target: {{kind: {kind}, name: {target}}}}}}}\n"
        )
    };
    admin.apply(
        &[
            platforms("again-paula", "Project", "again-a"),
            platforms("again-otto", "Organization", "again"),
            member("again", "again-ben", ""),
            binding("again", ("again-ben", "viewer"), "{kind: Project, name: again-a}"),
            platforms("again-stays", "Project", "again-b"),
        ]
        .concat(),
    );
    let get = ["get", "configmaps"];
    for user in ["again-paula", "again-otto", "again-ben"] {
        becomes(&world.person(user, "/projects/again-a"), &get, true);
    }
    admin.ok(&["delete", "project", "again-a"]);
    world.organization("again", &["again-a", "again-b"]);
    becomes(&world.person("again-otto", "/projects/again-a"), &get, true);
    for user in ["again-paula", "again-ben"] {
        becomes(&world.person(user, "/projects/again-a"), &get, false);
    }
    becomes(&world.person("again-stays", "/projects/again-b"), &get, true);
    admin.ok(&["delete", "project", "again-a", "again-b"]);
    admin.ok(&["delete", "organization", "again"]);
    world.organization("again", &["again-a"]);
    becomes(&world.person("again-otto", "/projects/again-a"), &get, false);
    let left = admin.json(&["get", "policybindings", "-A"]);
    assert!(!left.to_string().contains("again-"), "{:?}", names(&left));
}
