//! A real identity provider: Keycloak, from `.tools/keycloak` (`tools/get keycloak`). It takes half a minute and half a
//! gigabyte, so `make test-long` runs this.

use crate::text;
use freehold_pki::Authority;
use freehold_tests_integration::{Engine, Http, Kubectl, Options, Server, freehold_binary, until};
use http::Method;
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// How long it may take to start, on a machine that does other things too.
const START: Duration = Duration::from_secs(300);
/// How long the server may take to look at a new key.
const PATIENCE: Duration = Duration::from_secs(60);
const FORM: &str = "application/x-www-form-urlencoded";
const PASSWORD: &str = "correct-horse";

struct Keycloak {
    child: Child,
    ca: Authority,
    url: String,
    _folder: TempDir,
}

impl Drop for Keycloak {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A realm with one user in one group, and a client that takes passwords.
fn realm() -> Value {
    let groups = json!({
        "name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
        "config": {"claim.name": "groups", "full.path": "false", "id.token.claim": "true", "access.token.claim": "true"},
    });
    json!({
        "realm": "freehold", "enabled": true,
        "groups": [{"name": "devs"}],
        "clients": [{
            "clientId": "freehold", "publicClient": true, "directAccessGrantsEnabled": true, "protocolMappers": [groups],
        }, {
            "clientId": "cli", "publicClient": true, "protocolMappers": [groups],
            "redirectUris": ["http://127.0.0.1/callback"],
            // Tokens of so short a life are renewed each time.
            "attributes": {"pkce.code.challenge.method": "S256", "access.token.lifespan": "25"},
        }],
        "users": [{
            "username": "jane", "enabled": true, "email": "jane@example.com", "emailVerified": true,
            "firstName": "Jane", "lastName": "Doe", "groups": ["devs"],
            "credentials": [{"type": "password", "value": PASSWORD, "temporary": false}],
        }],
    })
}

impl Keycloak {
    fn start() -> Self {
        let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.tools/keycloak");
        assert!(from.is_dir(), "tools/get keycloak gets what this test needs");
        let folder = TempDir::new().expect("a test fails by panicking");
        let home = folder.path().join("keycloak");
        // It writes into its own folder.
        assert!(
            Command::new("cp")
                .arg("-r")
                .args([&from, &home])
                .status()
                .expect("a test fails by panicking")
                .success()
        );
        let ca = Authority::generate("keycloak of a test").expect("a test fails by panicking");
        let pair = ca
            .issue_server(&["127.0.0.1"], Duration::from_secs(24 * 3600))
            .expect("a test fails by panicking");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("a test fails by panicking");
            path
        };
        let (cert, key) = (write("tls.crt", &pair.cert_pem), write("tls.key", &pair.key_pem));
        fs::create_dir_all(home.join("data/import")).expect("a test fails by panicking");
        fs::write(home.join("data/import/realm.json"), realm().to_string())
            .expect("a test fails by panicking");
        let port = TcpListener::bind("127.0.0.1:0")
            .expect("a test fails by panicking")
            .local_addr()
            .expect("a test fails by panicking")
            .port();
        let url = format!("https://127.0.0.1:{port}");
        let log = File::create(folder.path().join("keycloak.log")).expect("a test fails by panicking");
        // The script, told not to fork, becomes Java itself.
        let child = Command::new(home.join("bin/kc.sh"))
            .args(["start-dev", "--import-realm", "--cache=local", "--http-host=127.0.0.1"])
            .arg(format!("--https-port={port}"))
            .arg("--http-port=0")
            .arg(format!("--hostname={url}"))
            .args([
                Path::new("--https-certificate-file"),
                &cert,
                Path::new("--https-certificate-key-file"),
                &key,
            ])
            .env("JAVA_OPTS_KC_HEAP", "-Xms64m -Xmx512m")
            .env("KC_RUN_IN_CONTAINER", "true")
            .env("KC_BOOTSTRAP_ADMIN_USERNAME", "admin")
            .env("KC_BOOTSTRAP_ADMIN_PASSWORD", PASSWORD)
            .stdout(log.try_clone().expect("a test fails by panicking"))
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("a test fails by panicking");
        let keycloak = Self { child, ca, url, _folder: folder };
        until("Keycloak answers", START, || {
            let config = keycloak.http("").try_get("/realms/freehold/.well-known/openid-configuration")?;
            (config.code == 200).then_some(())
        });
        keycloak
    }

    fn http(&self, token: &str) -> Http {
        Http::secured(&self.url, self.ca.cert_pem(), token)
    }

    /// The tokens that a user gets for a password.
    fn log_in(&self, realm: &str, client: &str, user: &str) -> Value {
        let body = format!(
            "grant_type=password&scope=openid&client_id={client}&username={user}&password={PASSWORD}"
        );
        let path = format!("/realms/{realm}/protocol/openid-connect/token");
        let answer = self.http("").send(Method::POST, &path, FORM, body);
        assert_eq!(answer.code, 200, "{:?}", answer.body);
        answer.body
    }

    /// A new key, which signs from now on.
    fn rotate(&self) {
        let admin = self.log_in("master", "admin-cli", "admin");
        let http = self.http(text(&admin, "/access_token"));
        let realm = http.get("/admin/realms/freehold").body["id"].clone();
        let key = json!({
            "name": "newer", "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider",
            "parentId": realm, "config": {"priority": ["1000"], "algorithm": ["RS256"], "keySize": ["2048"]},
        });
        let answer = http.json(Method::POST, "/admin/realms/freehold/components", &key);
        assert_eq!(answer.code, 201, "{:?}", answer.body);
    }
}

/// Where the environment asks for it, as `make test-long` does.
#[test]
fn users_of_keycloak_are_believed_and_its_new_keys_found() {
    if std::env::var_os("FREEHOLD_TEST_KEYCLOAK").is_none() {
        return eprintln!("FREEHOLD_TEST_KEYCLOAK is not set: Keycloak is not asked");
    }
    let keycloak = Keycloak::start();
    let folder = TempDir::new().expect("a test fails by panicking");
    let config = folder.path().join("authentication.json");
    let jwt = json!({
        "issuer": {
            "url": format!("{}/realms/freehold", keycloak.url), "audiences": ["freehold", "cli"], "audienceMatchPolicy": "MatchAny",
            "certificateAuthority": keycloak.ca.cert_pem(),
        },
        "claimMappings": {
            "username": {"expression": "claims.email"},
            "groups": {"claim": "groups", "prefix": "keycloak:"},
            "uid": {"claim": "sub"},
        },
        "claimValidationRules": [{"expression": "claims.email_verified == true", "message": "not verified"}],
    });
    let text_of = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt],
    });
    fs::write(&config, text_of.to_string()).expect("a test fails by panicking");
    let args = vec![format!("--authentication-config={}", config.display())];
    let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
    let kubectl = server.kubectl();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = |token: &str| {
        let at = Http::with_token(&kubectl, server.url(), token);
        at.json(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
    };
    let tokens = keycloak.log_in("freehold", "freehold", "jane");
    let first = text(&tokens, "/id_token").to_owned();
    let answer = who(&first);
    assert_eq!(answer.code, 201, "{:?}\n{}", answer.body, server.log());
    let user = &answer.body["status"]["userInfo"];
    assert_eq!(user["username"], "jane@example.com");
    assert_eq!(user["groups"], json!(["keycloak:devs", "system:authenticated"]));
    // What is meant for Keycloak itself is not for this server.
    assert_eq!(who(text(&tokens, "/refresh_token")).code, 401);

    keycloak.rotate();
    let second = text(&keycloak.log_in("freehold", "freehold", "jane"), "/id_token").to_owned();
    let head = |token: &str| token.split('.').next().unwrap_or_default().to_owned();
    assert_ne!(head(&first), head(&second), "another key signs");
    until("the new key is found", PATIENCE, || (who(&second).code == 201).then_some(()));
    assert_eq!(who(&first).code, 201, "the key before it is still there");
    sign_in(&keycloak, &server);
}

/// `freehold login` with Keycloak's own pages, for which curl is the browser, and kubectl with the renewed token.
fn sign_in(keycloak: &Keycloak, server: &Server) {
    let home = TempDir::new().expect("a test fails by panicking");
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::write(&path, text).expect("a test fails by panicking");
        path
    };
    let ca = write("keycloak.crt", keycloak.ca.cert_pem());
    let browser = write("browser", BROWSER);
    let mut login = Command::new(freehold_binary());
    login.args(["login", "--client-id=cli", "--server", server.url()]);
    login.arg("--server-ca").arg(server.data_dir().join("pki/ca.crt")).arg("--issuer-ca").arg(&ca);
    login.arg(format!("--issuer-url={}/realms/freehold", keycloak.url));
    // Run by a shell, since a file that was just written may be busy for a moment.
    let shell = write("sh", &format!("#!/bin/sh\nexec sh {} \"$1\"\n", browser.display()));
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&shell, executable).expect("a test fails by panicking");
    login.env("HOME", home.path()).env("BROWSER", &shell).env("CA", &ca).env("PASSWORD", PASSWORD);
    login.env_remove("KUBECONFIG").env_remove("XDG_CACHE_HOME").current_dir(home.path());
    let output = login.output().expect("a test fails by panicking");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.starts_with("Signed in as jane@example.com."), "{told}");
    let kubectl = Kubectl::new(home.path().join(".kube/config"), home.path())
        .with_variable("HOME", &home.path().display().to_string());
    let who = kubectl.json(&["auth", "whoami"]);
    assert_eq!(who["status"]["userInfo"]["username"], "jane@example.com");
    assert_eq!(who["status"]["userInfo"]["groups"], json!(["keycloak:devs", "system:authenticated"]));
}

/// A browser: the page of the sign-in, its form with the password, and the way back.
const BROWSER: &str = r#"set -eu
get() { curl -sS --cacert "$CA" -b "$HOME/jar" -c "$HOME/jar" "$@"; }
action=$(get "$1" | sed -n 's/.*<form[^>]* action="\([^"]*\)".*/\1/p' | head -1 | sed 's/&amp;/\&/g')
get -L -d username=jane --data-urlencode "password=$PASSWORD" "$action" >/dev/null
"#;
