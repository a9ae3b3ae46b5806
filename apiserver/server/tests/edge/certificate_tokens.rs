use crate::client::{Lines, Pki, Running};
use freehold_apiserver_server::{
    Authorities, CertificateToken, CertificateTokens, Pages, PagesHandler, Payload,
};
use freehold_pki::{ClientName, PlaneBinding};
use http::Response;
use std::{sync::Arc, time::Duration};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const DAY: Duration = Duration::from_secs(86400);

async fn start() -> (Running, CertificateTokens) {
    let tokens = CertificateTokens::default();
    let handler: PagesHandler = Arc::new(|_| Box::pin(async { Response::new(Payload::empty()) }));
    let pages = Pages { prefix: "/console/", handler, tokens: tokens.clone() };
    (Running::start(|config| config.pages = Some(pages)).await, tokens)
}

/// A token for a certificate of a user, who is a master where they are the admin.
fn issue(pki: &Pki, tokens: &CertificateTokens, (user, plane): (&str, Option<&str>)) -> CertificateToken {
    let masters = ["system:masters".to_owned()];
    let groups: &[String] = if user == "admin" { &masters } else { &[] };
    let plane = plane.map(|plane| PlaneBinding { plane, generation: 0 });
    let pair = pki.clients.issue_client(&ClientName { user, groups, plane }, DAY).unwrap();
    tokens.issue(&pair.cert_pem).unwrap()
}

#[tokio::test]
async fn a_token_reaches_what_its_certificate_reaches_and_ends_with_its_holder() {
    let (server, tokens) = start().await;
    let jane = issue(&server.pki, &tokens, ("jane", None));
    let bound = issue(&server.pki, &tokens, ("admin", Some("web")));
    let strangers = issue(&Pki::new(), &tokens, ("admin", None));
    let admin = issue(&server.pki, &tokens, ("admin", None));
    let (nobody, certified) = (server.client(None), server.client(Some(("jane", &[], None))));
    let bearer = |token: &str| format!("Bearer {token}");
    let rows = [
        (&nobody, jane.secret(), MAPS, 200),
        (&nobody, jane.secret(), "/api/v1/secrets", 403),
        (&nobody, admin.secret(), "/api/v1/secrets", 200),
        (&nobody, bound.secret(), "/projects/web/api", 200),
        (&nobody, bound.secret(), MAPS, 401),
        (&nobody, bound.secret(), "/projects/other/api", 401),
        (&nobody, strangers.secret(), MAPS, 401),
        (&nobody, "fhct_unknown", MAPS, 401),
        // A certificate of the connection counts before any token.
        (&certified, admin.secret(), "/api/v1/secrets", 403),
    ];
    for (client, token, path, code) in rows {
        let got = client.send("GET", path, &[("authorization", &bearer(token))], "").await;
        assert_eq!(got.code, code, "{path}: {}", got.text());
    }
    let text = bearer(jane.secret());
    drop(jane);
    assert_eq!(nobody.send("GET", MAPS, &[("authorization", &text)], "").await.code, 401, "it was dropped");
}

#[tokio::test]
async fn a_watch_by_a_token_ends_with_the_authority_that_vouched_for_it() {
    let (server, tokens) = start().await;
    server.admin().make("", "a", "1").await;
    let jane = issue(&server.pki, &tokens, ("jane", None));
    let authorization = format!("Bearer {}", jane.secret());
    let headers = [("authorization", authorization.as_str())];
    let nobody = server.client(None);
    let mut watch = Lines::with(&nobody, WATCH, &headers).await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    let next = Pki::new();
    let clients = |clients: String| Authorities { clients, front_proxies: Vec::new() };
    let own = server.pki.clients.cert_pem();
    server.reload.authorities(&clients(format!("{own}{}", next.clients.cert_pem()))).unwrap();
    assert_eq!(nobody.send("GET", MAPS, &headers, "").await.code, 200, "one authority more is no reason");
    server.reload.authorities(&clients(next.clients.cert_pem().to_owned())).unwrap();
    assert_eq!(nobody.send("GET", MAPS, &headers, "").await.code, 401);
    while watch.next().await.is_some() {}
}
