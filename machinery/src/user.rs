//! Who is asking.

use crate::PlaneId;
use std::collections::BTreeMap;

/// An authenticated identity, as authentication hands it to everything behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name: `jane`, `system:serviceaccount:default:builder`.
    pub name: String,
    /// Unique over time, where the authenticator knows one.
    pub uid: String,
    /// Groups, `system:authenticated` among them for everyone but the anonymous.
    pub groups: Vec<String>,
    /// Further attributes, keys in lower case.
    pub extra: BTreeMap<String, Vec<String>>,
    /// The only plane in which this identity means anything; `None` for identities of the platform.
    pub plane: Option<PlaneId>,
    /// Whether it is an identity of the cluster that this server extends: that cluster says what it may do.
    pub from_host: bool,
}

/// The group whose members may do anything in the planes where they are authenticated.
pub const MASTERS: &str = "system:masters";
/// The group of all who proved who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of those who did not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those who did not.
pub const ANONYMOUS: &str = "system:anonymous";

impl User {
    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
