//! Impersonation: asking as somebody else, which must be allowed for each part of that identity
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>).

use crate::{
    headers::{self, Headers, PLANE_EXTRA},
    token,
};
use freehold_machinery::{
    PlaneId, Status, User, go,
    user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED},
};
use std::collections::BTreeMap;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// How many parts the identity may have: each costs one authorization.
pub const MAX_PARTS: usize = 256;

/// Who a request wants to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonationRequest {
    name: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

/// One question to authorization, with the verb `impersonate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part<'a> {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// `users`, `groups`, `serviceaccounts`, `userextras` or `uids`.
    pub resource: &'static str,
    /// The key, for `userextras`.
    pub subresource: &'a str,
    /// The namespace, for `serviceaccounts`.
    pub namespace: &'a str,
    /// The user, group, service account, value or uid.
    pub name: &'a str,
}

impl ImpersonationRequest {
    /// Reads the `Impersonate-*` headers; `None` where there are none.
    ///
    /// Fails with 400 if there are groups, extras or a uid without a user, or too many of them.
    pub fn parse(headers: &dyn Headers) -> Result<Option<Self>, Status> {
        let text = |name| headers.get(name).unwrap_or_default().to_owned();
        let groups = headers::all(headers, GROUP).into_iter().map(str::to_owned).collect();
        let mut extra = headers::extras(headers, EXTRA);
        // The plane of an identity follows from where the request is made, and can't be chosen.
        extra.remove(PLANE_EXTRA);
        let request = Self { name: text(USER), groups, uid: text(UID), extra };
        let parts = request.parts().len();
        match (request.name.is_empty(), parts) {
            (true, 0) => Ok(None),
            (true, _) => Err(Status::bad_request(request.nobody())),
            (false, 1..=MAX_PARTS) => Ok(Some(request)),
            _ => Err(Status::bad_request(format!("at most {MAX_PARTS} impersonation headers are allowed"))),
        }
    }

    /// What is said of a request that names no user.
    fn nobody(&self) -> String {
        let list = |items: &[String]| match items {
            [] => "[]string(nil)".to_owned(),
            items => {
                let quoted: Vec<String> = items.iter().map(|item| go::quote(item)).collect();
                format!("[]string{{{}}}", quoted.join(", "))
            }
        };
        let extra: Vec<String> =
            self.extra.iter().map(|(key, values)| format!("{}:{}", go::quote(key), list(values))).collect();
        let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
        format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:map[string][]string{extra}}} without \
             impersonating a user name",
            go::quote(&self.uid),
            list(&self.groups)
        )
    }

    /// What the requester must be allowed to impersonate: all of it.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let user = match token::split_subject(&self.name) {
            _ if self.name.is_empty() => None,
            Some((namespace, name)) => {
                Some(Part { version: "v1", resource: "serviceaccounts", namespace, name, ..Part::default() })
            }
            None => Some(Part { resource: "users", name: &self.name, ..Part::default() }),
        };
        let group = |name| Part { resource: "groups", name, ..Part::default() };
        let authentication = Part { group: "authentication.k8s.io", version: "v1", ..Part::default() };
        let extras = self.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        let extras = extras.map(|(key, name)| Part {
            resource: "userextras",
            subresource: key,
            name,
            ..authentication
        });
        let uid =
            (!self.uid.is_empty()).then(|| Part { resource: "uids", name: &self.uid, ..authentication });
        user.into_iter().chain(self.groups.iter().map(|name| group(name))).chain(extras).chain(uid).collect()
    }

    /// The identity, once `requester` was allowed each part of it.
    ///
    /// It means nothing outside of the plane in which that was allowed. In the core plane it reaches as far as the
    /// requester's own.
    pub fn user(self, requester: &User, plane: &PlaneId) -> User {
        let mut groups = self.groups;
        if let Some((namespace, _)) = token::split_subject(&self.name).filter(|_| groups.is_empty()) {
            groups = token::groups(namespace);
        }
        let has = |wanted: &[&str]| groups.iter().any(|group| wanted.contains(&group.as_str()));
        let missing = match self.name.as_str() {
            ANONYMOUS => (!has(&[UNAUTHENTICATED])).then_some(UNAUTHENTICATED),
            _ => (!has(&[AUTHENTICATED, UNAUTHENTICATED])).then_some(AUTHENTICATED),
        };
        groups.extend(missing.map(str::to_owned));
        let plane = if plane.is_core() { requester.plane.clone() } else { Some(plane.clone()) };
        User {
            name: self.name,
            uid: self.uid,
            groups,
            extra: self.extra,
            plane,
            from_host: requester.from_host,
        }
    }
}
