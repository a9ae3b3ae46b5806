//! The field manager of the provisioner.

/// The field manager of everything that the provisioner applies.
pub const FIELD_MANAGER: &str = "freehold-provisioner";
