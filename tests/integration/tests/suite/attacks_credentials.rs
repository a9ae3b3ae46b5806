//! Credentials of projects end: who has an old one gets nothing with it, and nobody plants one for others.

use crate::access::{becomes, http, member, watch};
use crate::{PATIENCE, Scratch, contains_all, text};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_client::{Client, Config, Identity, RawRequest};
use freehold_pki::{ClientName, Pair, PrivateKey};
use freehold_tests_integration::{Background, Http, Kubectl, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    an_editor_reaches_no_projects_kubeconfig,
    a_planted_kubeconfig_is_not_printed_and_is_made_anew,
    certificates_of_a_shared_project_end_with_their_generation,
    certificates_of_a_dedicated_project_end_with_their_generation,
    single_credentials_are_revoked_and_others_stay,
    a_persons_kubeconfig_for_a_project_has_their_own_identity,
);

const CREDENTIAL: &str = "/status/userInfo/extra/authentication.kubernetes.io~1credential-id/0";

fn organization(world: &World, name: &str, projects: &[&str]) -> [Kubectl; 2] {
    world.organization(name, projects);
    let people = ["olga", "ed"].map(|who| format!("{name}-{who}"));
    world.admin().apply(&(member(name, &people[0], "owner") + &member(name, &people[1], "editor")));
    let people = people.map(|user| world.person(&user, ""));
    let namespace = format!("--namespace=organization-{name}");
    people.iter().for_each(|person| becomes(person, &["get", "configmaps", &namespace], true));
    people
}

/// What is patched, as the type that each server takes.
fn patch(http: &Http, path: &str, patch: &Value) -> u16 {
    http.send(Method::PATCH, path, "application/merge-patch+json", patch.to_string()).code
}

fn an_editor_reaches_no_projects_kubeconfig(world: &World) {
    let [olga, ed] = organization(world, "creds-read", &["creds-read-a"]);
    let secrets = "/api/v1/namespaces/organization-creds-read/secrets";
    let one = format!("{secrets}/creds-read-a-kubeconfig");
    let asked = http(world, &ed, "");
    for view in ["", "/organizations/creds-read", "/users/creds-read-ed", "/planes/core", "/planes/-"] {
        for path in [
            one.clone(),
            secrets.to_owned(),
            format!("{secrets}?limit=1"),
            format!("{secrets}?fieldSelector=metadata.name%3Dcreds-read-a-kubeconfig"),
            format!("{secrets}?watch=true&timeoutSeconds=1"),
            format!("{one}?watch=true&timeoutSeconds=1"),
        ] {
            let answer = asked.get(&format!("{view}{path}"));
            assert!([401, 403, 404].contains(&answer.code), "{view}{path}: {} {}", answer.code, answer.body);
        }
        // Each of these would answer with the object.
        let one = format!("{view}{one}");
        assert!(patch(&asked, &one, &json!({"metadata": {"labels": {"a": "b"}}})) >= 401, "{one}");
        let object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "creds-read-a-kubeconfig"}});
        assert!(asked.json(Method::PUT, &one, &object).code >= 401, "{one}");
        assert!(asked.send(Method::DELETE, &one, "", "").code >= 401, "{one}");
        assert!(asked.send(Method::DELETE, &format!("{view}{secrets}"), "", "").code >= 401, "{view}");
    }
    for path in ["/api/v1/secrets", "/planes/-/api/v1/secrets", "/planes/infra/api/v1/secrets"] {
        assert!([401, 403].contains(&asked.get(path).code), "{path}");
    }
    let namespace = "--namespace=organization-creds-read";
    ed.ok(&["create", "secret", "generic", "mine", namespace]);
    ed.ok(&["get", "secret", "mine", namespace]);
    olga.ok(&["get", "secrets", namespace]);
    becomes(&world.person("creds-read-ed", "/projects/creds-read-a"), &["get", "secrets"], true);
    who_may_say_which_credentials_count(&olga, &ed);
}

fn who_may_say_which_credentials_count(olga: &Kubectl, ed: &Kubectl) {
    let raise = |generation: u32| {
        json!({"spec": {"controlPlane": {"credentials": {"generation": generation}}}}).to_string()
    };
    let patch = |who: &Kubectl, patch: &str| {
        who.run(&["patch", "project", "creds-read-a", "--type=merge", "--patch", patch])
    };
    contains_all(&patch(ed, &raise(1)).expect_failure(), &["may not change which credentials count"]);
    patch(ed, "{\"spec\":{\"displayName\":\"Ed's\"}}").expect_ok();
    patch(olga, &raise(2)).expect_ok();
    contains_all(&patch(olga, &raise(1)).expect_failure(), &["generation can only be raised"]);
    contains_all(
        &patch(olga, "{\"spec\":{\"controlPlane\":{\"credentials\":null}}}").expect_failure(),
        &["can not be removed"],
    );
}

fn a_planted_kubeconfig_is_not_printed_and_is_made_anew(world: &World) {
    let [olga, _] = organization(world, "creds-plant", &["creds-plant-a"]);
    let good = world.server().freehold(&["kubeconfig", "creds-plant-a"]).expect_ok();
    let planted =
        good.replace("    client-key-data:", "    exec: {command: sh, args: [-c, id]}\n    client-key-data:");
    assert_ne!(good, planted);
    let data = json!({"kubeconfig": BASE64_STANDARD.encode(&planted)});
    let path = "/api/v1/namespaces/organization-creds-plant/secrets/creds-plant-a-kubeconfig";
    let asked = http(world, &olga, "");
    for change in [
        json!({"data": data}),
        json!({"data": {"other": "eA=="}}),
        json!({"data": data, "metadata": {"labels": {"resourcemanager.freehold.dev/project": null}}}),
        json!({"data": data, "metadata": {"annotations": {"resourcemanager.freehold.dev/kubeconfig-seal": "00"}}}),
        json!({"data": data, "immutable": true, "metadata": {"finalizers": ["evil.example/hold"]}}),
    ] {
        assert_eq!(patch(&asked, path, &change), 200, "{change}");
        let printed = world.server().freehold(&["kubeconfig", "creds-plant-a"]);
        assert!(!printed.stdout.contains("exec"), "{printed}");
        until(&format!("it is made anew after {change}"), PATIENCE, || {
            let secret = asked.get(path).body;
            let only =
                secret["data"].as_object().is_some_and(|data| data.len() == 1) && secret["immutable"] != true;
            let made = BASE64_STANDARD.decode(text(&secret, "/data/kubeconfig")).ok()?;
            (only && !String::from_utf8_lossy(&made).contains("exec")).then_some(())
        });
        contains_all(
            &world.server().freehold(&["kubeconfig", "creds-plant-a"]).expect_ok(),
            &["client-key-data"],
        );
    }
}

/// The kubeconfig of a project as it is now, in a file that stays.
fn copy(world: &World, project: &str) -> Kubectl {
    let printed = until("a project has its kubeconfig", PATIENCE, || {
        let printed = world.server().freehold(&["kubeconfig", project]);
        printed.success.then_some(printed.stdout)
    });
    let file = Scratch::new(world, &format!("{project}-copy.kubeconfig"), &printed);
    world.server().kubectl_with(file.path())
}

/// The certificate of somebody who asked for it in a project.
fn signed(project: &Kubectl, user: &str) -> Pair {
    let key = PrivateKey::generate().expect("a key");
    let client = ClientName { user, ..ClientName::default() };
    let request = freehold_pki::csr::request(&key, &client, &[] as &[&str]).expect("a request");
    let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": user}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"], "request": BASE64_STANDARD.encode(request)}});
    project.apply(&object.to_string());
    project.ok(&["certificate", "approve", user]);
    let signed = until("it is signed", PATIENCE, || {
        let object = project.json(&["get", "csr", user]);
        Some(text(&object, "/status/certificate").to_owned()).filter(|signed| !signed.is_empty())
    });
    let cert_pem = String::from_utf8(BASE64_STANDARD.decode(signed).expect("base64")).expect("PEM");
    Pair { cert_pem, key_pem: key.pem().to_owned() }
}

/// A service account of a project that may read there, and its token.
fn robot(world: &World, project: &str, kubectl: &Kubectl) -> Http {
    kubectl.ok(&["create", "serviceaccount", "robot"]);
    let bind =
        ["create", "clusterrolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot"];
    kubectl.ok(&bind);
    let token = kubectl.ok(&["create", "token", "robot"]);
    Http::with_token(kubectl, &format!("{}/projects/{project}", world.server().url()), token.trim())
}

fn becomes_code(what: &str, http: &Http, code: u16) {
    until(&format!("{what}: {code}"), PATIENCE, || {
        (http.get("/api/v1/namespaces/default/configmaps").code == code).then_some(())
    });
}

/// Revokes all certificates of a project, and waits until its old kubeconfig is worth nothing and the new one is.
fn revoke(world: &World, project: &str, old: &Kubectl, watch: &mut Background) {
    contains_all(
        &world.server().freehold(&["project", "revoke-credentials", project]).expect_ok(),
        &["generation 1"],
    );
    watch.wait_for_end();
    becomes_code("the old kubeconfig", &Http::of(old), 401);
    until("there is a new kubeconfig", PATIENCE, || {
        let new = Http::of(&copy(world, project));
        (new.get("/api/v1/namespaces/default/configmaps").code == 200).then_some(())
    });
    assert_eq!(Http::of(old).get("/api/v1/namespaces/default/configmaps").code, 401);
}

fn certificates_of_a_shared_project_end_with_their_generation(world: &World) {
    let name = "creds-shared";
    let [_, ed] = organization(world, "creds-gen", &[name]);
    let project = copy(world, name);
    // Another file: the copy is written anew with the next one.
    let old = Scratch::new(
        world,
        "creds-shared-old",
        &std::fs::read_to_string(project.kubeconfig()).expect("a copy"),
    );
    let old = world.server().kubectl_with(old.path());
    old.ok(&["create", "clusterrolebinding", "jane", "--clusterrole=view", "--user=jane"]);
    let url = format!("{}/projects/{name}", world.server().url());
    let jane = Http::with_certificate(&old, &url, &signed(&old, "jane"));
    let robot = robot(world, name, &old);
    becomes_code("jane", &jane, 200);
    becomes_code("a service account", &robot, 200);
    let mut watched = watch(&old, name);
    revoke(world, name, &old, &mut watched);
    becomes_code("jane", &jane, 401);
    assert_eq!(robot.get("/api/v1/namespaces/default/configmaps").code, 200);
    becomes(&world.person("creds-gen-ed", &format!("/projects/{name}")), &["get", "configmaps"], true);
    becomes(&ed, &["get", "projects", name], true);
    // What is signed from now on is of the new generation.
    let new = world.server().project(name);
    new.ok(&["delete", "csr", "jane"]);
    becomes_code("jane again", &Http::with_certificate(&new, &url, &signed(&new, "jane")), 200);
}

fn certificates_of_a_dedicated_project_end_with_their_generation(world: &World) {
    let name = "creds-pair";
    world.organization("creds-pairs", &[]);
    world.admin().apply(&format!(
        "---\n{{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {{name: {name}}},
          spec: {{ownerRef: {{kind: Organization, name: creds-pairs}}, controlPlane: {{mode: Dedicated}}}}}}"
    ));
    world.wait_ready(name);
    let project = copy(world, name);
    let old = Scratch::new(
        world,
        "creds-pair-old",
        &std::fs::read_to_string(project.kubeconfig()).expect("a copy"),
    );
    let old = world.server().kubectl_with(old.path());
    let robot = robot(world, name, &old);
    becomes_code("a service account", &robot, 200);
    the_pair_itself_takes_no_kubeconfig(world, name, &old);
    let mut watched = watch(&old, name);
    revoke(world, name, &old, &mut watched);
    assert_eq!(robot.get("/api/v1/namespaces/default/configmaps").code, 200);
    the_pair_itself_takes_no_kubeconfig(world, name, &old);
    world.admin().ok(&["delete", "project", name, "--timeout=120s"]);
}

/// Who goes around the core server finds a pair that knows of no generation, and believes in none.
fn the_pair_itself_takes_no_kubeconfig(world: &World, project: &str, old: &Kubectl) {
    let uid = world.uid(project);
    let pods = world.at("/planes/infra").json(&["get", "pods", "--namespace", &format!("project-{uid}")]);
    let apiserver = pods["items"].as_array().into_iter().flatten().find(|pod| {
        text(pod, "/metadata/name").starts_with("apiserver") && !text(pod, "/status/podIP").is_empty()
    });
    let address = text(apiserver.expect("the pair's apiserver"), "/status/podIP");
    let mut config = Config::from_kubeconfig(old.kubeconfig()).expect("a kubeconfig");
    config.server = format!("https://{address}:6443");
    config.server_name = Some(format!("apiserver.project-{uid}.svc.cluster.local"));
    let code = |config: &Config| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let client = Client::new(config).expect("a client");
        let asked = RawRequest::get("/api/v1/namespaces/default/configmaps");
        runtime.block_on(client.request(&asked)).expect_err("it is refused").code()
    };
    assert_eq!(code(&config), 401, "as the project's admin");
    config.identity = Identity::None;
    assert_eq!(code(&config), 403, "as nobody: it is the pair that answers");
}

fn credential_of(kubectl: &Kubectl) -> String {
    let who = kubectl.json(&["auth", "whoami"]);
    let id = text(&who, CREDENTIAL).to_owned();
    assert!(!id.is_empty(), "{who}");
    id
}

fn single_credentials_are_revoked_and_others_stay(world: &World) {
    let name = "creds-single";
    organization(world, "creds-one", &[name]);
    let project = world.server().project(name);
    let robot = robot(world, name, &project);
    becomes_code("a service account", &robot, 200);
    let token = project.ok(&["create", "token", "robot"]);
    let url = format!("{}/projects/{name}", world.server().url());
    let second = world.server().kubectl_with_token(token.trim()).with(&["--server", &url]);
    let mut watches = [watch(&project, name), watch(&second, name)];
    let ids = [credential_of(&project), credential_of(&second)];
    assert!(ids[0].starts_with("X509SHA256=") && ids[1].starts_with("JTI="), "{ids:?}");
    let revoke = ["project", "revoke-credentials", name, "--id", &ids[0], "--id", &ids[1]];
    world.server().freehold(&revoke).expect_ok();
    watches.iter_mut().for_each(Background::wait_for_end);
    becomes(&project, &["get", "configmaps"], false);
    becomes(&second, &["get", "configmaps"], false);
    assert_eq!(robot.get("/api/v1/namespaces/default/configmaps").code, 200);
    // Reviews say so too.
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.trim()}});
    let asked = Http::of_elsewhere(&world.admin(), &url);
    let reviewed = asked.json(Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", &review);
    assert_ne!(reviewed.body["status"]["authenticated"], true, "{}", reviewed.body);
    a_single_certificate_of_the_platform_is_revoked(world, name);
}

fn a_single_certificate_of_the_platform_is_revoked(world: &World, project: &str) {
    world.admin().apply(&member("creds-one", "creds-tim", "viewer"));
    let path = format!("/projects/{project}");
    let [lost, kept] = [0, 1].map(|_| world.person("creds-tim", &path));
    becomes(&lost, &["get", "configmaps"], true);
    let mut watched = watch(&lost, project);
    let user = json!({"apiVersion": "iam.freehold.dev/v1alpha1", "kind": "User", "metadata": {"name": "creds-tim"},
        "spec": {"revokedCredentials": [credential_of(&lost)]}});
    world.admin().apply(&user.to_string());
    watched.wait_for_end();
    becomes(&lost, &["get", "configmaps"], false);
    becomes(&kept, &["get", "configmaps"], true);
}

fn a_persons_kubeconfig_for_a_project_has_their_own_identity(world: &World) {
    let name = "creds-own";
    let [olga, ed] = organization(world, "creds-person", &[name]);
    let print = |who: &Kubectl, more: &[&str]| {
        let path = who.kubeconfig().to_str().expect("a path of text");
        world.server().freehold(&[&["kubeconfig", name, "--kubeconfig", path], more].concat())
    };
    let own = Scratch::new(world, "creds-own-ed.kubeconfig", &print(&ed, &[]).expect_ok());
    let own = world.server().kubectl_with(own.path());
    becomes(&own, &["get", "configmaps"], true);
    contains_all(&own.ok(&["auth", "whoami"]), &["creds-person-ed"]);
    let mut watched = watch(&own, name);
    contains_all(&print(&ed, &["--admin"]).expect_failure(), &["orbidden"]);
    let admin = Scratch::new(world, "creds-own-admin.kubeconfig", &print(&olga, &["--admin"]).expect_ok());
    contains_all(
        &world.server().kubectl_with(admin.path()).ok(&["auth", "whoami"]),
        &["freehold:project-admin"],
    );
    let gone =
        ["delete", "organizationmembership", "creds-person-ed", "--namespace=organization-creds-person"];
    world.admin().ok(&gone);
    watched.wait_for_end();
    becomes(&own, &["get", "configmaps"], false);
    // The platform's own identity is in no file that was made for a project.
    let operators = world.server().project(name);
    contains_all(&operators.ok(&["auth", "whoami"]), &["freehold:project-admin"]);
}
