//! Admission policies: `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy`, with their bindings and parameters
//! (<https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>).
//!
//! Policies and bindings are compiled once for each state that they have ([`Compiled`]). A write is looked at by those
//! whose rules and selectors match it; expressions are evaluated within the budgets of `freehold-machinery-cel`.
//!
//! Types of expressions are checked when a policy is written, and against the types that its rules name for its status
//! ([`checked_status`]).

mod check;
pub(crate) mod compiled;

mod mutate;
mod params;
pub(crate) mod scope;
pub(crate) mod typing;
mod validate;

pub use check::{Expressions, Gives};
pub use compiled::{Binding, Compiled, Policy};
pub use mutate::mutate;
pub use typing::checked_status;
pub use validate::validate;

use crate::Attributes;
use freehold_machinery::{Status, Value, schema::Schema, status::Cause};
use std::sync::Arc;

/// The API group of policies.
pub const GROUP: &str = "admissionregistration.k8s.io";
/// The resources of validation: policies and their bindings.
pub const VALIDATING: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
/// The resources of mutation: policies and their bindings.
pub const MUTATING: [&str; 2] = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];

/// A policy with its bindings. One without bindings does nothing.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The policy.
    pub policy: Arc<Policy>,
    /// What it is bound by.
    pub bindings: Vec<Arc<Binding>>,
    /// Whether it came with an export: then it sees nothing of the plane but the write.
    pub is_bundled: bool,
}

impl Bound {
    /// Whether it runs again when others changed the object after it.
    pub fn runs_again(&self) -> bool {
        self.policy.again
    }

    /// Policies with the bindings that name them, in the order of the policies.
    pub fn join(policies: Vec<Arc<Policy>>, bindings: &[Arc<Binding>]) -> Vec<Self> {
        let bind = |policy: Arc<Policy>| {
            let own = bindings.iter().filter(|binding| binding.policy == policy.name).cloned();
            Self { bindings: own.collect(), policy, is_bundled: false }
        };
        policies.into_iter().map(bind).filter(|bound| !bound.bindings.is_empty()).collect()
    }
}

/// Resources that policies never see, as in kube-apiserver: a policy that refused them would take access reviews away from
/// everything that relies on them. Webhooks do see them.
const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Whether neither policies nor webhooks look at a write: nobody may lock themselves out of the configuration of admission.
pub(crate) fn exempt(attributes: &Attributes<'_>) -> bool {
    attributes.ty.group == GROUP
}

/// Whether no policy looks at a write.
fn unseen(attributes: &Attributes<'_>) -> bool {
    let ty = attributes.ty;
    exempt(attributes) || REVIEWS.contains(&(ty.group.as_str(), ty.plural.as_str()))
}

/// The form of the objects that a request sends.
pub struct Form<'a> {
    /// Their schema; `None` where anything goes.
    pub schema: Option<&'a Schema>,
    /// Prunes an object and fills in its defaults, after each change.
    pub settle: &'a (dyn Fn(&mut Value) + Sync),
}

/// What a policy has against a write, as a status: the words of the first, with the words of all as causes.
fn denied(attributes: &Attributes<'_>, message: String, reason: &str, causes: Vec<String>) -> Status {
    let code = match reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    let mut status = attributes.forbidden(&message);
    status.code = code;
    status.reason = reason.to_owned();
    status.with_details(|details| {
        details.causes.extend(causes.into_iter().map(|message| Cause { message, ..Cause::default() }));
    })
}
