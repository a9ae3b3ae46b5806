//! People of an organization: its last owner, invitations, and programs with keys.

use crate::access::member;
use crate::{PATIENCE, contains_all, items, names, text};
use freehold_tests_integration::{Http, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    the_last_owner_stays_also_when_two_leave_at_once,
    an_invitation_is_accepted_once_by_who_is_invited,
    an_invitation_is_for_an_address_and_ends,
    a_service_account_is_known_by_its_keys,
);

const MEMBERSHIPS: &str = "/apis/resourcemanager.freehold.dev/v1alpha1/namespaces/organization-";

fn owners(world: &World, organization: &str) -> usize {
    let namespace = format!("--namespace=organization-{organization}");
    let list = world.admin().json(&["get", "organizationmemberships", &namespace]);
    items(&list)
        .filter(|m| m["spec"]["roles"][0] == "owner" && m["metadata"]["deletionTimestamp"].is_null())
        .count()
}

fn the_last_owner_stays_also_when_two_leave_at_once(world: &World) {
    world.organization("last", &[]);
    let admin = world.admin();
    for round in 0..5 {
        admin.apply(&[member("last", "last-a", "owner"), member("last", "last-b", "owner")].concat());
        let leave = |user: &str| {
            let answer = Http::of(&admin).send(
                Method::DELETE,
                &format!("{MEMBERSHIPS}last/organizationmemberships/{user}"),
                "",
                "",
            );
            assert!(matches!(answer.code, 200 | 403), "round {round}: {}", answer.body);
            answer.code
        };
        let codes = std::thread::scope(|scope| {
            let both = ["last-a", "last-b"].map(|user| scope.spawn(move || leave(user)));
            both.map(|one| one.join().expect("a request is answered"))
        });
        assert_eq!(codes.iter().filter(|code| **code == 200).count(), 1, "round {round}: {codes:?}");
        assert_eq!(owners(world, "last"), 1, "round {round}");
    }
    let last = names(&admin.json(&["get", "organizationmemberships", "--namespace=organization-last"]))[0]
        .to_owned();
    let demoted = admin.run(&[
        "patch",
        "organizationmembership",
        &last,
        "--namespace=organization-last",
        "--type=merge",
        "--patch={\"spec\":{\"roles\":[\"viewer\"]}}",
    ]);
    contains_all(&demoted.expect_failure(), &["last owner"]);
    let alone = world.person(&last, &format!("/users/{last}"));
    contains_all(
        &alone.fails(&["delete", "organizationmembership", &last, "--namespace=organization-last"]),
        &["last owner"],
    );
    // With the organization they go.
    admin.ok(&["delete", "organization", "last", "--timeout=120s"]);
}

fn invitation(organization: &str, name: &str, who: &str, expires: &str) -> String {
    format!(
        "---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: UserInvitation,
          metadata: {{name: {name}, namespace: organization-{organization}}},
          spec: {{organizationRef: {{name: {organization}}}, {who}, roles: [editor], expirationDate: \"{expires}\"}}}}\n"
    )
}

fn answer(
    world: &World,
    user: &str,
    organization: &str,
    name: &str,
    state: &str,
) -> freehold_tests_integration::Output {
    let namespace = format!("--namespace=organization-{organization}");
    let patch = format!("{{\"spec\":{{\"state\":\"{state}\"}}}}");
    let mine = world.person(user, &format!("/users/{user}"));
    mine.run(&["patch", "userinvitation", name, &namespace, "--type=merge", "--patch", &patch])
}

fn an_invitation_is_accepted_once_by_who_is_invited(world: &World) {
    world.organization("inviting", &["inviting-a"]);
    world.admin().apply(&member("inviting", "host", "owner"));
    let host = world.person("host", "/organizations/inviting");
    until("the owner is one", PATIENCE, || host.run(&["get", "projects"]).success.then_some(()));
    let later = "2090-01-01T00:00:00Z";
    let given = [("guest-in", "guest"), ("guest-out", "shy")];
    host.apply(
        &given
            .map(|(name, user)| invitation("inviting", name, &format!("userRef: {{name: {user}}}"), later))
            .concat(),
    );
    let mine = world.person("guest", "/users/guest");
    assert_eq!(names(&mine.json(&["get", "userinvitations", "-A"])), ["guest-in"]);
    // Who is not invited, or wants more than to answer, is refused.
    contains_all(&answer(world, "shy", "inviting", "guest-in", "Accepted").expect_failure(), &["NotFound"]);
    let own = "{\"spec\":{\"state\":\"Accepted\",\"roles\":[\"owner\"]}}";
    let greedy = mine.run(&[
        "patch",
        "userinvitation",
        "guest-in",
        "-n",
        "organization-inviting",
        "--type=merge",
        "-p",
        own,
    ]);
    contains_all(&greedy.expect_failure(), &["Forbidden"]);
    let by_owner = "{\"spec\":{\"state\":\"Accepted\"}}";
    let forced = host.run(&[
        "patch",
        "userinvitation",
        "guest-in",
        "-n",
        "organization-inviting",
        "--type=merge",
        "-p",
        by_owner,
    ]);
    contains_all(&forced.expect_failure(), &["only who is invited"]);
    answer(world, "guest", "inviting", "guest-in", "Accepted").expect_ok();
    let pods = world.person("guest", "/projects/inviting-a");
    until("the guest is an editor", PATIENCE, || {
        pods.run(&["create", "configmap", "x", "--dry-run=server"]).success.then_some(())
    });
    for state in ["Declined", "Pending"] {
        assert!(!answer(world, "guest", "inviting", "guest-in", state).success, "it is answered once");
    }
    // Who leaves does not come back by the same invitation.
    mine.ok(&["delete", "organizationmembership", "guest", "--namespace=organization-inviting"]);
    assert!(!answer(world, "guest", "inviting", "guest-in", "Pending").success);
    answer(world, "shy", "inviting", "guest-out", "Declined").expect_ok();
    contains_all(
        &answer(world, "shy", "inviting", "guest-out", "Accepted").expect_failure(),
        &["it has been answered"],
    );
    let left = host.json(&["get", "organizationmemberships", "-A"]);
    assert_eq!(names(&left), ["host"]);
}

fn an_invitation_is_for_an_address_and_ends(world: &World) {
    world.organization("mailing", &[]);
    let admin = world.admin();
    admin.apply(
        "---\n{apiVersion: iam.freehold.dev/v1alpha1, kind: User, metadata: {name: mail-user},
          spec: {email: mail@example.com, username: \"mail@idp\"}}",
    );
    let who = "email: mail@example.com";
    // What is over for long is taken away.
    let hour_ago = std::process::Command::new("date")
        .args(["-u", "-d", "-1 hour", "+%FT%TZ"])
        .output()
        .expect("the time");
    let hour_ago = String::from_utf8(hour_ago.stdout).expect("the time as text");
    admin.apply(&invitation("mailing", "late", who, hour_ago.trim()));
    admin.apply(&invitation("mailing", "mail", who, "2090-01-01T00:00:00Z"));
    let mine = world.person("mail@idp", "/users/mail@idp");
    let accept = |name: &str| {
        let patch = ["--type=merge", "-p", "{\"spec\":{\"state\":\"Accepted\"}}"];
        mine.run(&[&["patch", "userinvitation", name, "-n", "organization-mailing"][..], &patch].concat())
    };
    until("both are seen", PATIENCE, || {
        (names(&mine.json(&["get", "userinvitations", "-A"])) == ["late", "mail"]).then_some(())
    });
    contains_all(&accept("late").expect_failure(), &["expired"]);
    accept("mail").expect_ok();
    let members = admin.json(&["get", "organizationmemberships", "--namespace=organization-mailing"]);
    let users: Vec<&str> = items(&members).map(|m| text(m, "/spec/userRef/name")).collect();
    assert_eq!(users, ["mail@idp"]);
    let expired = "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=Expired";
    admin.ok(&["wait", expired, "userinvitation/late", "-n", "organization-mailing", "--timeout=120s"]);
}

fn a_service_account_is_known_by_its_keys(world: &World) {
    world.organization("programs", &["programs-a"]);
    let admin = world.admin();
    let namespace = "organization-programs";
    admin.apply(&format!(
        "---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: ServiceAccount, metadata: {{name: ci, namespace: {namespace}}}, spec: {{}}}}
---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding, metadata: {{name: ci, namespace: {namespace}}},
  spec: {{roleRef: {{name: editor, namespace: freehold-system}}, subjects: [{{kind: ServiceAccount, name: ci}}],
         target: {{kind: Project, name: programs-a}}}}}}\n"
    ));
    let keys = format!("/apis/iam.freehold.dev/v1alpha1/namespaces/{namespace}/serviceaccountkeys");
    let make = |name: &str| -> Value {
        let key = json!({
            "apiVersion": "iam.freehold.dev/v1alpha1", "kind": "ServiceAccountKey", "metadata": {"name": name},
            "spec": {"serviceAccountRef": {"name": "ci"}, "tokenHash": "of a client"},
        });
        let made = Http::of(&admin).json(Method::POST, &keys, &key);
        assert_eq!(made.code, 201, "{}", made.body);
        made.body
    };
    let (one, two) = (make("one"), make("two"));
    let token = text(&one, "/status/token").to_owned();
    assert!(token.starts_with("fhsa_"), "{one}");
    let kept = admin.json(&["get", "serviceaccountkey", "one", "-n", namespace]);
    assert!(!kept.to_string().contains(&token) && text(&kept, "/status/token").is_empty(), "{kept}");
    let url = |path: &str| format!("{}{path}", world.server().url());
    let ask = |token: &str, path: &str| {
        Http::with_token(&admin, &url(path), token).get("/api/v1/namespaces/default/configmaps").code
    };
    until("the key counts", PATIENCE, || (ask(&token, "/projects/programs-a") == 200).then_some(()));
    let whoami = Http::with_token(&admin, &url("/projects/programs-a"), &token).json(
        Method::POST,
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
    );
    assert_eq!(
        text(&whoami.body, "/status/userInfo/username"),
        "freehold:serviceaccount:organization-programs:ci"
    );
    world.organization("strangers", &["strangers-a"]);
    assert_eq!(ask(&token, "/projects/strangers-a"), 403);
    assert_eq!(ask(&format!("{token}x"), "/projects/programs-a"), 401);
    assert_eq!(ask("fhsa_x.y", "/projects/programs-a"), 401);
    // A key that goes takes its token along, and no other.
    let with_key =
        world.server().kubectl_with_token(&token).with(&["--server", &url("/projects/programs-a")]);
    let mut watch = with_key.background(&[
        "get",
        "--raw",
        "/projects/programs-a/api/v1/namespaces/default/configmaps?watch=true",
    ]);
    watch.wait_for("kube-root-ca.crt");
    admin.ok(&["delete", "serviceaccountkey", "one", "-n", namespace]);
    watch.wait_for_end();
    until("the key is gone", PATIENCE, || (ask(&token, "/projects/programs-a") == 401).then_some(()));
    let second = text(&two, "/status/token");
    assert_eq!(ask(second, "/projects/programs-a"), 200);
    admin.ok(&[
        "patch",
        "serviceaccounts.iam.freehold.dev",
        "ci",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        "{\"spec\":{\"disabled\":true}}",
    ]);
    until("the account is disabled", PATIENCE, || (ask(second, "/projects/programs-a") == 401).then_some(()));
}
