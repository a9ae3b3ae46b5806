//! Whose identity a request has.
//!
//! A token is passed on as it is: the API server authenticates it, and the proxy's account needs no right for that. Who it
//! is, the server says to the token itself (`SelfSubjectReview`), impersonation included. A client certificate cannot be
//! passed on: the proxy verifies it, and its account impersonates the name and the groups in it.

use crate::reply::remove_hop_by_hop;
use freehold_client::{Client, RawRequest};
use freehold_machinery::{Status, Value};
use freehold_pki::CertificateInfo;
use freehold_tenancy_decide::admission::User;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::json;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const IMPERSONATE: &str = "impersonate-";

/// The clients that requests go through.
pub(crate) struct Clients {
    /// Without an identity: headers of the caller say who it is.
    pub(crate) anonymous: Client,
    /// As the proxy's account.
    pub(crate) account: Client,
}

/// A caller, with what its requests to the API server are made of.
#[derive(Clone)]
pub(crate) struct Caller {
    /// Headers that say who it is.
    identity: HeaderMap,
    /// The user of a client certificate.
    certified: Option<User>,
}

/// Whether a header says who asks, to any API server that is set up to believe it.
fn is_identity(name: &str) -> bool {
    name == "authorization" || name.starts_with(IMPERSONATE) || name.starts_with("x-remote-")
}

/// The subprotocols that contain a token where `WebSocket` clients have no other place for it.
fn has_token_in_protocol(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter();
    offered.filter_map(|value| value.to_str().ok()).any(|value| value.contains("base64url.bearer."))
}

/// The user of a verified client certificate, if it may be impersonated.
///
/// # Errors
/// A sentence for the caller.
pub(crate) fn certified(der: &[u8]) -> Result<User, String> {
    let info = CertificateInfo::parse(der).map_err(|_| "the client certificate cannot be read".to_owned())?;
    if info.common_name.is_empty() {
        return Err("the client certificate has no common name".to_owned());
    }
    if !info.planes().is_empty() {
        return Err("the client certificate is bound to a control plane; use a token here".to_owned());
    }
    let system = |name: &&String| name.starts_with("system:");
    if let Some(name) = info.organizations.iter().chain([&info.common_name]).find(system) {
        return Err(format!(
            "{name:?} is of the control plane, and is never impersonated: use its own address"
        ));
    }
    Ok(User { name: info.common_name, groups: info.organizations })
}

impl Caller {
    /// The caller of a request. A token counts, and a certificate without one.
    ///
    /// # Errors
    /// A `Status` where a certificate comes with headers of impersonation.
    pub(crate) fn of(headers: &HeaderMap, certificate: Option<&User>) -> Result<Self, Status> {
        let own = |prefix: &'static str| {
            let chosen = headers.iter().filter(move |(name, _)| name.as_str().starts_with(prefix));
            chosen.map(|(name, value)| (name.clone(), value.clone()))
        };
        let has_token = headers.contains_key(header::AUTHORIZATION) || has_token_in_protocol(headers);
        let Some(user) = certificate.filter(|_| !has_token) else {
            let identity = own("authorization").chain(own(IMPERSONATE)).collect();
            return Ok(Self { identity, certified: None });
        };
        if own(IMPERSONATE).next().is_some() {
            let why =
                "impersonation is for callers with a token: the proxy impersonates holders of certificates";
            return Err(Status::new(403, "Forbidden", why));
        }
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes());
        let mut identity = HeaderMap::new();
        let name = value(&user.name).map_err(|_| Status::unauthorized())?;
        identity.insert("impersonate-user", name);
        for group in &user.groups {
            identity.append("impersonate-group", value(group).map_err(|_| Status::unauthorized())?);
        }
        identity.append("impersonate-group", HeaderValue::from_static("system:authenticated"));
        Ok(Self { identity, certified: Some(user.clone()) })
    }

    /// The client that the caller's own requests go through.
    pub(crate) fn client<'a>(&self, clients: &'a Clients) -> &'a Client {
        if self.certified.is_some() { &clients.account } else { &clients.anonymous }
    }

    /// Headers of a request that is passed on: the client's own, with this identity alone.
    pub(crate) fn headers(&self, client: &HeaderMap) -> HeaderMap {
        let mut headers = client.clone();
        remove_hop_by_hop(&mut headers);
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        let names: Vec<_> = headers.keys().filter(|name| is_identity(name.as_str())).cloned().collect();
        for name in names {
            headers.remove(name);
        }
        headers.extend(self.identity.clone());
        headers
    }

    /// A `GET` of the caller itself.
    pub(crate) fn get(&self, path: String, accept: &HeaderValue) -> RawRequest {
        let mut headers = self.identity.clone();
        headers.insert(header::ACCEPT, accept.clone());
        RawRequest { headers, ..RawRequest::get(path) }
    }

    /// Asks the API server who the caller is. `None`: nobody that it knows, or one who may not act as it wants to.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn user(&self, clients: &Clients) -> freehold_client::Result<Option<User>> {
        if let Some(user) = &self.certified {
            let mut user = user.clone();
            user.groups.push("system:authenticated".to_owned());
            return Ok(Some(user));
        }
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let request = RawRequest { headers: self.identity.clone(), ..RawRequest::new(Method::POST, REVIEWS) };
        let answer = match clients.anonymous.json(request.json(&review)).await {
            Err(error) if matches!(error.code(), 401 | 403) => return Ok(None),
            answer => answer?,
        };
        Ok(user_of(&answer))
    }
}

fn user_of(review: &Value) -> Option<User> {
    let info = review.pointer("/status/userInfo")?;
    let groups = info["groups"].as_array().into_iter().flatten();
    let name = info["username"].as_str().filter(|name| !name.is_empty() && *name != "system:anonymous")?;
    Some(User {
        name: name.to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_pki::{Authority, ClientName, PlaneBinding, certificates_der};
    use std::time::Duration;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn ann() -> User {
        User { name: "ann".into(), groups: vec!["devs".into()] }
    }

    #[test]
    fn a_request_has_one_identity_and_no_header_adds_another() {
        let hostile = headers(&[
            ("authorization", "Bearer t"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("connection", "authorization, x-remote-user"),
            ("impersonate-user", "bob"),
            ("accept", "application/json"),
        ]);
        let sent = Caller::of(&hostile, Some(&ann())).unwrap().headers(&hostile);
        let mut names: Vec<&str> = sent.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        // The API server decides whether the token may impersonate.
        assert_eq!(names, ["accept", "authorization", "impersonate-user"]);
        let plain = headers(&[("x-remote-user", "root"), ("connection", "impersonate-user")]);
        let sent = Caller::of(&plain, Some(&ann())).unwrap().headers(&plain);
        let groups: Vec<_> = sent.get_all("impersonate-group").into_iter().collect();
        assert_eq!(
            (&sent["impersonate-user"], groups.len(), sent.len()),
            (&HeaderValue::from_static("ann"), 2, 3)
        );
        let acting = headers(&[("impersonate-extra-x", "y")]);
        assert_eq!(Caller::of(&acting, Some(&ann())).err().unwrap().code, 403);
        assert!(Caller::of(&plain, None).unwrap().headers(&plain).is_empty());
    }

    #[test]
    fn parts_of_the_control_plane_are_never_impersonated() {
        let authority = Authority::generate("test").unwrap();
        let groups = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let bound = PlaneBinding { plane: "web", generation: 1 };
        let rows: [(&str, &[&str], Option<PlaneBinding<'_>>, bool); 5] = [
            ("ann", &["devs"], None, true),
            ("admin", &["system:masters"], None, false),
            ("system:node:a", &[], None, false),
            ("system:serviceaccount:kube-system:x", &[], None, false),
            ("ann", &[], Some(bound), false),
        ];
        for (user, organizations, plane, allowed) in rows {
            let name = ClientName { user, groups: &groups(organizations), plane };
            let pair = authority.issue_client(&name, Duration::from_secs(60)).unwrap();
            let der = certificates_der(&pair.cert_pem).unwrap().remove(0);
            assert_eq!(certified(&der).is_ok(), allowed, "{user} {organizations:?}");
        }
    }
}
