//! The gateway's own API: routes below `/console/api/`.

use crate::{
    error::Failure,
    forward,
    gateway::Gateway,
    guard,
    reply::{self, Reply},
    sessions::Session,
    streams::Wanted,
};
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use serde::de::DeserializeOwned;
use std::{sync::Arc, time::Instant};

/// The description of this API.
const OPENAPI: &str = include_str!("openapi.json");

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Description,
    Callback,
    Methods,
    ByLink,
    ByToken,
    ByIssuer,
    Session,
    SignOut,
    Stream,
    BeginWatch,
    End,
    BeginTerminal,
    Input,
    Forward,
}

/// All routes: method, path below `/console/api/`, meaning. A variable is one segment, `{path}` all that follow.
const ROUTES: [(&str, &str, Route); 19] = [
    ("GET", "openapi.json", Route::Description),
    ("GET", "login", Route::Methods),
    ("GET", "login/callback", Route::Callback),
    ("POST", "login/link", Route::ByLink),
    ("POST", "login/token", Route::ByToken),
    ("POST", "login/oidc", Route::ByIssuer),
    ("GET", "session", Route::Session),
    ("DELETE", "session", Route::SignOut),
    ("GET", "watch", Route::Stream),
    ("PUT", "watch/{stream}/{watch}", Route::BeginWatch),
    ("DELETE", "watch/{stream}/{watch}", Route::End),
    ("PUT", "exec/{stream}/{terminal}", Route::BeginTerminal),
    ("POST", "exec/{stream}/{terminal}", Route::Input),
    ("DELETE", "exec/{stream}/{terminal}", Route::End),
    ("GET", "k8s/{path}", Route::Forward),
    ("POST", "k8s/{path}", Route::Forward),
    ("PUT", "k8s/{path}", Route::Forward),
    ("PATCH", "k8s/{path}", Route::Forward),
    ("DELETE", "k8s/{path}", Route::Forward),
];

/// Whether a path is one of a template.
fn fits(template: &str, path: &[&str]) -> bool {
    let parts: Vec<&str> = template.split('/').collect();
    let rest = parts.last() == Some(&"{path}");
    let same = parts.iter().zip(path).all(|(part, segment)| part.starts_with('{') || part == segment);
    same && (parts.len() == path.len() || rest && path.len() > parts.len())
}

/// The route of a request.
fn find(method: &str, path: &[&str]) -> Result<Route, Failure> {
    let mut here = ROUTES.iter().filter(|(_, template, _)| fits(template, path)).peekable();
    if here.peek().is_none() {
        return Err(Failure::not_found());
    }
    let found = here.find(|(allowed, ..)| *allowed == method).map(|(.., route)| *route);
    found.ok_or_else(|| Failure::new(405, "MethodNotAllowed", "the gateway has no such method here"))
}

/// Answers a request.
pub(crate) async fn route(gateway: &Gateway, parts: &Parts, body: Bytes) -> Result<Reply, Failure> {
    let path = parts.uri.path().strip_prefix("/console/api/").unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    let found = find(parts.method.as_str(), &segments);
    match found {
        // An issuer sends browsers here by a link. What it brings is bound to the browser by a cookie of its own.
        Ok(Route::Callback) => return Ok(gateway.finish_oidc(parts).await),
        Ok(Route::Description) => return Ok(reply::bytes(StatusCode::OK, "application/json", OPENAPI)),
        _ => guard::same_origin(parts, gateway.origin.as_deref())?,
    }
    match found? {
        Route::Methods => Ok(gateway.sign_in_methods()),
        Route::ByLink => gateway.sign_in_by_link(parts, &body).await,
        Route::ByToken => gateway.sign_in_by_token(parts, &body).await,
        Route::ByIssuer => gateway.begin_oidc(&body).await,
        route => of_session(gateway, parts, (route, &segments), body).await,
    }
}

/// Answers a request that needs a session.
async fn of_session(
    gateway: &Gateway,
    parts: &Parts,
    (route, segments): (Route, &[&str]),
    body: Bytes,
) -> Result<Reply, Failure> {
    let session = session(gateway, parts)?;
    let at = match segments {
        [_, stream, name] => (*stream, *name),
        _ => ("", ""),
    };
    match route {
        Route::Session => Ok(reply::json(StatusCode::OK, &gateway.describe(&session))),
        Route::SignOut => {
            let everywhere = parts.uri.query() == Some("everywhere=true");
            Ok(gateway.sign_out(&session, everywhere).await)
        }
        Route::Stream => gateway.streams.open(&session),
        Route::BeginWatch => {
            let wanted: Wanted = read(&body, "watch")?;
            gateway.caller(&session).await?;
            gateway.streams.begin(at, &session, &wanted)?;
            Ok(reply::empty(StatusCode::ACCEPTED))
        }
        Route::End => {
            gateway.streams.end(at, &session)?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        Route::BeginTerminal => {
            let wanted = read(&body, "terminal")?;
            gateway.caller(&session).await?;
            gateway.streams.begin_terminal(at, &session, &wanted)?;
            Ok(reply::empty(StatusCode::ACCEPTED))
        }
        Route::Input => {
            gateway.streams.input(at, &session, read(&body, "input of a terminal")?).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        Route::Forward => {
            let whole = parts.uri.path_and_query().map_or("", |whole| whole.as_str());
            let target = whole.strip_prefix("/console/api/k8s").unwrap_or_default();
            let caller = gateway.caller(&session).await?;
            forward::forward(&caller, parts, target, body, &session).await
        }
        _ => Err(Failure::not_found()),
    }
}

/// Reads a body.
fn read<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is no {what}: {error}")))
}

fn session(gateway: &Gateway, parts: &Parts) -> Result<Arc<Session>, Failure> {
    let now = Instant::now();
    let cookie = guard::cookie(&parts.headers, guard::SESSION).ok_or_else(Failure::unauthorized)?;
    gateway.sessions.get(cookie, now).ok_or_else(Failure::unauthorized)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn document() -> Value {
        serde_json::from_str(OPENAPI).unwrap()
    }

    #[test]
    fn the_description_has_each_route_and_no_other() {
        let document = document();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys().filter(|method| *method != "parameters");
                methods.map(|method| (method.to_uppercase(), path[1..].to_owned())).collect::<Vec<_>>()
            })
            .collect();
        let served =
            ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(described, served);
    }

    /// References below a value.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
                Some(text) if name == "$ref" => found.push(text.to_owned()),
                _ => references(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn the_description_is_openapi_of_which_nothing_is_missing() {
        let document = document();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let mut names = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{name} is there twice");
                assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {path}");
                let answers = operation["responses"].as_object().unwrap();
                assert!(answers.values().all(|answer| answer["description"].is_string()), "{method} {path}");
                let given = operation["parameters"].as_array().into_iter().flatten();
                let given: BTreeSet<&str> = given.filter_map(|one| one["name"].as_str()).collect();
                let variables = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
                assert!(variables.into_iter().all(|variable| given.contains(variable)), "{method} {path}");
            }
        }
    }

    #[test]
    fn a_path_leads_to_one_route_or_says_why_not() {
        let code = |method: &str, path: &str| {
            find(method, &path.split('/').collect::<Vec<_>>()).map_err(|failure| failure.status().code)
        };
        assert_eq!(code("GET", "k8s/api/v1/pods"), Ok(Route::Forward));
        assert_eq!(code("DELETE", "exec/a/b"), Ok(Route::End));
        assert_eq!(code("HEAD", "k8s/api/v1"), Err(405));
        assert_eq!(code("POST", "session"), Err(405));
        for path in ["", "k8s", "session/x", "watch/a", "watch/a/b/c", "login/"] {
            assert_eq!(code("GET", path), Err(404), "{path}");
        }
    }
}
