//! Webhooks that are asked what somebody may do, before and behind the server's own rules.

use crate::access::member;
use crate::{PATIENCE, contains_all, text};
use freehold_tests_integration::{Engine, HookServer, Http, Kubectl, Options, Reply, Server, facts, until};
use http::Method;
use serde_json::{Value, json};
use std::{fs, path::PathBuf};
use tempfile::TempDir;

facts!(engine:
    webhooks_deny_before_the_own_rules_and_allow_behind_them,
    a_webhook_that_fails_counts_as_its_policy_says_and_the_file_is_followed,
    webhooks_are_asked_about_dedicated_projects_too,
    webhooks_are_asked_where_the_server_asks_itself,
);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// What whoever is helped may do with roles and their bindings, and what the tests' policy asks.
const MAY_GRANT: [&str; 5] = ["escalate", "bind", "create", "update", "approve"];

/// A server that asks webhooks, and what belongs to it.
struct Asking {
    server: Server,
    hook: HookServer,
    folder: TempDir,
}

/// Whom a test's webhooks deny, at `/gate`, and allow, at `/late`.
fn opinion(path: &str, review: &Value) -> Reply {
    let user = text(review, "/spec/user");
    let maps = review["spec"]["resourceAttributes"]["resource"] == "configmaps";
    let verb = text(review, "/spec/resourceAttributes/verb");
    let status = match path {
        "/gate" if user.contains("barred") => json!({"denied": true, "reason": "barred at the gate"}),
        "/late" if user.contains("helped") && MAY_GRANT.contains(&verb) => {
            json!({"allowed": true, "reason": "may grant"})
        }
        "/late" if user.contains("helped") && maps => json!({"allowed": true, "reason": "helped in the end"}),
        "/broken" => return Reply::Text(404, "nothing here".to_owned()),
        _ => json!({"allowed": false}),
    };
    Reply::Json(
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status}),
    )
}

impl Asking {
    fn start(engine: Engine, authorizers: &[(&str, &str)]) -> Self {
        let hook = HookServer::start(opinion);
        let folder = TempDir::new().expect("a folder");
        for name in ["gate", "late", "broken"] {
            let path = folder.path().join(name);
            fs::write(path, hook.kubeconfig(&format!("/{name}"))).expect("a file can be written");
        }
        write(&folder, authorizers);
        let flag = format!("--authorization-config={}", folder.path().join("config").display());
        let server = Server::start(Options { engine, args: vec![flag], ..Options::default() });
        Self { server, hook, folder }
    }

    fn organization(&self, name: &str, mode: &str, members: &[(&str, &str)]) {
        let project = format!("{name}-web");
        let mut manifests = format!(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {{name: {name}}}\n---\n\
             apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {project}}}\n\
             spec: {{ownerRef: {{kind: Organization, name: {name}}}, controlPlane: {{mode: {mode}}}}}\n"
        );
        manifests.extend(members.iter().map(|(user, role)| member(name, user, role)));
        let admin = self.server.kubectl();
        admin.apply(&manifests);
        admin.ok(&["wait", "--for=condition=Ready", &format!("project/{project}"), "--timeout=120s"]);
    }

    /// Asks as a person, in a project.
    fn http(&self, user: &str, project: &str) -> Http {
        Http::of_elsewhere(&self.server.person(user), &format!("{}/projects/{project}", self.server.url()))
    }

    /// `kubectl` as a person, in a project.
    fn person(&self, user: &str, project: &str) -> Kubectl {
        let url = format!("{}/projects/{project}", self.server.url());
        self.server.person(user).with(&["--server", &url])
    }

    /// What the webhooks were asked about a user.
    fn asked_about(&self, user: &str) -> Vec<Value> {
        self.hook.seen().into_iter().filter(|review| review["spec"]["user"] == user).collect()
    }
}

/// Writes a configuration: webhooks by their kubeconfigs and what happens when they fail, and `RBAC`. Each webhook is asked
/// about resources alone, and about nobody whose name says so.
fn write(folder: &TempDir, authorizers: &[(&str, &str)]) -> PathBuf {
    let one = |(name, policy): &(&str, &str)| match *name {
        "rbac" => json!({"type": "RBAC", "name": "rbac"}),
        name => json!({"type": "Webhook", "name": name, "webhook": {
            "timeout": "30s", "subjectAccessReviewVersion": "v1", "failurePolicy": policy,
            "matchConditionSubjectAccessReviewVersion": "v1",
            "matchConditions": [
                {"expression": "has(request.resourceAttributes)"},
                {"expression": "!request.user.startsWith('unasked')"},
            ],
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": folder.path().join(name)},
        }}),
    };
    let all: Vec<Value> = authorizers.iter().map(one).collect();
    let text = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": all,
    });
    // Replaced as a whole, as a mounted ConfigMap is.
    let (fresh, path) = (folder.path().join("fresh"), folder.path().join("config"));
    fs::write(&fresh, text.to_string()).expect("a file can be written");
    fs::rename(&fresh, &path).expect("a file can be renamed");
    path
}

fn review(user: &str, verb: &str, resource: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:authenticated"],
                 "resourceAttributes": {"verb": verb, "resource": resource, "namespace": "default"}},
    })
}

fn webhooks_deny_before_the_own_rules_and_allow_behind_them(engine: Engine) {
    let asking = Asking::start(engine, &[("gate", "Deny"), ("rbac", ""), ("late", "NoOpinion")]);
    let members = [("barred-ed", "editor"), ("free-vera", "viewer"), ("unasked-vera", "viewer")];
    asking.organization("hooked", "Shared", &members);
    let get = |user: &str, path: &str| asking.http(user, "hooked-web").get(path);
    until("memberships count", PATIENCE, || {
        members[1..].iter().all(|(user, _)| get(user, MAPS).code == 200).then_some(())
    });
    let barred = get("barred-ed", MAPS);
    assert_eq!(barred.code, 403);
    contains_all(text(&barred.body, "/message"), &["barred-ed", "barred at the gate"]);
    // Nobody else knows of them. Each time with the same certificate, of which webhooks are told.
    let hal = asking.http("helped-hal", "hooked-web");
    for _ in 0..3 {
        assert_eq!(hal.get(MAPS).code, 200);
    }
    assert_eq!(get("helped-hal", "/api/v1/namespaces/default/pods").code, 403);
    // Answers count for a while: the gate and the late one were each asked once about ConfigMaps.
    let about = asking.asked_about("helped-hal");
    let maps = about.iter().filter(|review| review["spec"]["resourceAttributes"]["resource"] == "configmaps");
    assert_eq!(maps.count(), 2, "{about:?}");
    let told = &about[0]["spec"]["extra"];
    assert_eq!(told["resourcemanager.freehold.dev/project"], json!(["hooked-web"]));
    assert_eq!(told["resourcemanager.freehold.dev/organization"], json!(["hooked"]));
    assert!(told["freehold.dev/plane"][0].is_string(), "{told}");
    assert!(asking.asked_about("unasked-vera").is_empty());
    let masters = |review: &Value| review["spec"]["groups"].to_string().contains("system:masters");
    assert!(!asking.hook.seen().iter().any(masters), "masters may do everything");
    // Reviews are answered by the same.
    let admin = asking.http_of_admin("hooked-web");
    let status = |user: &str, resource: &str| {
        admin.json(Method::POST, REVIEWS, &review(user, "list", resource)).body["status"].clone()
    };
    assert_eq!(status("barred-ed", "pods")["denied"], true);
    assert_eq!(status("helped-hal", "configmaps")["allowed"], true);
    assert_eq!(status("helped-hal", "pods"), json!({"allowed": false}));
    let rules = asking.http("free-vera", "hooked-web").json(
        Method::POST,
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}}),
    );
    assert_eq!(rules.body["status"]["incomplete"], true, "{}", rules.body);
    a_watch_that_a_webhook_allows_goes_on(&asking);
}

fn a_watch_that_a_webhook_allows_goes_on(asking: &Asking) {
    let mut watch = asking.person("helped-hal", "hooked-web").background(&[
        "get",
        "--raw",
        &format!("/projects/hooked-web{MAPS}?watch=true"),
    ]);
    watch.wait_for("kube-root-ca.crt");
    let admin = asking.server.project("hooked-web");
    // What decides here changes, and the watch was not allowed by it.
    admin.ok(&["create", "clusterrolebinding", "other", "--clusterrole=view", "--user=other"]);
    asking.server.kubectl().apply(&member("hooked", "later", "viewer"));
    admin.ok(&["create", "configmap", "after-changes"]);
    watch.wait_for("after-changes");
    // Others are asked from now on.
    write(&asking.folder, &[("rbac", "")]);
    watch.wait_for_end();
}

impl Asking {
    fn http_of_admin(&self, project: &str) -> Http {
        let url = format!("{}/projects/{project}", self.server.url());
        Http::of_elsewhere(&self.server.kubectl(), &url)
    }
}

fn a_webhook_that_fails_counts_as_its_policy_says_and_the_file_is_followed(engine: Engine) {
    let asking = Asking::start(engine, &[("broken", "NoOpinion"), ("rbac", "")]);
    asking.organization("failing", "Shared", &[("fay", "viewer"), ("unasked-una", "viewer")]);
    let get = |user: &str, path: &str| asking.http(user, "failing-web").get(path).code;
    until("the membership counts", PATIENCE, || (get("fay", MAPS) == 200).then_some(()));
    // Nobody allows it, and somebody could not be asked.
    assert_eq!(get("fay", "/api/v1/namespaces/default/secrets"), 500);
    assert_eq!(get("unasked-una", "/api/v1/namespaces/default/secrets"), 403);
    let path = write(&asking.folder, &[("broken", "Deny"), ("rbac", "")]);
    until("the policy is to deny", PATIENCE, || (get("fay", MAPS) == 500).then_some(()));
    assert_eq!(get("unasked-una", MAPS), 200);
    let status =
        asking.http_of_admin("failing-web").json(Method::POST, REVIEWS, &review("fay", "get", "pods"));
    assert_eq!(status.body["status"]["allowed"], false);
    assert!(status.body["status"]["evaluationError"].is_string(), "{}", status.body);
    // What can't be read is not taken.
    fs::write(&path, "authorizers: none").expect("a file can be written");
    until("it is read", PATIENCE, || {
        asking.server.log().contains("authorization configuration can't be used").then_some(())
    });
    assert_eq!((get("fay", MAPS), get("unasked-una", MAPS)), (500, 200));
    write(&asking.folder, &[("rbac", ""), ("broken", "Deny")]);
    until("the own rules come first", PATIENCE, || (get("fay", MAPS) == 200).then_some(()));
}

fn webhooks_are_asked_about_dedicated_projects_too(engine: Engine) {
    let asking = Asking::start(engine, &[("gate", "Deny"), ("rbac", ""), ("late", "NoOpinion")]);
    let members =
        [("barred-ed", "editor"), ("free-olga", "owner"), ("free-vera", "viewer"), ("helped-hal", "")];
    asking.organization("apart", "Dedicated", &members);
    let run = |user: &str, args: &[&str]| asking.person(user, "apart-web").run(args);
    until("a membership counts in the pair", PATIENCE, || {
        run("free-vera", &["get", "configmaps"]).success.then_some(())
    });
    contains_all(
        &run("barred-ed", &["get", "configmaps"]).expect_failure(),
        &["Forbidden", "barred at the gate"],
    );
    run("helped-hal", &["get", "configmaps"]).expect_ok();
    contains_all(&run("helped-hal", &["get", "pods"]).expect_failure(), &["Forbidden"]);
    contains_all(&run("free-vera", &["create", "configmap", "no"]).expect_failure(), &["forbidden"]);
    // Who is barred is so too when somebody else wants to be them.
    let as_barred = ["get", "configmaps", "--as=barred-bob", "--as-group=system:masters"];
    run("free-olga", &["get", "configmaps"]).expect_ok();
    let plain = ["get", "configmaps", "--as=barred-bob"];
    contains_all(&run("free-olga", &plain).expect_failure(), &["barred at the gate"]);
    assert!(!run("free-vera", &as_barred).success);
}

fn webhooks_are_asked_where_the_server_asks_itself(engine: Engine) {
    let asking = Asking::start(engine, &[("gate", "Deny"), ("rbac", ""), ("late", "NoOpinion")]);
    asking.organization(
        "itself",
        "Shared",
        &[
            ("bound-bo", "owner"),
            ("barred-ed", "editor"),
            ("plain-pia", ""),
            ("plain-paul", ""),
            ("helped-hal", ""),
        ],
    );
    let admin = asking.server.project("itself-web");
    admin.ok(&["create", "clusterrolebinding", "roles", "--clusterrole=makes-roles", "--user=plain-pia"]);
    admin.ok(&[
        "create",
        "clusterrole",
        "makes-roles",
        "--verb=*",
        "--resource=roles.rbac.authorization.k8s.io",
    ]);
    let role = ["create", "role", "secrets", "--verb=get", "--resource=secrets", "-n", "default"];
    let pia = asking.person("plain-pia", "itself-web");
    // `*` has `escalate` in it.
    until("the binding counts", PATIENCE, || pia.run(&role).success.then_some(()));
    admin.ok(&["delete", "role", "secrets"]);
    let verbs = "--verb=create,get";
    admin.ok(&["delete", "clusterrole", "makes-roles"]);
    admin.ok(&["create", "clusterrole", "makes-roles", verbs, "--resource=roles.rbac.authorization.k8s.io"]);
    until("nobody says that she may grant", PATIENCE, || {
        let refused = pia.run(&role).stderr.contains("attempting to grant");
        admin.run(&["delete", "role", "secrets", "--ignore-not-found"]).expect_ok();
        refused.then_some(())
    });
    // A webhook says so of somebody who holds nothing.
    asking.person("helped-hal", "itself-web").ok(&role);
    let hal = asking.asked_about("helped-hal");
    let escalates = |review: &&Value| review["spec"]["resourceAttributes"]["verb"] == "escalate";
    let asked = hal.iter().find(escalates).unwrap_or_else(|| panic!("{hal:?}"));
    assert_eq!(asked["spec"]["extra"]["resourcemanager.freehold.dev/project"], json!(["itself-web"]));
    expressions_ask_webhooks(&asking);
    webhooks_are_told_selectors(&asking);
}

fn expressions_ask_webhooks(asking: &Asking) {
    let admin = asking.server.project("itself-web");
    admin.apply(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: approved}\nspec:\n\
         \x20 matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n\
         \x20 validations: [{expression: \"!object.metadata.name.startsWith('approved') || authorizer.group('').resource('configmaps').fieldSelector('metadata.name=a').check('approve').allowed()\"}]\n---\n\
         apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: approved}\n\
         spec: {policyName: approved, validationActions: [Deny]}\n",
    );
    admin.ok(&["create", "clusterrolebinding", "maps", "--clusterrole=edit", "--user=plain-paul"]);
    let create = ["create", "configmap", "approved-1"];
    let paul = asking.person("plain-paul", "itself-web");
    until("nobody says that he may approve", PATIENCE, || {
        let refused = paul.run(&create).stderr.contains("denied request");
        admin.run(&["delete", "configmap", "approved-1", "--ignore-not-found"]).expect_ok();
        refused.then_some(())
    });
    asking.person("helped-hal", "itself-web").ok(&create);
    let about = asking.asked_about("helped-hal");
    let approves = |review: &&Value| review["spec"]["resourceAttributes"]["verb"] == "approve";
    let asked = about.iter().find(approves).unwrap_or_else(|| panic!("{about:?}"));
    assert_eq!(
        asked["spec"]["resourceAttributes"]["fieldSelector"],
        json!({"requirements": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]})
    );
}

fn webhooks_are_told_selectors(asking: &Asking) {
    let hal = asking.http("helped-hal", "itself-web");
    assert_eq!(
        hal.get(&format!("{MAPS}?labelSelector=a+in+(b),c&fieldSelector=metadata.namespace!%3Dx")).code,
        200
    );
    let told = |about: &[Value]| {
        let with = |review: &&Value| !review["spec"]["resourceAttributes"]["labelSelector"].is_null();
        about.iter().rfind(with).map(|review| review["spec"]["resourceAttributes"].clone())
    };
    let asked = told(&asking.asked_about("helped-hal")).expect("it was told of the selector");
    assert_eq!(asked["fieldSelector"]["requirements"][0]["operator"], "NotIn");
    assert_eq!(asked["labelSelector"]["requirements"][1], json!({"key": "c", "operator": "Exists"}));
    // Reviews are about selectors too.
    let mut spec = review("helped-rita", "list", "configmaps");
    spec["spec"]["resourceAttributes"]["labelSelector"] = json!({"rawSelector": "d=e"});
    let admin = asking.http_of_admin("itself-web");
    assert_eq!(admin.json(Method::POST, REVIEWS, &spec).body["status"]["allowed"], true);
    let asked = told(&asking.asked_about("helped-rita")).expect("it was told of the selector");
    assert_eq!(asked["labelSelector"]["requirements"][0]["values"], json!(["e"]));
    spec["spec"]["resourceAttributes"]["labelSelector"] = json!({});
    let refused = admin.json(Method::POST, REVIEWS, &spec);
    contains_all(text(&refused.body, "/message"), &["requirements or rawSelector is required"]);
}
