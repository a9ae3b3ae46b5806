//! Projects at hosts of their own.

use crate::client::{DOMAIN, Running};

const LIST: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_project_is_at_the_root_of_its_host_and_nothing_else_is() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("/projects/web", "a", "x").await;
    let web = admin.at_project("web");
    let list = web.get(LIST).await;
    assert_eq!(list.json()["items"][0]["metadata"]["name"], "a");
    assert_eq!(admin.at_project("WEB").get(LIST).await.json()["items"][0]["metadata"]["name"], "a");
    assert_eq!(admin.at_project("shop").get(LIST).await.json()["items"], serde_json::json!([]));
    for path in
        ["/projects/shop/api", "/organizations/acme/api", "/planes/core/api", "/planes/-/api/v1/secrets"]
    {
        assert_eq!(web.get(path).await.code, 404, "{path}");
    }
    assert_eq!(admin.at_project("gone").get(LIST).await.code, 404);
    let documents = web.get("/openapi/v3").await.json();
    let url = documents["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    assert!(url.starts_with("/openapi/v3/api/v1?hash="), "{url}");
}

#[tokio::test]
async fn a_request_for_another_projects_host_is_misdirected() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let web = admin.at_project("web");
    for (client, host, expected) in [
        (&web, format!("web.{DOMAIN}"), 200),
        (&web, format!("Web.{DOMAIN}:7443"), 200),
        (&web, server.address.to_string(), 200),
        (&web, format!("shop.{DOMAIN}"), 421),
        (&admin, format!("web.{DOMAIN}"), 421),
        (&admin, format!("a.web.{DOMAIN}"), 200),
    ] {
        let answer = client.send("GET", LIST, &[("host", &host)], "").await;
        assert_eq!(answer.code, expected, "{host}: {}", answer.text());
    }
    let path = format!("https://shop.{DOMAIN}{LIST}");
    assert_eq!(web.at_authority("GET", &path, &[]).await.failure().1, "MisdirectedRequest");
    assert_eq!(web.at_authority("GET", &format!("https://web.{DOMAIN}{LIST}"), &[]).await.code, 200);
}

#[tokio::test]
async fn an_identity_of_one_project_is_nobody_at_the_host_of_another() {
    let server = Running::start(|_| {}).await;
    let jane = server.client(Some(("jane", &["system:masters"], Some("web"))));
    assert_eq!(jane.at_project("web").get(LIST).await.code, 200);
    assert_eq!(jane.at_project("shop").get(LIST).await.code, 401);
}
