//! Signing in and out.

use crate::{
    error::Failure,
    gateway::Gateway,
    guard,
    identity::{Caller, Credentials},
    oidc::{self, Oidc, Tokens},
    reply::{self, Reply},
    sessions::{self, Method, Session},
};
use freehold_machinery::Value;
use http::{HeaderValue, StatusCode, header, request::Parts};
use serde::Deserialize;
use serde_json::json;
use std::{sync::Arc, time::Instant};

/// The name of whoever shows nothing.
const ANONYMOUS: &str = "system:anonymous";
/// Longest code or token.
const LONGEST: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Landing {
    #[serde(default)]
    landing: String,
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is not as expected: {error}")))
}

impl Gateway {
    /// How a person can sign in.
    pub(crate) fn sign_in_methods(&self) -> Reply {
        let methods = json!({"link": self.links.is_some(), "token": true, "oidc": self.oidc.is_some()});
        reply::json(StatusCode::OK, &methods)
    }

    /// Signs in with a one-time code.
    pub(crate) async fn sign_in_by_link(&self, parts: &Parts, body: &[u8]) -> Result<Reply, Failure> {
        let Code { code } = read(body)?;
        let credentials = self.links.as_ref().and_then(|links| links.redeem(&code));
        let refused =
            || Failure::new(401, "Unauthorized", "the link was used before, or is too old: ask for another");
        self.sign_in(parts, Method::Link, credentials.ok_or_else(refused)?, None).await
    }

    /// Signs in with a bearer token.
    pub(crate) async fn sign_in_by_token(&self, parts: &Parts, body: &[u8]) -> Result<Reply, Failure> {
        let Token { token } = read(body)?;
        let token = token.trim();
        if token.is_empty() || token.len() > LONGEST {
            return Err(Failure::bad_request("a token is wanted"));
        }
        self.sign_in(parts, Method::Token, Credentials::Token(token.to_owned()), None).await
    }

    /// Begins a sign-in at the issuer, and returns where the browser goes.
    pub(crate) async fn begin_oidc(&self, body: &[u8]) -> Result<Reply, Failure> {
        let issuer = self.oidc.as_ref().ok_or_else(Failure::not_found)?;
        let Landing { landing } = read(body)?;
        let begun = issuer.begin(guard::landing(&landing), Instant::now()).await?;
        let mut reply = reply::json(StatusCode::OK, &json!({"location": begun.location}));
        // The way back begins at the issuer's origin, where a strict cookie is not sent.
        let seconds = oidc::PATIENCE.as_secs();
        set(&mut reply, guard::set_cookie(guard::LOGIN, &begun.cookie, "Lax", seconds));
        Ok(reply)
    }

    /// Ends a sign-in at the issuer. Whatever fails is shown by the sign-in page.
    pub(crate) async fn finish_oidc(&self, parts: &Parts) -> Reply {
        let outcome = self.exchange(parts).await;
        let mut reply = outcome.unwrap_or_else(|failure| {
            let message = failure.status().message;
            tracing::info!(message, "a sign-in at the issuer failed");
            let reason = oidc::form(&[("failed", &message)]);
            reply::redirect(&format!("{}login#{reason}", crate::PREFIX))
        });
        set(&mut reply, guard::set_cookie(guard::LOGIN, "", "Lax", 0));
        reply
    }

    async fn exchange(&self, parts: &Parts) -> Result<Reply, Failure> {
        let issuer = self.oidc.as_ref().ok_or_else(Failure::not_found)?;
        let query = parts.uri.query().unwrap_or_default();
        let wanted = |name: &str| oidc::field(query, name);
        let (Some(state), Some(code)) = (wanted("state"), wanted("code")) else {
            let why = wanted("error_description").or_else(|| wanted("error")).unwrap_or_default();
            return Err(Failure::new(401, "Unauthorized", format!("the issuer did not sign in: {why}")));
        };
        let cookie = guard::cookie(&parts.headers, guard::LOGIN);
        let (tokens, landing) = issuer.finish((&state, &code), cookie, Instant::now()).await?;
        let credentials = Credentials::Token(tokens.id_token.clone());
        let signed_in = self.sign_in(parts, Method::Oidc, credentials, Some(tokens)).await?;
        let mut reply = reply::redirect(&landing);
        for cookie in signed_in.headers().get_all(header::SET_COOKIE) {
            reply.headers_mut().append(header::SET_COOKIE, cookie.clone());
        }
        Ok(reply)
    }

    /// Begins a session for whoever the apiserver says that the credentials are of. The session that the browser had ends.
    async fn sign_in(
        &self,
        parts: &Parts,
        method: Method,
        credentials: Credentials,
        tokens: Option<Tokens>,
    ) -> Result<Reply, Failure> {
        let caller = Caller::new(&self.upstream, &self.anonymous, credentials)?;
        let person = caller.person().await?;
        if person.name.is_empty() || person.name == ANONYMOUS {
            return Err(Failure::new(401, "Unauthorized", "the credentials are nobody's"));
        }
        let now = Instant::now();
        if let Some(before) =
            guard::cookie(&parts.headers, guard::SESSION).and_then(|c| self.sessions.get(c, now))
        {
            self.sessions.end(&before);
        }
        tracing::info!(user = person.name, method = method.as_str(), "signed in");
        let (cookie, session) = self.sessions.begin(person, method, (caller, tokens), now);
        let mut reply = reply::json(StatusCode::OK, &self.describe(&session));
        set(&mut reply, guard::set_cookie(guard::SESSION, &cookie, "Strict", sessions::LIFE.as_secs()));
        Ok(reply)
    }

    /// What a browser learns of its session.
    pub(crate) fn describe(&self, session: &Session) -> Value {
        let left = sessions::LIFE.saturating_sub(session.began.elapsed());
        json!({
            "user": session.person.name,
            "groups": session.person.groups,
            "method": session.method.as_str(),
            "expiresInSeconds": left.as_secs(),
            "version": env!("CARGO_PKG_VERSION"),
            "server": self.public_url,
            "certificateAuthority": self.upstream.ca_pem,
            "issuer": self.oidc.as_ref().filter(|_| session.method == Method::Oidc).map(Oidc::describe),
        })
    }

    /// Ends the session, or all sessions of its user.
    pub(crate) async fn sign_out(&self, session: &Arc<Session>, everywhere: bool) -> Reply {
        self.sessions.end(session);
        if everywhere {
            self.sessions.end_all(&session.person.name);
        }
        let issuer = self.oidc.as_ref().filter(|_| session.method == Method::Oidc);
        let location = match issuer {
            Some(issuer) => issuer.sign_out_url().await,
            None => None,
        };
        let mut reply = reply::json(StatusCode::OK, &json!({"location": location}));
        set(&mut reply, guard::set_cookie(guard::SESSION, "", "Strict", 0));
        let clear = HeaderValue::from_static("\"cache\", \"storage\"");
        reply.headers_mut().insert(http::HeaderName::from_static("clear-site-data"), clear);
        reply
    }

    /// Who the session acts as now. A token that ends soon is renewed first; a session whose token can't be renewed ends.
    pub(crate) async fn caller(&self, session: &Session) -> Result<Caller, Failure> {
        if let (Method::Oidc, Some(issuer)) = (session.method, &self.oidc) {
            let mut tokens = session.tokens.lock().await;
            let now = Instant::now();
            if let Some(due) = tokens.as_ref().filter(|tokens| tokens.is_due(now)) {
                let renewed = issuer.renew(due, now).await.inspect_err(|failure| {
                    tracing::info!(user = session.person.name, %failure, "a session ends: its token can't be renewed");
                    self.sessions.end(session);
                });
                let renewed = renewed.map_err(|_| Failure::unauthorized())?;
                *session.caller.lock() = Caller::bearer(&self.anonymous, &renewed.id_token)?;
                *tokens = Some(renewed);
            }
        }
        Ok(session.caller.lock().clone())
    }
}

fn set(reply: &mut Reply, cookie: String) {
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        reply.headers_mut().append(header::SET_COOKIE, value);
    }
}
