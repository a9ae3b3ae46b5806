//! Bootstrap tokens, with which new nodes request certificates
//! (<https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>).

use base64::{Engine, engine::general_purpose::STANDARD};
use freehold_machinery::{
    PlaneId, User, Value, meta,
    user::{AUTHENTICATED, Basis, Footing},
};
use std::sync::Arc;

/// The namespace of their Secrets.
pub const NAMESPACE: &str = "kube-system";
/// The type of their Secrets.
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of their bearers.
const GROUP: &str = "system:bootstrappers";

/// A token's identifier, which is no secret, and its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapToken<'a> {
    id: &'a str,
    secret: &'a str,
}

impl<'a> BootstrapToken<'a> {
    /// Reads `abcdef.0123456789abcdef`; `None` for anything else.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (id, secret) = token.split_once('.')?;
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
        (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some(Self { id, secret })
    }

    /// The name of its Secret.
    pub fn secret_name(&self) -> String {
        format!("bootstrap-token-{}", self.id)
    }

    /// Who bears it, by the Secret of that name; `None` where that is not one, of another token, expired, or not meant for
    /// authentication. `now` is in seconds since 1970.
    pub fn user(&self, plane: &PlaneId, secret: &Value, now: i64) -> Option<User> {
        let field = |name: &str| -> Option<String> {
            String::from_utf8(STANDARD.decode(secret["data"][name].as_str()?).ok()?).ok()
        };
        let is_one = secret["type"] == TYPE && secret["metadata"].get("deletionTimestamp").is_none();
        let matches = is_one
            && field("token-id").as_deref() == Some(self.id)
            && same(field("token-secret")?.as_bytes(), self.secret.as_bytes())
            && field("usage-bootstrap-authentication").as_deref() == Some("true");
        if !matches {
            return None;
        }
        let mut until = None;
        if let Some(expiration) = field("expiration").filter(|text| !text.is_empty()) {
            let expires = expiration.parse::<jiff::Timestamp>().ok()?;
            if expires.as_second() <= now {
                return None;
            }
            until = Some(expires.as_second());
        }
        let mut groups = vec![GROUP.to_owned()];
        for group in
            field("auth-extra-groups").unwrap_or_default().split(',').filter(|group| !group.is_empty())
        {
            // One that is malformed spoils the token, as with kube-apiserver: it says more than it may.
            let name = group.strip_prefix("system:bootstrappers:").filter(|name| is_group(name))?;
            let group = format!("{GROUP}:{name}");
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups.push(AUTHENTICATED.to_owned());
        Some(User {
            name: format!("system:bootstrap:{}", self.id),
            groups,
            plane: Some(plane.clone()),
            basis: Some(Arc::new(Basis {
                until,
                objects: vec![of_secret(plane, secret)],
                ..Basis::default()
            })),
            ..User::default()
        })
    }
}

fn of_secret(plane: &PlaneId, secret: &Value) -> Footing {
    Footing {
        plane: plane.clone(),
        group: "",
        resource: "secrets",
        namespace: NAMESPACE.to_owned(),
        name: meta::name(secret).to_owned(),
        uid: meta::uid(secret).to_owned(),
    }
}

/// `[a-z0-9:-]{0,255}[a-z0-9]`.
fn is_group(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
    name.len() <= 256
        && name.bytes().last().is_some_and(plain)
        && name.bytes().all(|b| plain(b) || b == b':' || b == b'-')
}

/// Whether two texts are equal, in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: i64 = 1_700_000_000;

    fn secret(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Value {
        let mut fields = serde_json::Map::new();
        for (name, text) in [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:worker,system:bootstrappers:ingress"),
        ] {
            fields.insert(name.into(), text.into());
        }
        change(&mut fields);
        let data: serde_json::Map<String, Value> =
            fields.into_iter().map(|(k, v)| (k, STANDARD.encode(v.as_str().unwrap()).into())).collect();
        json!({"type": TYPE, "metadata": {"name": "bootstrap-token-abcdef"}, "data": data})
    }

    fn user(secret: &Value) -> Option<User> {
        BootstrapToken::parse("abcdef.0123456789abcdef").unwrap().user(&"p".parse().unwrap(), secret, NOW)
    }

    #[test]
    fn a_bearer_is_of_its_plane_and_in_the_groups_of_the_token() {
        let user = user(&secret(|_| {})).unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(
            user.groups,
            [GROUP, "system:bootstrappers:worker", "system:bootstrappers:ingress", AUTHENTICATED]
        );
        assert_eq!(user.plane, Some("p".parse().unwrap()));
    }

    #[test]
    fn what_is_not_a_valid_token_is_not_believed() {
        let set = |key: &str, value: &str| secret(|fields| drop(fields.insert(key.into(), value.into())));
        assert!(user(&set("expiration", "2023-11-14T22:13:21Z")).is_some());
        for (key, value) in [
            ("token-secret", "0123456789abcdeg"),
            ("token-id", "abcdeg"),
            ("usage-bootstrap-authentication", "false"),
            ("expiration", "2023-11-14T22:13:20Z"),
            ("expiration", "tomorrow"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:A"),
        ] {
            assert_eq!(user(&set(key, value)), None, "{key}={value}");
        }
        let mut other = secret(|_| {});
        other["type"] = "Opaque".into();
        assert_eq!(user(&other), None);
        let mut going = secret(|_| {});
        going["metadata"]["deletionTimestamp"] = "2023-01-01T00:00:00Z".into();
        assert_eq!(user(&going), None);
        for token in
            ["abcdef", "abcde.0123456789abcdef", "abcdef.0123456789abcdeF", "abcdef.0123456789abcdef0"]
        {
            assert_eq!(BootstrapToken::parse(token), None, "{token}");
        }
    }
}
