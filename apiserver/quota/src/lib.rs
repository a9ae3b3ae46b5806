//! Quota of organizations and projects (`quota.freehold.dev`): which objects claim how much of what, and the arithmetic of
//! the buckets that they claim from.
//!
//! All of it is pure. Whoever commits a write reads the rules and the buckets, asks here what they become, and commits
//! that together with the object, on the condition that nothing of it has changed meanwhile.
//!
//! This crate must not know: how objects are stored, who serves them.

pub mod bucket;
mod expression;
pub mod objects;
mod rules;

pub use bucket::{Balance, Demand, Shortage};
pub use rules::{Claim, Grant, PolicyErrors, Registration, Rules, Subject, check_policy};

/// The API group of the kinds.
pub const GROUP: &str = "quota.freehold.dev";
/// The group of consumers.
pub const CONSUMERS: &str = "resourcemanager.freehold.dev";
/// The plurals of the kinds.
pub const REGISTRATIONS: &str = "resourceregistrations";
/// See [`REGISTRATIONS`].
pub const GRANTS: &str = "resourcegrants";
/// See [`REGISTRATIONS`].
pub const BUCKETS: &str = "allowancebuckets";
/// See [`REGISTRATIONS`].
pub const CLAIMS: &str = "resourceclaims";
/// See [`REGISTRATIONS`].
pub const CLAIM_POLICIES: &str = "claimcreationpolicies";
/// See [`REGISTRATIONS`].
pub const GRANT_POLICIES: &str = "grantcreationpolicies";

/// Who uses things up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Consumer {
    /// `Organization` or `Project`.
    pub kind: ConsumerKind,
    /// Its name.
    pub name: String,
}

/// The kinds of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConsumerKind {
    /// An Organization.
    Organization,
    /// A Project.
    Project,
}

impl ConsumerKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Organization, Self::Project];

    /// As it stands in objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Organization => "Organization",
            Self::Project => "Project",
        }
    }

    /// What an object says.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl std::fmt::Display for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.kind.as_str().to_lowercase(), self.name)
    }
}
