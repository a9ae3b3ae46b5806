//! Impersonation: acting as another user, which must be allowed for each part of that identity
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>).

use crate::{
    headers::{self, Headers},
    token,
};
use freehold_machinery::{
    PlaneId, Status, User, go, names,
    reserved::{self, Reserved, Source},
    user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED},
};
use std::collections::BTreeMap;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// The group of what is impersonated beside users and groups, and of all of it where it is constrained.
const AUTHENTICATION: &str = "authentication.k8s.io";

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

/// A way to be allowed to impersonate: the general one, or for a kind of identity and a kind of request (KEP-5284).
///
/// Whoever asks in a constrained way must be allowed both the identity ([`Mode::verb`] of each part) and what they do with it
/// ([`Mode::on`] of the request).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The verb for each part of the identity.
    pub verb: &'static str,
    /// What stands before the request's verb; empty for the general way, which looks at no request.
    pub on: &'static str,
}

/// The general way.
const LEGACY: Mode = Mode { verb: "impersonate", on: "" };
/// The node that a service account's Pod is on.
const ASSOCIATED_NODE: Mode =
    Mode { verb: "impersonate:associated-node", on: "impersonate-on:associated-node:" };
/// Any node.
const ARBITRARY_NODE: Mode =
    Mode { verb: "impersonate:arbitrary-node", on: "impersonate-on:arbitrary-node:" };
/// A service account.
const SERVICE_ACCOUNT: Mode =
    Mode { verb: "impersonate:serviceaccount", on: "impersonate-on:serviceaccount:" };
/// Anybody else.
const USER_INFO: Mode = Mode { verb: "impersonate:user-info", on: "impersonate-on:user-info:" };

/// The group of nodes.
const NODES: &str = "system:nodes";
/// The extra key with the node of a service account's Pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

impl Mode {
    fn is_constrained(self) -> bool {
        self != LEGACY
    }

    /// What the audit log says of an identity that was taken on in this way; empty for the general one.
    pub fn constraint(self) -> &'static str {
        if self.is_constrained() { self.verb } else { "" }
    }
}

/// The node behind a user's name.
fn node(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| names::dns1123_subdomain(name).is_empty())
}

/// One question to authorization, with the verb of a [`Mode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// # Errors
    /// 400 for groups, extras or a uid without a user, or for too many of them.
    pub fn parse(headers: &dyn Headers) -> Result<Option<Self>, Status> {
        let text = |name| headers.get(name).unwrap_or_default().to_owned();
        let groups = headers::all(headers, GROUP).into_iter().map(str::to_owned).collect();
        let extra = headers::extras(headers, EXTRA);
        let request = Self { name: text(USER), groups, uid: text(UID), extra };
        let parts = request.parts(LEGACY).len();
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

    /// The ways in which this identity may be taken on by `requester`, the narrow ones first: one that allows it is enough.
    pub fn modes(&self, requester: &User) -> Vec<Mode> {
        let plain = self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty();
        let mut modes = Vec::with_capacity(3);
        match (node(&self.name), token::split_subject(&self.name)) {
            (Some(node), _) => {
                let own = requester.extra.get(NODE_NAME).is_some_and(|nodes| *nodes == [node]);
                if plain && own && token::split_subject(&requester.name).is_some() {
                    modes.push(ASSOCIATED_NODE);
                }
                modes.extend(plain.then_some(ARBITRARY_NODE));
            }
            (None, Some(_)) => modes.extend(plain.then_some(SERVICE_ACCOUNT)),
            (None, None) => modes.push(USER_INFO),
        }
        modes.push(LEGACY);
        modes
    }

    /// Why nobody may take on this identity in a way, where that is so, and about which part.
    pub fn refused(&self, mode: Mode) -> Option<(Part<'_>, String)> {
        let own = reserved::check(Source::Impersonation, &self.name, &self.groups, self.extra.keys());
        if let Err(why) = own {
            let part = |resource| Part { version: "v1", resource, ..Part::default() };
            let part = match &why {
                Reserved::Name(_) => Part { name: &self.name, ..part("users") },
                Reserved::Group(_) => part("groups"),
                Reserved::Extra(_) => Part { group: AUTHENTICATION, ..part("userextras") },
            };
            return Some((part, why.to_string()));
        }
        if !mode.is_constrained() {
            return None;
        }
        let part =
            |resource, name| Part { group: AUTHENTICATION, version: "v1", resource, name, ..Part::default() };
        if self.groups.iter().any(String::is_empty) {
            return Some((
                part("groups", ""),
                "impersonating the empty string group is not allowed".to_owned(),
            ));
        }
        if self.groups.iter().any(|group| group == MASTERS) {
            let why = "impersonating the system:masters group is not allowed".to_owned();
            return Some((part("groups", MASTERS), why));
        }
        let wrong = self.extra.iter().find_map(|(key, values)| extra_error(key, values));
        wrong.map(|why| (part("userextras", ""), why))
    }

    /// What the requester must be allowed to impersonate in a way: all of it.
    pub fn parts(&self, mode: Mode) -> Vec<Part<'_>> {
        let authentication = Part { group: AUTHENTICATION, version: "v1", ..Part::default() };
        let (base, account) = match mode.is_constrained() {
            true => (authentication, authentication),
            false => (Part::default(), Part { version: "v1", ..Part::default() }),
        };
        let user = match (token::split_subject(&self.name), node(&self.name)) {
            _ if self.name.is_empty() => None,
            (Some((namespace, name)), _) => {
                Some(Part { resource: "serviceaccounts", namespace, name, ..account })
            }
            // Which of its nodes it is on does not matter.
            (None, Some(_)) if mode == ASSOCIATED_NODE => Some(Part { resource: "nodes", name: "*", ..base }),
            (None, Some(name)) if mode.is_constrained() => Some(Part { resource: "nodes", name, ..base }),
            (None, _) => Some(Part { resource: "users", name: &self.name, ..base }),
        };
        let group = |name| Part { resource: "groups", name, ..base };
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
    /// It means nothing outside of the plane in which that was allowed. In the core plane, and of who may do everything on
    /// the platform, it reaches as far as the requester's own; but a service account is one of the plane that is asked, where
    /// alone there is one of that name.
    pub fn user(self, requester: &User, plane: &PlaneId, mode: Mode) -> User {
        let mut groups = self.groups;
        if mode.is_constrained() && node(&self.name).is_some() {
            groups = vec![NODES.to_owned()];
        }
        let account = token::split_subject(&self.name);
        if let Some((namespace, _)) = account.filter(|_| groups.is_empty()) {
            groups = token::groups(namespace);
        }
        let has = |wanted: &[&str]| groups.iter().any(|group| wanted.contains(&group.as_str()));
        let missing = match self.name.as_str() {
            ANONYMOUS => (!has(&[UNAUTHENTICATED])).then_some(UNAUTHENTICATED),
            _ => (!has(&[AUTHENTICATED, UNAUTHENTICATED])).then_some(AUTHENTICATED),
        };
        groups.extend(missing.map(str::to_owned));
        let runs = requester.plane.is_none() && requester.is_in(MASTERS) && account.is_none();
        let plane = if plane.is_core() || runs { requester.plane.clone() } else { Some(plane.clone()) };
        User {
            name: self.name,
            uid: self.uid,
            groups,
            extra: self.extra,
            plane,
            from_host: requester.from_host,
            basis: None,
            is_subject: false,
        }
    }
}

/// What is wrong with an extra attribute that is to be taken on in a constrained way.
fn extra_error(key: &str, values: &[String]) -> Option<String> {
    let is_path = key
        .split_once('/')
        .is_some_and(|(domain, path)| names::dns1123_subdomain(domain).is_empty() && !path.is_empty());
    let not_allowed = |what: &str| Some(format!("impersonating {what} is not allowed"));
    match key {
        "" => not_allowed("the empty string key in extra"),
        _ if !is_path => Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key:?}: must be a \
             domain-prefixed path (such as \"acme.io/foo\")"
        )),
        _ if values.is_empty() => not_allowed("empty values in extra"),
        _ if values.iter().any(String::is_empty) => not_allowed("the empty string value in extra"),
        _ => None,
    }
}
