//! Who is believed: tokens of issuers that the operator or an organization names, of a webhook, for bootstrapping; paths for the
//! anonymous; keys that change while the server serves.

use crate::PATIENCE;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use freehold_pki::PrivateKey;
use freehold_tests_integration::{Engine, HookServer, Http, Kubectl, Options, Reply, Server, facts, until};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tempfile::TempDir;

facts!(engine:
    tokens_of_configured_issuers_are_believed_and_the_file_is_followed,
    a_token_of_an_organizations_issuer_is_nothing_elsewhere,
    a_webhook_says_whose_a_token_is,
    bootstrap_tokens_count_in_their_plane,
);

/// Keys of an issuer by their identifiers, the newest last.
type Keys = Arc<Mutex<Vec<(String, PrivateKey)>>>;

/// Signs an issuer's tokens.
#[derive(Clone)]
pub(crate) struct Signer {
    keys: Keys,
    url: Arc<Mutex<String>>,
}

impl Signer {
    pub(crate) fn url(&self) -> String {
        self.url.lock().expect("a test fails by panicking").clone()
    }

    /// A token with further claims, signed by the newest key.
    pub(crate) fn token(&self, claims: Value) -> String {
        let keys = self.keys.lock().expect("a test fails by panicking");
        let (id, key) = keys.last().expect("a test fails by panicking");
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a test fails by panicking").as_secs();
        let mut all = json!({"iss": self.url(), "aud": "freehold", "iat": now, "exp": now + 3600});
        all.as_object_mut()
            .expect("a test fails by panicking")
            .extend(claims.as_object().expect("a test fails by panicking").clone());
        let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::ES256);
        header.kid = Some(id.clone());
        let signing =
            jsonwebtoken::EncodingKey::from_ec_pem(key.pem().as_bytes()).expect("a test fails by panicking");
        jsonwebtoken::encode(&header, &all, &signing).expect("a test fails by panicking")
    }

    /// What the issuer publishes at a path.
    fn published(&self, path: &str) -> Option<Value> {
        let url = self.url();
        match path {
            "/.well-known/openid-configuration" => Some(json!({
                "issuer": url, "jwks_uri": format!("{url}/keys"),
                "authorization_endpoint": format!("{url}/authorize"),
                "token_endpoint": format!("{url}/token"),
                "device_authorization_endpoint": format!("{url}/device"),
            })),
            "/keys" => {
                let keys = self.keys.lock().expect("a test fails by panicking");
                Some(json!({"keys": keys.iter().map(|(id, key)| jwk(id, key)).collect::<Vec<_>>()}))
            }
            _ => None,
        }
    }
}

/// An OpenID Connect issuer whose keys a test changes.
pub(crate) struct Provider {
    server: HookServer,
    keys: Keys,
    pub(crate) signer: Signer,
}

impl Provider {
    pub(crate) fn start() -> Self {
        Self::start_with(|_, _, _| Reply::Text(404, "no".to_owned()))
    }

    /// An issuer whose other endpoints answer as `handler` says of a path and a body.
    pub(crate) fn start_with(
        handler: impl Fn(&Signer, &str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let first = PrivateKey::generate().expect("a test fails by panicking");
        let keys: Keys = Arc::new(Mutex::new(vec![("one".to_owned(), first)]));
        let signer = Signer { keys: keys.clone(), url: Arc::default() };
        let own = signer.clone();
        let server = HookServer::start(move |path, body| match own.published(path) {
            Some(published) => Reply::Json(published),
            None => handler(&own, path, body),
        });
        *signer.url.lock().expect("a test fails by panicking") = server.url("");
        Self { server, keys, signer }
    }

    /// A token with further claims, signed by the newest key.
    pub(crate) fn token(&self, claims: Value) -> String {
        self.signer.token(claims)
    }

    /// The authority of its certificate, PEM.
    pub(crate) fn ca_pem(&self) -> &str {
        self.server.ca_pem()
    }

    /// What an AuthenticationConfiguration or an IdentityProvider says of it.
    pub(crate) fn issuer(&self) -> Value {
        json!({"url": self.server.url(""), "audiences": ["freehold"], "certificateAuthority": self.server.ca_pem()})
    }
}

fn jwk(id: &str, key: &PrivateKey) -> Value {
    let point = key.p256_point().expect("a test fails by panicking");
    let (x, y) = (BASE64_URL_SAFE_NO_PAD.encode(&point[1..33]), BASE64_URL_SAFE_NO_PAD.encode(&point[33..]));
    json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": id, "x": x, "y": y})
}

fn start(engine: Engine, args: &[String]) -> Server {
    let mut all = vec!["--outbound-networks=public,127.0.0.0/8".to_owned()];
    all.extend_from_slice(args);
    Server::start(Options { engine, args: all, ..Options::default() })
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    // Replaced as a whole, as a mounted ConfigMap is.
    let fresh = folder.join("fresh");
    fs::write(&fresh, text).expect("a test fails by panicking");
    fs::rename(&fresh, &path).expect("a test fails by panicking");
    path
}

pub(crate) fn configuration(jwt: &[Value], anonymous: &Value) -> String {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": jwt, "anonymous": anonymous,
    })
    .to_string()
}

/// Who the server takes a token's bearer for at a path; the code where it does not.
fn who(kubectl: &Kubectl, server: &Server, path: &str, token: &str) -> Result<Value, u16> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let at = Http::with_token(kubectl, &format!("{}{path}", server.url()), token);
    let answer = at.json(http::Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review);
    match answer.code {
        201 => Ok(answer.body["status"]["userInfo"].clone()),
        code => Err(code),
    }
}

fn tokens_of_configured_issuers_are_believed_and_the_file_is_followed(engine: Engine) {
    let folder = TempDir::new().expect("a test fails by panicking");
    let provider = Provider::start();
    let jwt = |prefix: &str| {
        json!({
            "issuer": provider.issuer(),
            "claimMappings": {
                "username": {"claim": "sub", "prefix": prefix},
                "groups": {"expression": "claims.?roles.orValue('').split(',').map(role, 'r:' + role)"},
                "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}],
            },
            "claimValidationRules": [{"expression": "claims.tenant != 'evil'", "message": "go away"}],
            "userValidationRules": [{"expression": "!user.username.startsWith('system:')", "message": "reserved"}],
        })
    };
    let health = json!({"enabled": true, "conditions": [{"path": "/livez"}]});
    let config = write(folder.path(), "authentication.json", &configuration(&[jwt("oidc:")], &health));
    let server = start(engine, &[format!("--authentication-config={}", config.display())]);
    let kubectl = server.kubectl();

    let jane = provider.token(json!({"sub": "jane", "roles": "a,b", "tenant": "t", "jti": "1"}));
    let user = who(&kubectl, &server, "", &jane).expect("a test fails by panicking");
    assert_eq!(user["username"], "oidc:jane");
    assert_eq!(user["groups"], json!(["r:a", "r:b", "system:authenticated"]));
    assert_eq!(user["extra"]["example.com/tenant"], json!(["t"]));
    let later =
        std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a test fails by panicking").as_secs() + 3600;
    let (head, rest) = jane.split_once('.').expect("a test fails by panicking");
    let (body, _) = rest.split_once('.').expect("a test fails by panicking");
    let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    for (what, token) in [
        ("of an evil tenant", provider.token(json!({"sub": "eve", "tenant": "evil"}))),
        ("for others", provider.token(json!({"sub": "eve", "tenant": "t", "aud": ["other"]}))),
        ("that has expired", provider.token(json!({"sub": "eve", "tenant": "t", "exp": 1}))),
        ("that is not valid yet", provider.token(json!({"sub": "eve", "tenant": "t", "nbf": later}))),
        ("without a subject", provider.token(json!({"tenant": "t"}))),
        ("of another issuer", provider.token(json!({"sub": "eve", "tenant": "t", "iss": "https://other"}))),
        ("with another signature", format!("{head}.{body}.{}", BASE64_URL_SAFE_NO_PAD.encode([0; 64]))),
        ("without a signature", format!("{none}.{body}.")),
    ] {
        assert_eq!(who(&kubectl, &server, "", &token), Err(401), "a token {what}");
    }

    // A key that nobody has seen is looked for; one that is gone stops to count when the keys are looked at again.
    provider
        .keys
        .lock()
        .expect("a test fails by panicking")
        .push(("two".to_owned(), PrivateKey::generate().expect("a test fails by panicking")));
    let newer = provider.token(json!({"sub": "joe", "tenant": "t"}));
    until("the new key is known", PATIENCE, || who(&kubectl, &server, "", &newer).ok());

    let nobody = Http::with_token(&kubectl, server.url(), "");
    assert_eq!((nobody.get("/livez").code, nobody.get("/readyz").code), (200, 401));
    assert_eq!(nobody.get("/version").code, 401);

    write(folder.path(), "authentication.json", "no configuration");
    write(folder.path(), "authentication.json", &configuration(&[jwt("sso:")], &json!({"enabled": true})));
    until("the file is read again", PATIENCE, || {
        let user = who(&kubectl, &server, "", &jane).ok()?;
        (user["username"] == "sso:jane" && nobody.get("/version").code == 200).then_some(())
    });
    organization(&server, "sso");
    server.kubectl().apply(
        "---\n{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: OrganizationMembership,
          metadata: {name: jane, namespace: organization-sso},
          spec: {organizationRef: {name: sso}, userRef: {name: 'sso:jane'}}}\n",
    );
    let project = server.project("sso-web");
    project.ok(&["create", "clusterrolebinding", "jane", "--clusterrole=view", "--user=sso:jane"]);
    let url = format!("{}/projects/sso-web", server.url());
    let mut watch = server.kubectl_with_token(&jane).with(&["--server", &url]).background(&[
        "get",
        "--raw",
        "/projects/sso-web/api/v1/configmaps?watch=true",
    ]);
    watch.wait_for("kube-root-ca.crt");
    write(folder.path(), "authentication.json", &configuration(&[], &json!({"enabled": false})));
    watch.wait_for_end();
    until("the issuer is gone", PATIENCE, || (who(&kubectl, &server, "", &jane) == Err(401)).then_some(()));
    assert_eq!(nobody.get("/livez").code, 401);
}

const PROJECTS: &str = "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: NAME}\n---\n\
    apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: NAME-web}\n\
    spec: {ownerRef: {kind: Organization, name: NAME}}\n";

fn organization(server: &Server, name: &str) {
    let kubectl = server.kubectl();
    kubectl.apply(&PROJECTS.replace("NAME", name));
    kubectl.ok(&["wait", "--for=condition=Ready", &format!("project/{name}-web"), "--timeout=120s"]);
}

fn a_token_of_an_organizations_issuer_is_nothing_elsewhere(engine: Engine) {
    let server = start(engine, &[]);
    let kubectl = server.kubectl();
    organization(&server, "acme");
    organization(&server, "other");
    let provider = Provider::start();
    let object = json!({
        "apiVersion": "iam.freehold.dev/v1alpha1", "kind": "IdentityProvider",
        "metadata": {"name": "login", "namespace": "organization-acme"},
        "spec": {
            "issuer": provider.issuer(),
            "claimMappings": {
                "username": {"claim": "sub", "prefix": ""},
                "groups": {"claim": "groups", "prefix": ""},
            },
        },
    });
    kubectl.apply(&object.to_string());
    let mut wrong = object.clone();
    wrong["spec"]["claimMappings"]["username"] = json!({"expression": "claims.sub + 1 +"});
    wrong["spec"]["claimValidationRules"] = json!([{"expression": "claims.sub.size()", "message": "a name"}]);
    let refused = kubectl.run_with_input(&["apply", "-f", "-"], &wrong.to_string());
    for part in [
        "spec.claimMappings.username.expression: Invalid value: \"claims.sub + 1 +\": compilation failed: ERROR: <input>:1:17: Syntax error",
        "spec.claimValidationRules[0].expression: Invalid value: \"claims.sub.size()\": must evaluate to bool",
    ] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    let jane = provider.token(json!({"sub": "jane", "groups": ["devs"]}));
    let user = who(&kubectl, &server, "/projects/acme-web", &jane).expect("a test fails by panicking");
    assert_eq!(user["username"], "organization:acme:jane");
    assert_eq!(user["groups"], json!(["organization:acme:devs", "system:authenticated"]));
    for elsewhere in ["", "/projects/other-web", "/organizations/other", "/users/jane"] {
        assert_eq!(who(&kubectl, &server, elsewhere, &jane), Err(401), "at {elsewhere:?}");
    }
    for claims in [
        json!({"sub": "system:admin"}),
        json!({"sub": "eve", "groups": ["system:masters"]}),
        json!({"sub": "eve", "groups": ["devs", "system:nodes"]}),
    ] {
        let eve = provider.token(claims.clone());
        assert_eq!(who(&kubectl, &server, "/projects/acme-web", &eve), Err(401), "{claims}");
    }
    kubectl.ok(&["delete", "identityprovider", "login", "--namespace", "organization-acme"]);
    until("it is not believed any more", PATIENCE, || {
        (who(&kubectl, &server, "/projects/acme-web", &jane) == Err(401)).then_some(())
    });
}

fn a_webhook_says_whose_a_token_is(engine: Engine) {
    let folder = TempDir::new().expect("a test fails by panicking");
    let hook = HookServer::start(|_, review| {
        let answer = match review["spec"]["token"].as_str().unwrap_or_default() {
            "of-jane" => json!({"authenticated": true, "user": {"username": "jane", "groups": ["devs"]}}),
            _ => json!({"authenticated": false}),
        };
        Reply::Json(
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": answer}),
        )
    });
    let config = write(folder.path(), "webhook.kubeconfig", &hook.kubeconfig("/authenticate"));
    let server = start(engine, &[format!("--authentication-token-webhook-config-file={}", config.display())]);
    let kubectl = server.kubectl();
    for _ in 0..3 {
        let user = who(&kubectl, &server, "", "of-jane").expect("a test fails by panicking");
        assert_eq!(
            (&user["username"], &user["groups"]),
            (&json!("jane"), &json!(["devs", "system:authenticated"]))
        );
        assert_eq!(who(&kubectl, &server, "", "of-nobody"), Err(401));
    }
    assert_eq!(hook.seen().len(), 2, "answers are remembered");
    assert!(hook.seen().iter().all(|review| review["spec"]["audiences"].is_array()));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "of-jane"}});
    let answer =
        Http::of(&kubectl).json(http::Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", &review);
    assert_eq!(answer.body["status"]["user"]["username"], "jane", "{:?}", answer.body);
    // Tokens of service accounts are not shown to it.
    let token = kubectl.ok(&["create", "token", "default"]);
    assert!(who(&kubectl, &server, "", token.trim()).is_ok());
    assert_eq!(hook.seen().len(), 2);
}

fn bootstrap_tokens_count_in_their_plane(engine: Engine) {
    let server = start(engine, &["--enable-bootstrap-token-auth".to_owned()]);
    organization(&server, "acme");
    organization(&server, "other");
    let web = server.project("acme-web");
    let secret = |expiration: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\ntype: bootstrap.kubernetes.io/token\n\
             metadata: {{name: bootstrap-token-abcdef, namespace: kube-system}}\n\
             stringData: {{token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: 'true', \
             expiration: '{expiration}', auth-extra-groups: 'system:bootstrappers:worker'}}\n"
        )
    };
    web.apply(&secret("2999-01-01T00:00:00Z"));
    let (kubectl, token) = (server.kubectl(), "abcdef.0123456789abcdef");
    let user = who(&kubectl, &server, "/projects/acme-web", token).expect("a test fails by panicking");
    assert_eq!(user["username"], "system:bootstrap:abcdef");
    assert_eq!(
        user["groups"],
        json!(["system:bootstrappers", "system:bootstrappers:worker", "system:authenticated"])
    );
    assert_eq!(who(&kubectl, &server, "", token), Err(401));
    assert_eq!(who(&kubectl, &server, "/projects/other-web", token), Err(401));
    assert_eq!(who(&kubectl, &server, "/projects/acme-web", "abcdef.0123456789abcdeg"), Err(401));
    web.apply(&secret("2020-01-01T00:00:00Z"));
    assert_eq!(who(&kubectl, &server, "/projects/acme-web", token), Err(401));
}
