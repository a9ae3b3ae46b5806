//! Names, groups and extra keys that Freehold's own authentication alone assigns.
//!
//! One table for every way in which somebody outside says who a user is: signing requests, issuers of tokens, webhooks, front
//! proxies, impersonation, `User` objects. What Kubernetes names (`system:kube-scheduler`, `system:node:...`) is legitimate
//! within a project and is not in it: an identity of a plane means nothing outside of that plane.

use crate::User;
use std::fmt;

/// How the names of Freehold's own components begin, and their groups.
pub const COMPONENT: &str = "system:freehold:";
/// The group of Freehold's own controllers, which work on planes by their identifiers.
pub const CONTROLLERS: &str = "system:freehold:controllers";
/// How the names and groups of users begin whom Freehold authenticates itself.
pub const OWN: &str = "freehold:";
/// How the names and groups of users begin whom an organization's issuer knows.
pub const ORGANIZATION: &str = "organization:";
/// The user as whom a dedicated pair reaches its store begins so; its plane follows.
pub const STORE_CLIENT: &str = "plane:";
/// The domain of the extra keys that Freehold sets.
const DOMAIN: &str = "freehold.dev";

/// Who says who a user is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A certificate signing request, in any plane.
    Certificate,
    /// An issuer, webhook or front proxy that the operator names.
    Operator,
    /// An issuer of an organization.
    Organization,
    /// Somebody who wants to be somebody else.
    Impersonation,
    /// A `User` object.
    Object,
}

use Source::{Certificate, Impersonation, Object, Operator, Organization};

/// What begins so is reserved, and from whom.
struct Prefix {
    text: &'static str,
    /// Whether it is for names, and for groups.
    of: (bool, bool),
    from: &'static [Source],
}

const fn prefix(text: &'static str, of: (bool, bool), from: &'static [Source]) -> Prefix {
    Prefix { text, of, from }
}

/// The list. Each row is tried; the first that matches is told.
const PREFIXES: [Prefix; 8] = [
    prefix(COMPONENT, (true, true), &[Certificate, Operator, Organization, Impersonation, Object]),
    prefix(OWN, (true, true), &[Certificate, Operator, Organization]),
    prefix(ORGANIZATION, (true, true), &[Certificate, Operator, Organization]),
    prefix(STORE_CLIENT, (true, false), &[Certificate, Operator, Organization, Object]),
    // Servers know each other by certificates of these names.
    prefix("freehold-", (true, false), &[Certificate]),
    prefix("aggregator:", (true, false), &[Certificate]),
    // Its members may do anything where they are authenticated.
    prefix("system:masters", (false, true), &[Certificate]),
    prefix("system:", (true, true), &[Organization]),
];

/// Something that a user may not have from where it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The name.
    Name(String),
    /// A group.
    Group(String),
    /// An extra key.
    Extra(String),
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "the name {name:?} is reserved"),
            Self::Group(group) => write!(f, "the group {group:?} is reserved"),
            Self::Extra(key) => write!(f, "the extra key {key:?} is reserved"),
        }
    }
}

impl std::error::Error for Reserved {}

/// Whether an extra key is one that Freehold alone sets: of its domain or one below it, in any case.
pub fn is_extra_key(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default().to_ascii_lowercase();
    domain.strip_suffix(DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Checks the parts of an identity against the list.
///
/// # Errors
/// The first part that nobody may have from that source.
pub fn check<'a>(
    source: Source,
    name: &str,
    groups: impl IntoIterator<Item = &'a String>,
    extra_keys: impl IntoIterator<Item = &'a String>,
) -> Result<(), Reserved> {
    let matches = |text: &str, is_name: bool| {
        PREFIXES.iter().any(|row| {
            let of = if is_name { row.of.0 } else { row.of.1 };
            of && row.from.contains(&source) && text.starts_with(row.text)
        })
    };
    if matches(name, true) {
        return Err(Reserved::Name(name.to_owned()));
    }
    if let Some(group) = groups.into_iter().find(|group| matches(group, false)) {
        return Err(Reserved::Group(group.clone()));
    }
    match extra_keys.into_iter().find(|key| is_extra_key(key)) {
        Some(key) => Err(Reserved::Extra(key.clone())),
        None => Ok(()),
    }
}

/// Checks a user as somebody outside describes them. The group of all who proved who they are is nobody's to reserve.
///
/// # Errors
/// See [`check`].
pub fn check_user(source: Source, user: &User) -> Result<(), Reserved> {
    let groups = user.groups.iter().filter(|group| *group != crate::user::AUTHENTICATED);
    check(source, &user.name, groups, user.extra.keys())
}

/// Whether a user is a component of the platform: by a reserved name or group, and of no plane and no other cluster.
pub fn is_component(user: &User) -> bool {
    let named = user.name.starts_with(COMPONENT) || user.is_in(CONTROLLERS);
    named && user.plane.is_none() && !user.from_host
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::AUTHENTICATED;

    const ALL: [Source; 5] = [Certificate, Operator, Organization, Impersonation, Object];

    /// What is reserved from whom, in the letters of [`ALL`].
    #[test]
    fn each_name_group_and_key_is_reserved_from_the_same_sources_however_it_comes() {
        let rows = [
            ("name system:freehold:provisioner", "COGIU"),
            ("group system:freehold:controllers", "COGIU"),
            ("name freehold:serviceaccount:organization-acme:ci", "COG"),
            ("group freehold:serviceaccounts", "COG"),
            ("group freehold:project-admin", "COG"),
            ("name organization:acme:jane", "COG"),
            ("group organization:acme:devs", "COG"),
            ("name plane:4711", "COGU"),
            ("group plane:4711", ""),
            ("name freehold-apiserver", "C"),
            ("name aggregator:4711", "C"),
            ("group system:masters", "CG"),
            ("name system:masters", "G"),
            ("name system:kube-controller-manager", "G"),
            ("name system:kube-scheduler", "G"),
            ("name system:node:a", "G"),
            ("group system:nodes", "G"),
            ("name jane", ""),
            ("group devs", ""),
            ("name jane@freehold.dev", ""),
            ("extra freehold.dev/plane", "COGIU"),
            ("extra plane.freehold.dev", "COGIU"),
            ("extra IAM.Freehold.dev/granted", "COGIU"),
            ("extra iam.freehold.dev/key", "COGIU"),
            ("extra notfreehold.dev/key", ""),
            ("extra example.com/freehold.dev", ""),
            ("extra scopes", ""),
        ];
        for (row, expected) in rows {
            let (what, text) = row.split_once(' ').unwrap();
            let text = text.to_owned();
            let refused = |source: Source| {
                let none: [String; 0] = [];
                let one = std::slice::from_ref(&text);
                match what {
                    "name" => check(source, &text, &none, &none),
                    "group" => check(source, "jane", one, &none),
                    _ => check(source, "jane", &none, one),
                }
                .is_err()
            };
            let found: String =
                ALL.iter().zip("COGIU".chars()).filter(|(s, _)| refused(**s)).map(|(_, c)| c).collect();
            assert_eq!(found, expected, "{row}");
        }
    }

    #[test]
    fn an_identity_of_a_plane_or_of_another_cluster_is_no_component() {
        let component = User { name: "system:freehold:provisioner".into(), ..User::default() };
        let grouped = User { name: "x".into(), groups: vec![CONTROLLERS.into()], ..User::default() };
        assert!(is_component(&component) && is_component(&grouped));
        let bound = User { plane: Some("p".parse().unwrap()), ..grouped.clone() };
        let hosts = User { from_host: true, ..component };
        let manager = User { name: "system:kube-controller-manager".into(), ..User::default() };
        assert!(!is_component(&bound) && !is_component(&hosts) && !is_component(&manager));
    }

    #[test]
    fn who_proved_who_they_are_may_say_so() {
        let user = User { name: "jane".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
        assert_eq!(check_user(Organization, &user), Ok(()));
    }
}
