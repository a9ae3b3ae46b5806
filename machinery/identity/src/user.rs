//! Users: the names, groups and extra keys of callers.

use crate::PlaneId;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

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
    /// What it rests on, where authentication knows: with that the identity ends too.
    pub basis: Option<Arc<Basis>>,
    /// Whether it is the subject of a question, such as an access review, and nobody has authenticated as it.
    pub is_subject: bool,
}

/// What an identity rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// From when on its credential does not count any more, in seconds since 1970.
    pub until: Option<i64>,
    /// Objects that must be there.
    pub objects: Vec<Footing>,
    /// Who vouches for it, where the configuration says that.
    pub voucher: Option<Voucher>,
    /// The generation of its plane's credentials that it belongs to, where that counts: a higher one of the plane ends it.
    pub generation: Option<u64>,
}

/// Somebody who is believed because the configuration says so: all copies end with it. Equal if they are copies.
#[derive(Clone, Debug, Default)]
pub struct Voucher(Arc<AtomicBool>);

impl Voucher {
    /// From now on nobody is believed for this.
    pub fn withdraw(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was not withdrawn.
    pub fn stands(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
}

impl PartialEq for Voucher {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Voucher {}

/// An object that an identity needs: a token's ServiceAccount, and what the token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footing {
    /// Its plane.
    pub plane: PlaneId,
    /// API group.
    pub group: &'static str,
    /// Plural resource.
    pub resource: &'static str,
    /// Namespace, empty for none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Another of the same name does not count.
    pub uid: String,
}

impl Basis {
    /// One that ends at a time alone.
    pub fn until(seconds: i64) -> Option<Arc<Self>> {
        Some(Arc::new(Self { until: Some(seconds), ..Self::default() }))
    }
}

/// The group whose members may do anything in the planes where they are authenticated.
pub const MASTERS: &str = "system:masters";
/// The group of all who proved who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The extra key with which credential somebody authenticated: `X509SHA256=` and a certificate's fingerprint, or `JTI=` and a
/// token's identifier.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The group of those who did not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those who did not.
pub const ANONYMOUS: &str = "system:anonymous";

impl User {
    /// The user of requests without credentials: `system:anonymous`, in `system:unauthenticated`.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
