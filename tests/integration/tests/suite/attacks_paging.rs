//! Filtered lists page over what is shown: nothing that a list, a token, a watch or a refusal says depends on what is hidden.

use crate::access::{becomes, http, member};
use crate::{PATIENCE, names, storm::setting, text};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use freehold_tests_integration::{Answer, Http, Random, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    pages_of_a_user_and_of_an_organization_are_made_of_what_is_shown,
    continue_token_names_nothing_and_opens_for_its_user_and_list_alone,
    hidden_objects_leave_no_trace_in_what_a_user_or_an_owner_is_answered,
    pages_of_a_view_are_of_one_revision,
    whether_an_organization_exists_is_told_to_its_own_alone,
    new_membership_ends_a_watch_that_does_not_show_what_it_brings,
);

const RM: &str = "/apis/resourcemanager.freehold.dev/v1alpha1";
const IAM: &str = "/apis/iam.freehold.dev/v1alpha1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// The kinds of the core plane that views show some objects of, and others that they show none of.
const KINDS: [(&str, &str); 10] = [
    (RM, "projects"),
    (RM, "organizations"),
    (RM, "organizationmemberships"),
    (IAM, "userinvitations"),
    (IAM, "groupmemberships"),
    (IAM, "policybindings"),
    (IAM, "users"),
    (IAM, "userdeactivations"),
    (IAM, "roles"),
    (IAM, "serviceaccounts"),
];

fn project(name: &str, organization: &str) -> String {
    format!(
        "---\n{{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {{name: {name}}},
          spec: {{ownerRef: {{kind: Organization, name: {organization}}}}}}}\n"
    )
}

/// What an organization may have that tells of somebody: a member, an invitation, a group's member, a binding.
fn people(organization: &str, user: &str) -> String {
    let at = format!("metadata: {{name: {user}, namespace: organization-{organization}}}");
    let iam = "apiVersion: iam.freehold.dev/v1alpha1";
    let rest = [
        format!(
            "{{{iam}, kind: UserInvitation, {at}, spec: {{organizationRef: {{name: {organization}}},
              email: {user}@example.com, roles: [viewer], expirationDate: \"2090-01-01T00:00:00Z\"}}}}"
        ),
        format!("{{{iam}, kind: GroupMembership, {at}, spec: {{groupRef: {{name: team}}, userRef: {{name: {user}}}}}}}"),
        format!(
            "{{{iam}, kind: PolicyBinding, {at}, spec: {{roleRef: {{name: viewer, namespace: freehold-system}},
              subjects: [{{kind: User, name: {user}}}], target: {{kind: Organization, name: {organization}}}}}}}"
        ),
        format!("{{{iam}, kind: User, metadata: {{name: {user}}}, spec: {{email: {user}@example.com}}}}"),
    ];
    member(organization, user, "viewer") + &rest.map(|object| format!("---\n{object}\n")).concat()
}

/// Everything that a list has, page by page.
fn pages(http: &Http, path: &str, limit: usize) -> Vec<Answer> {
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let answer = http.get(&format!("{path}{separator}limit={limit}&continue={token}"));
        token = text(&answer.body, "/metadata/continue").to_owned();
        pages.push(answer);
        if token.is_empty() {
            return pages;
        }
        assert!(pages.len() < 100, "{path} never ends");
    }
}

fn pages_of_a_user_and_of_an_organization_are_made_of_what_is_shown(world: &World) {
    world.organization("page-own", &["page-m"]);
    world.organization("page-a", &[]);
    world.organization("page-z", &[]);
    let others = [("page-a", "page-b"), ("page-a", "page-k"), ("page-z", "page-n"), ("page-z", "page-x")];
    let others = others.map(|(organization, name)| project(name, organization)).concat();
    let nobodies = people("page-a", "page-other") + &people("page-z", "page-else");
    world.admin().apply(&(others + &nobodies + &member("page-own", "page-olga", "owner")));
    let olga = world.person("page-olga", "/organizations/page-own");
    becomes(&olga, &["get", "projects"], true);
    for place in ["/organizations/page-own", "/users/page-olga"] {
        let http = http(world, &olga, place);
        let rows = [("projects", "page-m"), ("organizations", "page-own")];
        for (resource, name) in rows.into_iter().chain([("organizationmemberships", "page-olga")]) {
            let pages = pages(&http, &format!("{RM}/{resource}"), 1);
            let shown: Vec<_> = pages.iter().map(|page| names(&page.body)).collect();
            assert_eq!(shown, [[name]], "{place} {resource}");
        }
    }
    // Who is a member of nothing gets one page of nothing.
    let nobody = world.person("page-nobody", "/users/page-nobody");
    let http = http(world, &nobody, "/users/page-nobody");
    for (api, resource) in KINDS {
        let answer = http.get(&format!("{api}/{resource}?limit=1"));
        assert_eq!((answer.code, names(&answer.body).len()), (200, 0), "{resource}: {}", answer.body);
        let meta = &answer.body["metadata"];
        assert!(
            meta["remainingItemCount"].is_null() && text(meta, "/continue").is_empty(),
            "{}",
            answer.body
        );
    }
}

fn continue_token_names_nothing_and_opens_for_its_user_and_list_alone(world: &World) {
    world.organization("token-a", &[]);
    let two = ["token-ann", "token-bob"].map(|user| member("token-a", user, "owner"));
    let maps = (1..=3).map(|nth| {
        format!(
            "---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: token-{nth}, namespace: organization-token-a}}}}\n"
        )
    });
    world.admin().apply(&two.into_iter().chain(maps).collect::<String>());
    let [ann, bob] = ["token-ann", "token-bob"].map(|user| world.person(user, ""));
    for one in [&ann, &bob] {
        becomes(one, &["get", "configmaps", "--namespace=organization-token-a"], true);
    }
    let path = "/api/v1/namespaces/organization-token-a/configmaps";
    let [plain, other, own] =
        [(&ann, ""), (&bob, ""), (&ann, "/organizations/token-a")].map(|(one, at)| http(world, one, at));
    let first = plain.get(&format!("{path}?limit=1"));
    let token = text(&first.body, "/metadata/continue");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).expect("base64");
    assert!(!String::from_utf8_lossy(&bytes).contains("token-"), "{token}");

    let refused = |answer: Answer, what: &str| {
        let said = text(&answer.body, "/message");
        let is_invalid = said.starts_with("invalid continue token: continue key is not valid");
        assert!(answer.code == 400 && is_invalid && !said.contains("token-1"), "{what}: {}", answer.body);
    };
    let ask = |http: &Http, rest: &str| http.get(&format!("{rest}continue={token}"));
    refused(ask(&other, &format!("{path}?limit=1&")), "another user");
    refused(ask(&own, &format!("{path}?limit=1&")), "another view");
    refused(ask(&plain, &format!("{path}?limit=1&labelSelector=a&")), "another label selector");
    refused(
        ask(&plain, &format!("{path}?limit=1&fieldSelector=metadata.name%3Da&")),
        "another field selector",
    );
    refused(ask(&plain, "/api/v1/namespaces/organization-token-a/secrets?limit=1&"), "another resource");
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let changed = BASE64_URL_SAFE_NO_PAD.encode(changed);
        refused(plain.get(&format!("{path}?limit=1&continue={changed}")), "a changed byte");
    }
    let rest = ask(&plain, &format!("{path}?limit=5&"));
    assert_eq!(rest.code, 200, "{}", rest.body);
    assert!(names(&rest.body).contains(&"token-3"), "{}", rest.body);
    // Over all planes and over an organization's projects too.
    let admin = Http::of(&world.admin());
    for place in ["/planes/-", ""] {
        let page = admin.get(&format!("{place}/api/v1/configmaps?limit=1"));
        let token = text(&page.body, "/metadata/continue");
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).expect("base64");
        assert!(!bytes.is_empty() && !String::from_utf8_lossy(&bytes).contains("core"), "{}", page.body);
    }
}

/// An answer without what is different at each time: the revision of a list and the bytes of its token.
fn normal(answer: &Answer) -> String {
    let mut body = answer.body.clone();
    if body.get("items").is_some() || body.get("rows").is_some() {
        body["metadata"]["resourceVersion"] = Value::Null;
        if !text(&body, "/metadata/continue").is_empty() {
            body["metadata"]["continue"] = "sealed".into();
        }
    }
    for field in ["items", "rows"] {
        for item in body.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            let meta = item.get("metadata").or_else(|| item.pointer("/object/metadata")).cloned();
            let meta = meta.unwrap_or_default();
            *item = json!([meta["namespace"], meta["name"], meta["uid"]]);
        }
    }
    format!("{} {body}", answer.code)
}

/// What a watch shows first: which objects.
fn first_events(http: &Http, path: &str) -> Vec<String> {
    let answer = http.get(&format!("{path}?watch=true&timeoutSeconds=1"));
    let printed = match &answer.body {
        Value::String(lines) => lines.clone(),
        one => one.to_string(),
    };
    let events = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.map(|event| format!("{} {}", event["type"], event["object"]["metadata"]["name"])).collect()
}

/// All that is asked, of what is there and of names that may be.
fn transcript(http: &Http, hidden: &[String]) -> Vec<String> {
    let mut said = Vec::new();
    for (api, resource) in KINDS {
        let path = format!("{api}/{resource}");
        for limit in [0, 1, 2] {
            let pages = pages(http, &path, limit);
            said.extend(pages.iter().map(|page| format!("{path} by {limit}: {}", normal(page))));
        }
        for accept in [TABLE, METADATA] {
            let answer = http.get_as(&format!("{path}?limit=1"), accept);
            said.push(format!("{path} as {accept}: {}", normal(&answer)));
        }
        for name in hidden {
            for query in [
                format!("{path}/{name}"),
                format!("{path}?fieldSelector=metadata.name%3D{name}"),
                format!("{path}?limit=1&labelSelector=of%3D{name}"),
                format!("{api}/namespaces/organization-{name}/{resource}?limit=1"),
            ] {
                said.push(format!("{query}: {}", normal(&http.get(&query))));
            }
            let delete = http.send(
                Method::DELETE,
                &format!("{path}?fieldSelector=metadata.name%3D{name}&dryRun=All"),
                "",
                "",
            );
            said.push(format!("{path} without {name}: {}", normal(&delete)));
        }
    }
    std::thread::scope(|scope| {
        let watches = KINDS.map(|(api, resource)| {
            scope.spawn(move || {
                format!("{resource} watched: {:?}", first_events(http, &format!("{api}/{resource}")))
            })
        });
        said.extend(watches.map(|watch| watch.join().expect("a watch is answered")));
    });
    said
}

fn hidden_objects_leave_no_trace_in_what_a_user_or_an_owner_is_answered(world: &World) {
    let (rounds, seed) = (setting("FREEHOLD_PAGING_ROUNDS", 1), setting("FREEHOLD_FAULT_SEED", 3));
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let name = |what: &str| format!("{what}-{round}-trace");
        let (user, owner) = (name("m-ann"), name("m-olga"));
        let own: Vec<String> = (0..=random.below(2)).map(|nth| format!("m{nth}-{round}-shown")).collect();
        for organization in &own {
            let projects: Vec<String> =
                (0..=random.below(2)).map(|nth| format!("{organization}-{nth}")).collect();
            let projects: Vec<&str> = projects.iter().map(String::as_str).collect();
            world.organization(organization, &projects);
            world.admin().apply(&(people(organization, &user) + &member(organization, &owner, "owner")));
        }
        let views = [(&user, format!("/users/{user}")), (&owner, format!("/organizations/{}", own[0]))];
        let views = views.map(|(user, at)| {
            let person = world.person(user, &at);
            becomes(&person, &["get", "projects"], true);
            http(world, &person, &at)
        });
        // Before, among and behind what is shown.
        let count = 1 + random.below(3);
        let begins = ["a", "m", "m0", "z"];
        let hidden: Vec<String> =
            (0..count).map(|nth| format!("{}x{nth}-{round}-hidden", begins[random.index(4)])).collect();
        // What controllers add to what is shown comes in its time.
        let before = until("nothing changes any more", PATIENCE, || {
            let one = views.each_ref().map(|http| transcript(http, &hidden));
            (one == views.each_ref().map(|http| transcript(http, &hidden))).then_some(one)
        });
        let begun = views.each_ref().map(|http| http.get(&format!("{RM}/organizationmemberships?limit=1")));
        for organization in &hidden {
            world.organization(organization, &[]);
            let mut all = people(organization, &format!("{organization}-member"));
            for nth in 0..random.below(3) {
                all += &project(&format!("{organization}{}", ["", "-a", "-b"][nth as usize]), organization);
            }
            world.admin().apply(&all);
        }
        let with = views.each_ref().map(|http| transcript(http, &hidden));
        assert_same(&before, &with, &format!("seed {seed}, round {round}"));
        // A list that was begun before goes on as if nothing had come.
        for (http, page) in views.iter().zip(&begun) {
            let token = text(&page.body, "/metadata/continue");
            if !token.is_empty() {
                let rest = http.get(&format!("{RM}/organizationmemberships?continue={token}"));
                assert_eq!(rest.code, 200, "{}", rest.body);
                assert!(!rest.body.to_string().contains("hidden"), "{}", rest.body);
            }
        }
        for organization in &hidden {
            let namespace = format!("--namespace=organization-{organization}");
            let kinds = "userinvitations,groupmemberships,policybindings,organizationmemberships";
            world.admin().ok(&["delete", kinds, "--all", &namespace]);
        }
        let without = views.each_ref().map(|http| transcript(http, &hidden));
        assert_same(&before, &without, &format!("seed {seed}, round {round}, after"));
    }
}

fn assert_same(before: &[Vec<String>; 2], after: &[Vec<String>; 2], what: &str) {
    for (before, after) in before.iter().zip(after) {
        for (before, after) in before.iter().zip(after) {
            assert_eq!(before, after, "{what}");
        }
        assert_eq!(before.len(), after.len(), "{what}");
    }
}

fn pages_of_a_view_are_of_one_revision(world: &World) {
    let organizations = ["one-rv-a", "one-rv-b", "one-rv-c"];
    for organization in organizations {
        world.organization(organization, &[]);
        world.admin().apply(&member(organization, "one-rv-ann", "viewer"));
    }
    let ann = world.person("one-rv-ann", "/users/one-rv-ann");
    let http = http(world, &ann, "/users/one-rv-ann");
    let path = format!("{RM}/organizationmemberships");
    let first = http.get(&format!("{path}?limit=1"));
    assert_eq!(names(&first.body), ["one-rv-ann"], "{}", first.body);
    let token = text(&first.body, "/metadata/continue").to_owned();
    // Of the two that follow one goes, and a further one comes.
    world.organization("one-rv-d", &[]);
    world.admin().apply(&member("one-rv-d", "one-rv-ann", "viewer"));
    let gone = ["delete", "organizationmembership", "one-rv-ann", "--namespace=organization-one-rv-c"];
    world.admin().ok(&gone);
    let rest = http.get(&format!("{path}?continue={token}"));
    let namespaces = |list: &Value| -> Vec<String> {
        crate::items(list).map(|item| text(item, "/metadata/namespace").to_owned()).collect()
    };
    assert_eq!(namespaces(&rest.body), ["organization-one-rv-b", "organization-one-rv-c"], "{}", rest.body);
    assert_eq!(rest.body["metadata"]["resourceVersion"], first.body["metadata"]["resourceVersion"]);
    let now = http.get(&path);
    let left = ["organization-one-rv-a", "organization-one-rv-b", "organization-one-rv-d"];
    assert_eq!(namespaces(&now.body), left, "{}", now.body);
}

fn whether_an_organization_exists_is_told_to_its_own_alone(world: &World) {
    world.organization("exist-1", &[]);
    world.organization("exist-2", &[]);
    let suspended = "{\"spec\":{\"suspension\":{\"reason\":\"a secret reason\",\"liftedBy\":\"Platform\"}}}";
    world.admin().ok(&["patch", "organization", "exist-2", "--type=merge", "-p", suspended]);
    world.admin().apply(&member("exist-1", "exist-olga", "owner"));
    let olga = world.person("exist-olga", "/organizations/exist-1");
    becomes(&olga, &["get", "projects"], true);
    let stranger = Http::of(&world.person("exist-nobody", ""));
    let anonymous = Http::with_token(&world.admin(), world.server().url(), "");
    let long = format!("{RM}/organizations/NAME/control-plane");
    let paths = [
        "",
        "/",
        "/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/api",
        "/apis",
        "/api/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/nothing",
        "/apis/nothing.example/v1/things",
        "/apis/audit.k8s.io/v1/events",
        "/api/v1/configmaps",
        "/api/v1/namespaces/organization-NAME/configmaps",
        "/api/v1/namespaces/organization-NAME/configmaps/a",
    ];
    let core =
        ["projects", "projects/x", "organizations", "organizations/NAME"].map(|rest| format!("{RM}/{rest}"));
    let below = paths.iter().map(|path| (*path).to_owned()).chain(core);
    for path in below {
        for prefix in ["/organizations/NAME", &long] {
            for (who, http) in [("stranger", &stranger), ("anonymous", &anonymous)] {
                let ask = |name: &str| {
                    let answer = http.get(&format!("{prefix}{path}").replace("NAME", name));
                    (answer.code, answer.body.to_string().replace(name, "NAME"))
                };
                let absent = ask("exist-0");
                assert_eq!(absent, ask("exist-1"), "{who} {prefix}{path}");
                assert_eq!(absent, ask("exist-2"), "{who} {prefix}{path} of a suspended one");
                assert!([401, 403].contains(&absent.0), "{who} {prefix}{path}: {absent:?}");
            }
        }
    }
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    for http in [&stranger, &anonymous] {
        let [absent, there] = ["exist-0", "exist-1"].map(|name| {
            let path = format!("/organizations/{name}/apis/authentication.k8s.io/v1/selfsubjectreviews");
            let answer = http.json(Method::POST, &path, &review);
            (answer.code, answer.body.to_string().replace(name, "NAME"))
        });
        assert_eq!(absent, there);
    }
    // Below a user's name anonymous requests are answered alike too, whoever there is.
    for path in paths {
        assert_eq!(anonymous.get(&format!("/users/exist-olga{path}")).code, 401, "{path}");
    }
    // Those who are let in are told.
    let admin = Http::of(&world.admin());
    assert_eq!(admin.get("/organizations/exist-0/version").code, 404);
    assert_eq!(admin.get(&format!("/organizations/exist-0{RM}/projects")).code, 404);
    assert_eq!(http(world, &olga, "/organizations/exist-1").get("/version").code, 200);
    assert_eq!(http(world, &olga, "/organizations/exist-1").get("/apis").code, 200);
}

fn new_membership_ends_a_watch_that_does_not_show_what_it_brings(world: &World) {
    world.organization("join-a", &["join-a-1"]);
    world.organization("join-b", &["join-b-1"]);
    world.admin().apply(&member("join-a", "join-ann", "viewer"));
    let ann = world.person("join-ann", "/users/join-ann");
    until("the membership counts", PATIENCE, || {
        (names(&ann.json(&["get", "projects"])) == ["join-a-1"]).then_some(())
    });
    let path = format!("/users/join-ann{RM}/projects");
    let http = http(world, &ann, "");
    let version = text(&http.get(&path).body, "/metadata/resourceVersion").to_owned();
    let watch = ann.background(&["get", "--raw", &format!("{path}?watch=true")]);
    watch.wait_for("join-a-1");
    // What happens to others ends nothing.
    world.admin().apply(&member("join-b", "join-bob", "viewer"));
    world.admin().ok(&["label", "project", "join-a-1", "seen=first"]);
    watch.wait_for("\"first\"");
    world.admin().apply(&member("join-b", "join-ann", "viewer"));
    watch.wait_for("memberships have changed");
    assert!(!watch.printed().contains("join-b-1"), "{}", watch.printed());
    // Nor does it go on behind the change, as if the project had always been there.
    let late = http.get(&format!("{path}?watch=true&timeoutSeconds=1&resourceVersion={version}"));
    assert!(late.code == 410 || late.body.to_string().contains("410"), "{} {}", late.code, late.body);
    assert_eq!(names(&ann.json(&["get", "projects"])), ["join-a-1", "join-b-1"]);
    // A watch of memberships says all by itself.
    let mine = format!("/users/join-ann{RM}/organizationmemberships?watch=true&timeoutSeconds=1");
    assert_eq!(http.get(&mine).code, 200);
}
