//! Approval of APIs in groups of the Kubernetes community (KEP-1111): the annotation, and the condition that follows
//! from it.

use crate::{Value, meta};

/// The annotation that approves an API with a URL, or admits that it is not approved.
pub(super) const ANNOTATION: &str = "api-approved.kubernetes.io";
/// Where the policy is explained.
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// What the annotation of a CRD says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    /// A URL.
    Approved,
    /// A reason that begins with `unapproved`.
    Bypassed,
    Missing,
    Invalid,
}

impl Approval {
    /// Reads the annotation of a CRD.
    pub(super) fn of(crd: &Value) -> Self {
        let text = meta::annotation(crd, ANNOTATION).unwrap_or("");
        let is_url = text.split_once("://").is_some_and(|(s, host)| !s.is_empty() && !host.is_empty());
        match text {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Bypassed,
            _ if is_url => Self::Approved,
            _ => Self::Invalid,
        }
    }
}

/// Whether a group belongs to the Kubernetes community.
pub(super) fn is_protected(group: &str) -> bool {
    let within =
        |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    within("k8s.io") || within("kubernetes.io")
}

/// Returns what is wrong with a missing or invalid annotation.
pub(super) fn problem(approval: Approval) -> String {
    let needed = format!("protected groups must have approval annotation \"{ANNOTATION}\"");
    match approval {
        Approval::Invalid => {
            format!("{needed} with either a URL or a reason starting with \"unapproved\", {SEE}")
        }
        _ => format!("{needed}, {SEE}"),
    }
}

/// Returns status, reason and message of `KubernetesAPIApprovalPolicyConformant`; `None` for groups that need no approval.
pub(super) fn condition(crd: &Value) -> Option<(&'static str, &'static str, String)> {
    let group = crd["spec"]["group"].as_str().unwrap_or_default();
    let text = meta::annotation(crd, ANNOTATION).unwrap_or("");
    is_protected(group).then(|| match Approval::of(crd) {
        Approval::Approved => ("True", "ApprovedAnnotation", format!("approved in {text}")),
        Approval::Bypassed => ("False", "UnapprovedAnnotation", format!("not approved: {text:?}")),
        Approval::Missing => ("False", "MissingAnnotation", problem(Approval::Missing)),
        Approval::Invalid => ("False", "InvalidAnnotation", problem(Approval::Invalid)),
    })
}
