//! Identity in headers, as front proxies write it
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#authenticating-proxy>).

use freehold_machinery::{PlaneId, Status, User};
use std::collections::BTreeMap;

/// The headers of a request, for code that must not know HTTP.
pub trait Headers {
    /// The first value of a header. `name` is in lower case.
    fn get(&self, name: &str) -> Option<&str>;
    /// Calls `visit` with each header's name in lower case and value, in order; values that are no text are left out.
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a str));
}

/// Names in lower case, and values.
impl<S: AsRef<str>> Headers for [(S, S)] {
    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| n.as_ref() == name).map(|(_, value)| value.as_ref())
    }

    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a str)) {
        self.iter().for_each(|(name, value)| visit(name.as_ref(), value.as_ref()));
    }
}

impl<S: AsRef<str>> Headers for Vec<(S, S)> {
    fn get(&self, name: &str) -> Option<&str> {
        Headers::get(self.as_slice(), name)
    }

    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a str)) {
        Headers::visit(self.as_slice(), visit);
    }
}

/// The extra key with which one Freehold server tells another to which plane a forwarded identity is bound.
pub const PLANE_EXTRA: &str = "plane.freehold.dev";

/// The headers in which a front proxy writes identities, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// The name: the first of these that is there.
    pub user: Vec<String>,
    /// The uid: the first of these that is there.
    pub uid: Vec<String>,
    /// Groups: all values of all of these.
    pub group: Vec<String>,
    /// What stands before the keys of extra values.
    pub extra_prefixes: Vec<String>,
}

impl Default for HeaderNames {
    /// `X-Remote-User` and so on, as Kubernetes proposes them.
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            user: one(REMOTE_USER),
            uid: one(REMOTE_UID),
            group: one(REMOTE_GROUP),
            extra_prefixes: one(REMOTE_EXTRA),
        }
    }
}

const REMOTE_USER: &str = "x-remote-user";
const REMOTE_UID: &str = "x-remote-uid";
const REMOTE_GROUP: &str = "x-remote-group";
const REMOTE_EXTRA: &str = "x-remote-extra-";

/// The values of a header, in order.
pub(crate) fn all<'a>(headers: &'a dyn Headers, name: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    headers.visit(&mut |n, value| {
        if n == name {
            values.push(value);
        }
    });
    values
}

/// The headers that begin with `prefix`: the rest of each name, percent-decoded and in lower case, with its values.
pub(crate) fn extras(headers: &dyn Headers, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut extras: BTreeMap<String, Vec<String>> = BTreeMap::new();
    headers.visit(&mut |name, value| {
        if let Some(key) = name.strip_prefix(prefix) {
            extras.entry(unescape(key).to_lowercase()).or_default().push(value.to_owned());
        }
    });
    extras
}

/// The identity that a front proxy wrote; `None` where there is none.
///
/// Whoever calls this knows that the peer is a front proxy. The identity's plane is the one that the proxy names
/// ([`PLANE_EXTRA`]), if it does. Fails with 401 where that is no plane: it must not become an identity of all planes.
pub(crate) fn remote_user(headers: &dyn Headers, names: &HeaderNames) -> Result<Option<User>, Status> {
    let first = |names: &[String]| {
        let mut found = names.iter().filter_map(|name| headers.get(name)).filter(|value| !value.is_empty());
        found.next().map(str::to_owned)
    };
    let Some(name) = first(&names.user) else { return Ok(None) };
    let mut extra = BTreeMap::new();
    names.extra_prefixes.iter().for_each(|prefix| extra.extend(extras(headers, prefix)));
    let plane = match extra.remove(PLANE_EXTRA).as_deref() {
        None => None,
        Some([plane]) => Some(plane.parse::<PlaneId>().map_err(|_| Status::unauthorized())?),
        Some(_) => return Err(Status::unauthorized()),
    };
    let groups = names.group.iter().flat_map(|name| all(headers, name)).map(str::to_owned).collect();
    let uid = first(&names.uid).unwrap_or_default();
    Ok(Some(User { name, uid, groups, extra, plane, ..User::default() }))
}

/// The headers that carry an identity to a server behind this one: to a dedicated pair or an aggregated API server.
///
/// Whoever forwards a request removes every `x-remote-` header of the client first.
pub fn forwarded_headers(user: &User) -> Vec<(String, String)> {
    let mut headers = vec![(REMOTE_USER.to_owned(), user.name.clone())];
    if !user.uid.is_empty() {
        headers.push((REMOTE_UID.to_owned(), user.uid.clone()));
    }
    headers.extend(user.groups.iter().map(|group| (REMOTE_GROUP.to_owned(), group.clone())));
    for (key, values) in user.extra.iter().filter(|(key, _)| *key != PLANE_EXTRA) {
        let name = format!("{REMOTE_EXTRA}{}", escape(key));
        headers.extend(values.iter().map(|value| (name.clone(), value.clone())));
    }
    let plane = user.plane.as_ref();
    headers.extend(plane.map(|plane| (format!("{REMOTE_EXTRA}{PLANE_EXTRA}"), plane.to_string())));
    headers
}

/// Percent-encodes what can't stand in a header's name (RFC 9110, 5.6.2).
fn escape(key: &str) -> String {
    let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&c);
    key.bytes().map(|c| if token(c) { char::from(c).to_string() } else { format!("%{c:02X}") }).collect()
}

/// Decodes percent-encoding. A malformed text stays as it is.
fn unescape(text: &str) -> String {
    let decoded = || {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'%' => (nibble(rest.next()?)? << 4) | nibble(rest.next()?)?,
                byte => byte,
            });
        }
        String::from_utf8(bytes).ok()
    };
    decoded().unwrap_or_else(|| text.to_owned())
}

fn nibble(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_forwarding() {
        let user = User {
            name: "jane".into(),
            uid: "1".into(),
            groups: vec!["a".into(), "b".into()],
            extra: [
                ("example.com/Ünit%".to_lowercase(), vec!["x".into(), "y".into()]),
                ("k".into(), vec!["".into()]),
            ]
            .into(),
            plane: Some("p1".parse().unwrap()),
            ..User::default()
        };
        let names = HeaderNames::default();
        assert_eq!(remote_user(&forwarded_headers(&user), &names), Ok(Some(user)));
    }

    #[test]
    fn a_forged_plane_is_not_forwarded() {
        let extra = [(PLANE_EXTRA.to_owned(), vec!["victim".to_owned()])].into();
        let user = User { name: "eve".into(), extra, ..User::default() };
        let names = HeaderNames::default();
        assert_eq!(remote_user(&forwarded_headers(&user), &names).unwrap().unwrap().plane, None);
    }

    #[test]
    fn malformed_escapes_stay() {
        for (text, expected) in
            [("a%2Fb", "a/b"), ("%", "%"), ("%zz", "%zz"), ("%ff", "%ff"), ("%C3%BC", "ü"), ("a%2", "a%2")]
        {
            assert_eq!(unescape(text), expected);
        }
    }
}
