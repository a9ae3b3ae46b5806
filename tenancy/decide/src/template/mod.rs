//! Templates: parameters, rendering, comparison with what is there, and the order in which namespaces get a revision.
//!
//! Parameters are values in a parsed tree. They are never part of text that is parsed later, so that no parameter can add a
//! field or an object.

mod compare;
mod parameters;
mod render;
mod rollout;
mod substitute;

pub use compare::{differences, is_applied};
pub use parameters::{Parameters, ParametersError};
pub use render::{
    RenderError, Rendered, Rendering, chart_objects, chart_values, copies, digest, instance_label, manifests,
    prepare,
};
pub use rollout::{Child, RolloutPlan, RolloutState, rollout};
pub use substitute::{Variables, substitute};
