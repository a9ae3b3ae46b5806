//! Real certificates and tokens, honest and forged.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use freehold_apiserver_authn::{
    Authenticator, BoundKind, FrontProxy, ImpersonationRequest, KeySet, Peer, Request, Roots,
    ServiceAccountLookup, TokenError, TokenIssuer, TokenRequestSpec, review,
};
use freehold_machinery::{PlaneId, User, Value};
use freehold_pki::{Authority, ClientName, Pair, PlaneBinding, PrivateKey, certificates_der};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const DAY: i64 = 24 * 3600;

fn plane(name: &str) -> PlaneId {
    name.parse().unwrap()
}

fn now() -> i64 {
    i64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap()
}

fn headers(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// Objects by `plane/kind/namespace/name`, with their uid.
#[derive(Clone, Default)]
struct World(BTreeMap<String, String>);

impl World {
    fn new() -> Self {
        let rows = [
            ("a/sa/ns/builder", "sa-1"),
            ("b/sa/ns/builder", "sa-1"),
            ("a/Pod/ns/web", "pod-1"),
            ("a/Secret/ns/s", "secret-1"),
            ("a/Node//n1", "node-1"),
        ];
        Self(rows.map(|(key, uid)| (key.to_owned(), uid.to_owned())).into())
    }

    fn with(mut self, key: &str, uid: Option<&str>) -> Self {
        self.0.remove(key);
        self.0.extend(uid.map(|uid| (key.to_owned(), uid.to_owned())));
        self
    }
}

impl ServiceAccountLookup for World {
    fn service_account(&self, plane: &PlaneId, namespace: &str, name: &str) -> Option<String> {
        self.0.get(&format!("{plane}/sa/{namespace}/{name}")).cloned()
    }

    fn object_uid(&self, plane: &PlaneId, kind: BoundKind, namespace: &str, name: &str) -> Option<String> {
        self.0.get(&format!("{plane}/{}/{namespace}/{name}", kind.names().0)).cloned()
    }
}

fn issuer_with(key: &PrivateKey, retired: &[&str]) -> TokenIssuer {
    let keys = KeySet::from_pem(key.pem(), retired).unwrap();
    TokenIssuer::new("https://freehold.local/planes", &["https://kubernetes.default.svc"], keys)
}

fn issuer() -> (TokenIssuer, PrivateKey) {
    let key = PrivateKey::generate().unwrap();
    (issuer_with(&key, &[]), key)
}

fn account() -> Value {
    json!({"metadata": {"namespace": "ns", "name": "builder", "uid": "sa-1"}})
}

fn pod() -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": "web", "uid": "pod-1"},
        "spec": {"serviceAccountName": "builder", "nodeName": "n1"},
    })
}

fn token(issuer: &TokenIssuer, spec: Value, bound: Option<&Value>, at: i64) -> String {
    let spec = TokenRequestSpec::parse(&json!({"spec": spec})).unwrap();
    let answer = issuer.issue(&plane("a"), &account(), &spec, bound, at, &World::new()).unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

#[test]
fn a_token_speaks_for_its_service_account_with_what_it_is_bound_to() {
    let (issuer, _) = issuer();
    let token = token(
        &issuer,
        json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web"}}),
        Some(&pod()),
        now(),
    );
    let user = issuer.verify(&plane("a"), &token, now(), &World::new()).unwrap().user;
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:builder", "sa-1"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    assert_eq!(user.plane, Some(plane("a")));
    let extra = |key: &str| user.extra[&format!("authentication.kubernetes.io/{key}")][0].as_str();
    assert_eq!((extra("pod-name"), extra("pod-uid")), ("web", "pod-1"));
    assert_eq!((extra("node-name"), extra("node-uid")), ("n1", "node-1"));
    assert!(extra("credential-id").starts_with("JTI="));
    let claims = claims(&token);
    assert_eq!(claims["iss"], "https://freehold.local/planes/a");
    assert_eq!(claims["aud"], json!(["https://freehold.local/planes/a", "https://kubernetes.default.svc"]));
    assert_eq!(claims["kubernetes.io"]["serviceaccount"], json!({"name": "builder", "uid": "sa-1"}));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
}

#[test]
fn a_token_ends_with_what_it_depends_on() {
    let (issuer, _) = issuer();
    let bound =
        |kind: &str, name: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}});
    let secret = json!({"metadata": {"namespace": "ns", "name": "s", "uid": "secret-1"}});
    let node = json!({"metadata": {"name": "n1", "uid": "node-1"}});
    let rows = [
        (json!({}), None, "a/sa/ns/builder", "ServiceAccount"),
        (bound("Pod", "web"), Some(pod()), "a/Pod/ns/web", "Pod"),
        (bound("Secret", "s"), Some(secret), "a/Secret/ns/s", "Secret"),
        (bound("Node", "n1"), Some(node), "a/Node//n1", "Node"),
    ];
    for (spec, object, key, word) in rows {
        let token = token(&issuer, spec, object.as_ref(), now());
        issuer.verify(&plane("a"), &token, now(), &World::new()).unwrap();
        for world in [World::new().with(key, None), World::new().with(key, Some("another"))] {
            assert_eq!(issuer.verify(&plane("a"), &token, now(), &world), Err(TokenError::Gone(word)));
        }
    }
    let token = token(&issuer, bound("Pod", "web"), Some(&pod()), now());
    let moved = World::new().with("a/Node//n1", None);
    assert!(
        issuer.verify(&plane("a"), &token, now(), &moved).is_ok(),
        "a Pod's token does not depend on its Node"
    );
}

/// Each row changes one thing of a token that would be accepted, and signs it with the right key if it has it.
#[test]
fn a_forged_token_is_refused() {
    let (issuer, key) = issuer();
    let good = token(&issuer, json!({}), None, now());
    let kid = jsonwebtoken::decode_header(&good).unwrap().kid;
    let right = EncodingKey::from_ec_pem(key.pem().as_bytes()).unwrap();
    let sign = |header: &Header, claims: &Value, key: &EncodingKey| {
        jsonwebtoken::encode(header, claims, key).unwrap()
    };
    let es256 = Header { kid: kid.clone(), ..Header::new(Algorithm::ES256) };
    let changed = |pointer: &str, value: Value| {
        let mut claims = claims(&good);
        *claims.pointer_mut(pointer).unwrap() = value;
        sign(&es256, &claims, &right)
    };
    let verify = |token: &str| issuer.verify(&plane("a"), token, now(), &World::new());
    verify(&good).unwrap();
    verify(&changed("/jti", "same".into())).unwrap();

    let other = EncodingKey::from_ec_pem(PrivateKey::generate().unwrap().pem().as_bytes()).unwrap();
    let hmac = EncodingKey::from_secret(key.public_pem().unwrap().as_bytes());
    let hs256 = Header { kid: kid.clone(), ..Header::new(Algorithm::HS256) };
    let unknown = Header { kid: Some("unknown".into()), ..Header::new(Algorithm::ES256) };
    let parts: Vec<&str> = good.split('.').collect();
    let none = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"none","kid":{}}}"#, json!(kid)));
    let unsigned = format!("{none}.{}.", parts[1]);
    let mut stolen = claims(&good);
    stolen["sub"] = "system:serviceaccount:kube-system:admin".into();
    let stolen = format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode(stolen.to_string()), parts[2]);
    let critical = Header { crit: Some(vec!["x".into()]), ..es256.clone() };
    let unverifiable = [
        sign(&es256, &claims(&good), &other),
        sign(&hs256, &claims(&good), &hmac),
        sign(&unknown, &claims(&good), &right),
        sign(&critical, &claims(&good), &right),
        unsigned.clone(),
        format!("{unsigned}{}", parts[2]),
        stolen,
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        changed("/freehold.dev", Value::Null),
        changed("/kubernetes.io", Value::Null),
        "".into(),
        "..".into(),
        "a.b.c".into(),
        "x".repeat(20_000),
    ];
    for token in unverifiable {
        assert_eq!(verify(&token), Err(TokenError::Unverifiable), "{token}");
    }
    let rows = [
        (changed("/freehold.dev/plane", "b".into()), TokenError::OtherPlane),
        (changed("/iss", "https://freehold.local/planes/b".into()), TokenError::OtherPlane),
        (changed("/iss", "https://evil.example/planes/a".into()), TokenError::OtherPlane),
        (changed("/exp", (now() - 61).into()), TokenError::Expired),
        (changed("/exp", i64::MIN.into()), TokenError::Expired),
        (changed("/nbf", (now() + 120).into()), TokenError::NotYetValid),
        (changed("/iat", (now() + 120).into()), TokenError::NotYetValid),
        (changed("/sub", "system:serviceaccount:kube-system:admin".into()), TokenError::Contradiction),
        (changed("/sub", "admin".into()), TokenError::Contradiction),
        (changed("/kubernetes.io/serviceaccount/uid", "".into()), TokenError::Gone("ServiceAccount")),
    ];
    for (token, error) in rows {
        assert_eq!(verify(&token), Err(error));
        assert!(verify(&token).is_err(), "a remembered signature changes nothing");
    }
    assert!(matches!(verify(&changed("/aud", json!(["vault"]))), Err(TokenError::Audience(..))));
    assert!(matches!(verify(&changed("/aud", json!([]))), Err(TokenError::Audience(..))));
}

#[test]
fn a_token_of_one_plane_is_refused_in_another() {
    let (issuer, _) = issuer();
    let token = token(&issuer, json!({"audiences": ["https://kubernetes.default.svc"]}), None, now());
    assert!(issuer.verify(&plane("a"), &token, now(), &World::new()).is_ok());
    assert_eq!(issuer.verify(&plane("b"), &token, now(), &World::new()), Err(TokenError::OtherPlane));
}

#[test]
fn who_was_believed_for_a_key_is_so_until_it_is_taken_out() {
    let (old, old_key) = issuer();
    let (new_key, other_key) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let token = token(&old, json!({}), None, now());
    let believed = || old.verify(&plane("a"), &token, now(), &World::new()).map(|verified| verified.user);
    let user = believed().unwrap();
    let stands = || user.basis.as_ref().unwrap().voucher.as_ref().unwrap().stands();
    let (replaced, keys) = (old.changes(), |signing: &PrivateKey, retired: &[&str]| {
        old.replace_keys(KeySet::from_pem(signing.pem(), retired).unwrap());
    });
    keys(&new_key, &[old_key.pem()]);
    assert!(stands() && replaced.has_changed().unwrap());
    assert_eq!(believed().as_ref(), Ok(&user), "by the same voucher");
    keys(&other_key, &[new_key.pem()]);
    assert!(!stands());
    assert_eq!(believed(), Err(TokenError::Unverifiable));
}

#[test]
fn retired_keys_are_believed_and_do_not_sign() {
    let (old, old_key) = issuer();
    let token_of_old = token(&old, json!({}), None, now());
    let new_key = PrivateKey::generate().unwrap();
    let new = issuer_with(&new_key, &[old_key.pem()]);
    assert!(new.verify(&plane("a"), &token_of_old, now(), &World::new()).is_ok());
    assert!(old.verify(&plane("a"), &token(&new, json!({}), None, now()), now(), &World::new()).is_err());
    let keys = new.jwks(&plane("a"));
    assert_eq!(keys["keys"].as_array().unwrap().len(), 2);
    let jwk = serde_json::from_value(keys["keys"][1].clone()).unwrap();
    let public = jsonwebtoken::DecodingKey::from_jwk(&jwk).unwrap();
    let mut validation = jsonwebtoken::Validation::new(Algorithm::ES256);
    validation.set_audience(&["https://kubernetes.default.svc"]);
    jsonwebtoken::decode::<Value>(&token_of_old, &public, &validation).unwrap();
}

/// An issuer as a pair of a plane has it, beside the core server whose key is given.
fn pair_of(name: &str, platform: &PrivateKey) -> TokenIssuer {
    let keys = freehold_pki::pair_token_keys(platform.pem(), name).unwrap();
    TokenIssuer::new(
        "https://freehold.local/planes",
        &["https://kubernetes.default.svc"],
        KeySet::from_bundle(&keys).unwrap(),
    )
}

#[test]
fn tokens_of_a_pair_are_believed_in_its_plane_alone() {
    let (_, platform) = issuer();
    let core = issuer_with(&platform, &[]).with_pairs();
    let (pair, neighbour) = (pair_of("a", &platform), pair_of("b", &platform));
    let honest = token(&pair, json!({}), None, now());
    let (here, there) = (plane("a"), plane("b"));
    let verify = |issuer: &TokenIssuer, at: &PlaneId, token: &str| {
        issuer.verify(at, token, now(), &World::new()).map(drop)
    };
    assert_eq!(verify(&core, &here, &honest), Ok(()), "the core server believes it where the plane moves to");
    assert_eq!(
        verify(&pair, &here, &token(&core, json!({}), None, now())),
        Ok(()),
        "and the other way round"
    );
    for issuer in [&core, &neighbour] {
        assert_eq!(verify(issuer, &there, &honest), Err(TokenError::Unverifiable));
    }
    // What a pair whose key was taken says of other planes, asked for first where its key is known.
    for (victim, name) in [(there.clone(), "b"), (PlaneId::core(), "core"), (PlaneId::infra(), "infra")] {
        let account = json!({"metadata": {"namespace": "default", "name": "default", "uid": "sa-1"}});
        let spec = TokenRequestSpec::parse(&json!({"spec": {}})).unwrap();
        let issued = pair.issue(&victim, &account, &spec, None, now(), &World::new()).unwrap();
        let forged = issued["status"]["token"].as_str().unwrap();
        assert_eq!(verify(&core, &here, forged), Err(TokenError::OtherPlane), "{name}");
        assert_eq!(verify(&core, &victim, forged), Err(TokenError::Unverifiable), "{name}");
        assert_eq!(verify(&neighbour, &victim, forged), Err(TokenError::Unverifiable), "{name}");
    }
    let published = |issuer: &TokenIssuer, at: &PlaneId| {
        let keys = issuer.jwks(at)["keys"].as_array().unwrap().clone();
        keys.iter()
            .map(|key| key["kid"].as_str().unwrap().to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(published(&core, &here), published(&pair, &here));
    assert_eq!((published(&core, &here).len(), published(&core, &PlaneId::core()).len()), (2, 1));
}

#[test]
fn tokens_of_a_pair_end_with_the_key_that_theirs_follows_from() {
    let (_, old) = issuer();
    let core = issuer_with(&old, &[]).with_pairs();
    let token = token(&pair_of("a", &old), json!({}), None, now());
    let user = core.verify(&plane("a"), &token, now(), &World::new()).unwrap().user;
    let new = PrivateKey::generate().unwrap();
    core.replace_keys(KeySet::from_pem(new.pem(), &[old.pem()]).unwrap());
    assert!(core.verify(&plane("a"), &token, now(), &World::new()).is_ok());
    core.replace_keys(KeySet::from_pem(new.pem(), &[]).unwrap());
    assert!(!user.basis.unwrap().voucher.as_ref().unwrap().stands());
    assert_eq!(core.verify(&plane("a"), &token, now(), &World::new()), Err(TokenError::Unverifiable));
}

#[test]
fn a_token_request_is_checked_as_kubernetes_checks_it() {
    let pod_ref =
        |uid: &str| json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": uid}});
    let mut foreign = pod();
    foreign["spec"]["serviceAccountName"] = "other".into();
    let rows = [
        (
            json!({"expirationSeconds": 599}),
            None,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            json!({"expirationSeconds": 4294967297_i64}),
            None,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            json!({"boundObjectRef": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "x"}}),
            None,
            "cannot bind token to object of type apps/v1, Kind=Deployment",
        ),
        (
            pod_ref("stale"),
            Some(pod()),
            "Operation cannot be fulfilled on Pod \"web\": the UID in the bound object reference (stale) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        (
            pod_ref("pod-1"),
            Some(foreign),
            "cannot bind token for serviceaccount \"builder\" to pod running with different serviceaccount name.",
        ),
    ];
    let (issuer, _) = issuer();
    for (spec, bound, message) in rows {
        let outcome = TokenRequestSpec::parse(&json!({"spec": spec})).and_then(|spec| {
            issuer.issue(&plane("a"), &account(), &spec, bound.as_ref(), now(), &World::new())
        });
        assert_eq!(outcome.unwrap_err().message, message);
    }
}

#[test]
fn a_token_review_tells_audiences_and_errors() {
    let (issuer, _) = issuer();
    let world = World::new();
    let token =
        token(&issuer, json!({"audiences": ["vault", "https://kubernetes.default.svc"]}), None, now());
    let review = |spec: Value| issuer.review(&plane("a"), &spec, now(), &world);
    let status = review(json!({"token": token, "audiences": ["other", "vault"]}));
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["vault"])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:ns:builder");
    assert_eq!(review(json!({"token": token}))["audiences"], json!(["https://kubernetes.default.svc"]));
    for spec in [json!({"token": token, "audiences": ["other"]}), json!({"token": "x"}), json!({})] {
        let status = review(spec);
        assert_eq!(status.get("authenticated"), None);
        assert!(
            status["error"].as_str().unwrap().trim_start_matches('[').starts_with("invalid bearer token")
        );
    }
}

struct Certificates {
    clients: Authority,
    proxies: Authority,
    roots: Roots,
}

impl Certificates {
    fn new() -> Self {
        let (clients, proxies) = (Authority::generate("ca").unwrap(), Authority::generate("ca").unwrap());
        let front = FrontProxy {
            ca_pem: proxies.cert_pem().into(),
            allowed_names: vec!["front".into()],
            ..FrontProxy::default()
        };
        let roots = Roots::new(clients.cert_pem(), Some(&front)).unwrap();
        Self { clients, proxies, roots }
    }

    fn peer(&self, authority: &Authority, user: &str, plane: Option<&str>) -> Peer {
        let groups = ["dev".to_owned()];
        let plane = plane.map(|plane| PlaneBinding { plane, generation: 0 });
        let client = ClientName { user, groups: &groups, plane };
        let pair = authority.issue_client(&client, Duration::from_secs(DAY as u64)).unwrap();
        self.parse(&pair)
    }

    fn parse(&self, pair: &Pair) -> Peer {
        Peer::parse(&certificates_der(&pair.cert_pem).unwrap(), &self.roots).unwrap()
    }
}

fn ask(peer: Option<&Peer>, list: &[(&str, &str)], in_plane: &str, now: i64) -> Result<Option<User>, u16> {
    let authenticator = Authenticator::new(Arc::new(issuer().0));
    let headers = headers(list);
    let plane = plane(in_plane);
    let request = Request { plane: &plane, peer, headers: &headers, now };
    authenticator.authenticate(&request, &World::new()).map_err(|status| status.code)
}

#[test]
fn a_certificate_counts_in_its_plane_while_it_is_valid() {
    let certificates = Certificates::new();
    let rows = [
        (None, "a", 0, Ok(true)),
        (None, "core", 0, Ok(true)),
        (Some("a"), "a", 0, Ok(true)),
        (Some("a"), "b", 0, Err(401)),
        (Some("a"), "core", 0, Err(401)),
        (Some("a"), "a", DAY + 1, Err(401)),
        (None, "a", -DAY, Err(401)),
    ];
    for (bound, asked, later, expected) in rows {
        let peer = certificates.peer(&certificates.clients, "jane", bound);
        let answer = ask(Some(&peer), &[], asked, now() + later);
        assert_eq!(answer.clone().map(|user| user.is_some()), expected, "{bound:?} in {asked}");
        if let Ok(Some(user)) = answer {
            assert_eq!(
                (user.name.as_str(), user.groups),
                ("jane", vec!["dev".into(), "system:authenticated".into()])
            );
            assert_eq!(user.plane, bound.map(plane));
            assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
        }
    }
    for bound in ["NOT A PLANE", "a/../b"] {
        let client = ClientName {
            user: "eve",
            plane: Some(PlaneBinding { plane: bound, generation: 0 }),
            ..ClientName::default()
        };
        let Ok(pair) = certificates.clients.issue_client(&client, Duration::from_secs(60)) else { continue };
        assert!(
            Peer::parse(&certificates_der(&pair.cert_pem).unwrap(), &certificates.roots).is_err(),
            "{bound}"
        );
    }
}

#[test]
fn only_a_front_proxy_is_believed_for_others() {
    let certificates = Certificates::new();
    let identity = [
        ("x-remote-user", "jane"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-k%2fz", "v"),
    ];
    let name = |peer: Option<&Peer>, list: &[(&str, &str)], plane: &str| {
        ask(peer, list, plane, now()).map(|user| user.map(|user| user.name))
    };
    let front = certificates.peer(&certificates.proxies, "front", None);
    let user = ask(Some(&front), &identity, "a", now()).unwrap().unwrap();
    assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
    assert_eq!(user.extra["k/z"], ["v"]);
    assert_eq!(name(Some(&front), &[], "a"), Ok(None), "a front proxy is nobody itself");

    let imposter = certificates.peer(&certificates.clients, "front", None);
    assert_eq!(name(Some(&imposter), &identity, "a"), Ok(Some("front".into())));
    let misnamed = certificates.peer(&certificates.proxies, "other", None);
    assert_eq!(name(Some(&misnamed), &identity, "a"), Ok(None));
    let stranger = certificates.peer(&Authority::generate("ca").unwrap(), "front", None);
    assert_eq!(name(Some(&stranger), &identity, "a"), Ok(None));
    assert_eq!(name(None, &identity, "a"), Ok(None));
    assert_eq!(ask(Some(&front), &identity, "a", now() + DAY + 1), Err(401));

    for (bound, plane, expected) in
        [("a", "a", Ok(Some("jane".into()))), ("a", "b", Err(401)), ("?", "a", Err(401))]
    {
        let list = [("x-remote-user", "jane"), ("x-remote-extra-plane.freehold.dev", bound)];
        assert_eq!(name(Some(&front), &list, plane), expected);
    }
}

#[test]
fn an_authority_for_everyone_needs_names_of_front_proxies() {
    let ca = Authority::generate("ca").unwrap();
    let front = |names: &[&str]| FrontProxy {
        ca_pem: ca.cert_pem().into(),
        allowed_names: names.iter().map(ToString::to_string).collect(),
        ..FrontProxy::default()
    };
    assert!(Roots::new(ca.cert_pem(), Some(&front(&[]))).is_err());
    assert!(Roots::new(ca.cert_pem(), Some(&front(&["front"]))).is_ok());
}

#[test]
fn authorization_is_read_as_rfc_6750_has_it() {
    let rows = [
        ("Bearer nonsense", Err(401)),
        ("bearer nonsense", Err(401)),
        ("Bearer ", Ok(None)),
        ("Bearer", Ok(None)),
        ("Basic amFuZTpwdw==", Ok(None)),
        ("", Ok(None)),
    ];
    for (value, expected) in rows {
        assert_eq!(ask(None, &[("authorization", value)], "a", now()), expected, "{value:?}");
    }
}

#[test]
fn impersonation_asks_for_each_part() {
    let parse = |list: &[(&str, &str)]| ImpersonationRequest::parse(&headers(list));
    assert_eq!(parse(&[]), Ok(None));
    let all = [
        ("impersonate-user", "jane"),
        ("impersonate-group", "g1"),
        ("impersonate-group", "g2"),
        ("impersonate-extra-scopes", "x"),
        ("impersonate-extra-scopes", "y"),
        ("impersonate-extra-plane.freehold.dev", "victim"),
        ("impersonate-uid", "7"),
    ];
    let request = parse(&all).unwrap().unwrap();
    let general = *request.modes(&User::default()).last().unwrap();
    let parts: Vec<_> = request
        .parts(general)
        .iter()
        .map(|p| format!("{}/{}/{} {}", p.group, p.resource, p.subresource, p.name))
        .collect();
    assert_eq!(
        parts,
        [
            "/users/ jane",
            "/groups/ g1",
            "/groups/ g2",
            "authentication.k8s.io/userextras/plane.freehold.dev victim",
            "authentication.k8s.io/userextras/scopes x",
            "authentication.k8s.io/userextras/scopes y",
            "authentication.k8s.io/uids/ 7"
        ]
    );
    // It is asked for, and nobody gets it.
    for mode in request.modes(&User::default()) {
        let (part, why) = request.refused(mode).expect("the plane is refused");
        assert_eq!(
            (part.resource, why.as_str()),
            ("userextras", r#"the extra key "plane.freehold.dev" is reserved"#)
        );
    }
    for row in &all[1..5] {
        assert_eq!(parse(&[*row]).unwrap_err().code, 400, "{row:?} without a user");
    }
    let many: Vec<_> = std::iter::once(all[0]).chain(std::iter::repeat_n(all[1], 300)).collect();
    assert_eq!(parse(&many).unwrap_err().code, 400);
}

#[test]
fn an_impersonated_user_stays_in_its_plane() {
    let requester = User { name: "admin".into(), ..User::default() };
    let bound = User { plane: Some(plane("core")), ..requester.clone() };
    let become_ = |list: &[(&str, &str)], requester: &User, in_plane: &str| {
        let wanted = ImpersonationRequest::parse(&headers(list)).unwrap().unwrap();
        let general = *wanted.modes(requester).last().unwrap();
        wanted.user(requester, &plane(in_plane), general)
    };
    let jane = [("impersonate-user", "jane")];
    assert_eq!(become_(&jane, &requester, "a").plane, Some(plane("a")));
    assert_eq!(become_(&jane, &requester, "core").plane, None);
    assert_eq!(become_(&jane, &bound, "core").plane, Some(plane("core")));
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let rows: [Row<'_>; 5] = [
        (&jane, &["system:authenticated"]),
        (&[("impersonate-user", "jane"), ("impersonate-group", "g")], &["g", "system:authenticated"]),
        (
            &[("impersonate-user", "jane"), ("impersonate-group", "system:unauthenticated")],
            &["system:unauthenticated"],
        ),
        (&[("impersonate-user", "system:anonymous")], &["system:unauthenticated"]),
        (
            &[("impersonate-user", "system:serviceaccount:ns:x")],
            &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
        ),
    ];
    for (list, groups) in rows {
        assert_eq!(become_(list, &requester, "a").groups, groups);
    }
}

#[test]
fn constrained_impersonation_is_by_the_kind_of_identity() {
    let agent = User {
        name: "system:serviceaccount:ns:agent".into(),
        extra: [("authentication.kubernetes.io/node-name".to_owned(), vec!["n1".to_owned()])].into(),
        ..User::default()
    };
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let rows: [Row<'_>; 6] = [
        (&[("impersonate-user", "jane")], &["impersonate:user-info users jane", "impersonate users jane"]),
        (
            &[("impersonate-user", "system:serviceaccount:ns:x")],
            &["impersonate:serviceaccount serviceaccounts x", "impersonate serviceaccounts x"],
        ),
        (
            &[("impersonate-user", "system:node:n1")],
            &[
                "impersonate:associated-node nodes *",
                "impersonate:arbitrary-node nodes n1",
                "impersonate users system:node:n1",
            ],
        ),
        (
            &[("impersonate-user", "system:node:n2")],
            &["impersonate:arbitrary-node nodes n2", "impersonate users system:node:n2"],
        ),
        (
            &[("impersonate-user", "system:node:n2"), ("impersonate-group", "g")],
            &["impersonate users system:node:n2"],
        ),
        (
            &[("impersonate-user", "jane"), ("impersonate-group", "system:masters")],
            &["impersonate:user-info refused", "impersonate users jane"],
        ),
    ];
    for (list, expected) in rows {
        let wanted = ImpersonationRequest::parse(&headers(list)).unwrap().unwrap();
        let asked: Vec<String> = wanted
            .modes(&agent)
            .into_iter()
            .map(|mode| match wanted.refused(mode) {
                Some(_) => format!("{} refused", mode.verb),
                None => {
                    let first = wanted.parts(mode)[0];
                    format!("{} {} {}", mode.verb, first.resource, first.name)
                }
            })
            .collect();
        assert_eq!(asked, expected);
    }
    let node =
        ImpersonationRequest::parse(&headers(&[("impersonate-user", "system:node:n1")])).unwrap().unwrap();
    let mode = node.modes(&agent)[0];
    assert_eq!(node.user(&agent, &plane("a"), mode).groups, ["system:nodes", "system:authenticated"]);
}

#[test]
fn a_user_is_written_as_kubernetes_writes_it() {
    let user = User { name: "jane".into(), groups: vec!["g".into()], ..User::default() };
    assert_eq!(review::user_info(&user), json!({"username": "jane", "groups": ["g"]}));
}
