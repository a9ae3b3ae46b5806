//! Approves requests of nodes for their own client certificates, where the requester may have that done: who may `create`
//! `certificatesigningrequests/nodeclient`, or `.../selfnodeclient` for the certificate of the node that it is itself
//! (<https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/>).

use crate::certificates::{KUBELET_SIGNER, check_kubelet, request_of};
use crate::context::{Context, Reconcile};
use crate::kinds::{ACCESS_REVIEWS, SIGNING_REQUESTS};
use crate::object::{conditions_of, text};
use freehold_client::{Client, Error};
use freehold_machinery::Value;
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use serde_json::json;

/// A permission that has a request approved, and what the approval says.
type Permission = (&'static str, &'static str);

const SELF: Permission =
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.");
const OTHER: Permission =
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");

/// Whether nobody has decided on a request of a node yet.
fn waits(csr: &Value) -> bool {
    let decided = |c: &Value| matches!(text(c, "/type"), "Approved" | "Denied" | "Failed");
    text(csr, "/spec/signerName") == KUBELET_SIGNER
        && text(csr, "/status/certificate").is_empty()
        && !conditions_of(csr).iter().any(decided)
}

/// The permissions, any of which has a request approved; none for what is no request of a node.
fn decide(csr: &Value) -> Vec<Permission> {
    let Some(info) = waits(csr).then(|| request_of(csr).ok().map(|(_, info)| info)).flatten() else {
        return Vec::new();
    };
    if check_kubelet(csr, &info).is_err() {
        return Vec::new();
    }
    match text(csr, "/spec/username") == info.common_name {
        true => vec![SELF, OTHER],
        false => vec![OTHER],
    }
}

/// The question whether the requester of `csr` may.
fn review(csr: &Value, (subresource, _): Permission) -> Value {
    let spec = &csr["spec"];
    let mut review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": spec["username"],
            "resourceAttributes": {
                "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
                "subresource": subresource, "version": "*",
            },
        },
    });
    for field in ["uid", "groups", "extra"] {
        if let Some(value) = spec.get(field).filter(|value| !value.is_null()) {
            review["spec"][field] = value.clone();
        }
    }
    review
}

struct Approval {
    planes: Planes,
    requests: Store<Value>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    // What nobody waits for is not kept.
    let interest = Interest::projected(SIGNING_REQUESTS, |csr| waits(&csr).then_some(csr));
    let mut informer = Informer::new(&context.planes, interest);
    informer.enqueue_into(&queue);
    let requests = context.run_informer(informer);
    context.resync(&requests, &queue);
    let controller = Approval { planes: context.planes.clone(), requests: requests.clone() };
    context.control("certificate-approving", 2, &queue, &[&requests], controller);
}

impl Reconcile for Approval {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(csr) = self.requests.get(&key) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        for permission in decide(&csr) {
            let answer = client.create(&ACCESS_REVIEWS, &review(&csr, permission)).await?;
            if answer["status"]["allowed"] == true {
                return match approve(&client, &csr, permission).await {
                    Err(error) if !error.is_not_found() => Err(error.into()),
                    _ => Ok(Outcome::Done),
                };
            }
        }
        // Who may not now may later: a resync asks again.
        Ok(Outcome::Done)
    }
}

async fn approve(client: &Client, csr: &Value, (_, message): Permission) -> Result<(), Error> {
    let mut conditions = conditions_of(csr).to_vec();
    conditions
        .push(json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}));
    let approved = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": csr["metadata"],
        "spec": csr["spec"], "status": {"conditions": conditions},
    });
    client.update_subresource(&SIGNING_REQUESTS, "approval", &approved).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use freehold_pki::{ClientName, PrivateKey};

    fn csr(user: &str, asked: &str, group: &str, hosts: &[&str]) -> Value {
        let key = PrivateKey::generate().unwrap();
        let client = ClientName { user: asked, groups: &[group.to_owned()], plane: None };
        let request = freehold_pki::csr::request(&key, &client, hosts).unwrap();
        json!({"metadata": {"name": "c"}, "spec": {
            "signerName": KUBELET_SIGNER, "request": STANDARD.encode(request), "username": user, "groups": ["g"],
            "usages": ["digital signature", "client auth"],
        }})
    }

    #[test]
    fn a_node_asks_for_itself_or_for_another_and_nobody_for_more() {
        let node = "system:node:a";
        let with = |change: fn(&mut Value)| {
            let mut csr = csr(node, node, "system:nodes", &[]);
            change(&mut csr);
            csr
        };
        let rows = [
            (csr(node, node, "system:nodes", &[]), vec![SELF, OTHER]),
            (csr("system:bootstrap:x", node, "system:nodes", &[]), vec![OTHER]),
            (csr("jane", "jane", "system:nodes", &[]), vec![]),
            (csr(node, node, "system:masters", &[]), vec![]),
            (csr(node, node, "system:nodes", &["web.example"]), vec![]),
            (with(|c| c["spec"]["usages"] = json!(["digital signature", "server auth"])), vec![]),
            (with(|c| c["spec"]["signerName"] = "example.com/mine".into()), vec![]),
            (with(|c| c["spec"]["request"] = "AAAA".into()), vec![]),
            (with(|c| c["status"] = json!({"conditions": [{"type": "Denied", "status": "True"}]})), vec![]),
            (with(|c| c["status"] = json!({"certificate": "eA=="})), vec![]),
            (json!({"spec": {"signerName": KUBELET_SIGNER, "usages": 7}}), vec![]),
        ];
        for (csr, permissions) in rows {
            assert_eq!(decide(&csr), permissions, "{csr}");
        }
        let review = review(&csr(node, node, "system:nodes", &[]), SELF);
        assert_eq!(review["spec"]["resourceAttributes"]["subresource"], "selfnodeclient");
        assert_eq!(review["spec"]["groups"], json!(["g"]));
    }
}
