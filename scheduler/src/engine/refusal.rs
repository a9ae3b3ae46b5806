//! Why a node is refused.

use super::pod::Pod;
use super::snapshot::Node;
use super::terms::Taint;

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason in kube-scheduler's words.
    pub reason: String,
    /// Whether Pods that leave the node could change it.
    pub may_resolve: bool,
}

impl Refusal {
    /// A refusal that Pods which leave the node could end.
    pub fn resolvable(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), may_resolve: true }
    }

    /// A refusal that has nothing to do with the Pods on the node.
    pub fn fixed(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), may_resolve: false }
    }
}

/// The first taint of a node that keeps a Pod away.
pub(super) fn untolerated<'a>(pod: &Pod, node: &'a Node) -> Option<&'a Taint> {
    let keeps = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
    let tolerated = |taint: &Taint| pod.tolerations.iter().any(|toleration| toleration.covers(taint));
    node.taints.iter().filter(keeps).find(|taint| !tolerated(taint))
}
