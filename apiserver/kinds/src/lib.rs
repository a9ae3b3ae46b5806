//! What Kubernetes' built-in kinds require beyond their schemas: checks, defaults, warnings, conversions, as pure functions
//! over objects as JSON.
//!
//! Nothing here reads a store or a clock. It stands beside the registry, which asks it, because it changes with versions of
//! Kubernetes and not with the verbs, and above admission, whose compiler checks the expressions of policies.

pub mod access;
pub mod check;
pub mod defaults;
pub mod initial_status;
pub mod pod;
pub mod pod_defaults;
pub mod profiles;
pub mod workloads;

use freehold_machinery::{
    ResourceType, Value,
    schema::{self, default::Empty},
};

/// Fills in the schema's defaults, then those that the kind makes of its other fields. Returns the empty lists and maps of a
/// built-in kind, which are left out of what is stored and yet seen by its rules.
pub fn default(ty: &ResourceType, object: &mut Value) -> Vec<Empty> {
    // What says that it is of another kind is not made to look like this one; it is refused when it is validated.
    if ty.custom && object["kind"] != ty.kind.as_str() {
        return Vec::new();
    }
    let mut empties = Vec::new();
    if let Some(schema) = ty.schema.get() {
        if !ty.custom {
            empties = schema::default::empties(object, schema);
            schema::default::normalize(object, schema);
            schema::zeros::complete_structs(object, schema);
        }
        schema::default(object, schema);
    }
    defaults::apply(ty, object, &empties);
    empties
}
