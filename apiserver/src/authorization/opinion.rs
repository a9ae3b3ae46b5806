//! What an authorizer says.

/// What an authorizer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    Allow(String),
    Deny(String),
    None(String),
}
