//! Approves requests of nodes for their own client certificates, where the requester may have that done: who may `create`
//! `certificatesigningrequests/nodeclient`, or `.../selfnodeclient` for the certificate of the node that it is itself
//! (<https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/>).
//!
//! Approves as well what a node asks for to serve with, where all names in it are addresses of that Node and of no other.

use crate::certificates::{
    KUBELET_SIGNER, SERVING_SIGNER, check_kubelet, check_serving, node_of, request_of,
};
use freehold_client::{Client, Error, ListOptions};
use freehold_controllers_context::kinds::{ACCESS_REVIEWS, NODES, SIGNING_REQUESTS};
use freehold_controllers_context::object::{conditions_of, items, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_pki::CsrInfo;
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use serde_json::json;
use std::time::Duration;

/// How soon a request is looked at again whose names are not the node's.
const AGAIN: Duration = Duration::from_secs(30);

/// A permission that has a request approved, and what the approval says.
type Permission = (&'static str, &'static str);

const SELF: Permission =
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.");
const OTHER: Permission =
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");

const SERVING: &str = "Auto approving kubelet serving certificate: its names are addresses of the node.";

/// Whether nobody has decided on a request of a node yet.
fn waits(csr: &Value) -> bool {
    let decided = |c: &Value| matches!(text(c, "/type"), "Approved" | "Denied" | "Failed");
    matches!(text(csr, "/spec/signerName"), KUBELET_SIGNER | SERVING_SIGNER)
        && text(csr, "/status/certificate").is_empty()
        && !conditions_of(csr).iter().any(decided)
}

/// The permissions, any of which has a request approved; none for what is no request of a node.
fn decide(csr: &Value) -> Vec<Permission> {
    let is_client = waits(csr) && text(csr, "/spec/signerName") == KUBELET_SIGNER;
    let Some(info) = is_client.then(|| request_of(csr).ok().map(|(_, info)| info)).flatten() else {
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

/// What a node asks for to serve with; `None` for what is no such request, or one that another than the node made.
fn serving_request(csr: &Value) -> Option<CsrInfo> {
    let is_serving = waits(csr) && text(csr, "/spec/signerName") == SERVING_SIGNER;
    let (_, info) = is_serving.then(|| request_of(csr).ok()).flatten()?;
    let is_own = text(csr, "/spec/username") == info.common_name && check_serving(csr, &info).is_ok();
    is_own.then_some(info)
}

/// Whether all names of a request are addresses of its node and of no other.
fn names_are_its_own(info: &CsrInfo, nodes: &[Value]) -> bool {
    let of_node = |name: &str| {
        let mut with = nodes.iter().filter(|node| {
            items(node, "/status/addresses").iter().any(|address| text(address, "/address") == name)
        });
        with.next().is_some_and(|node| meta::name(node) == node_of(info)) && with.next().is_none()
    };
    let ips = info.names.ips.iter().map(ToString::to_string);
    info.names.dns.iter().cloned().chain(ips).all(|name| of_node(&name))
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
        if let Some(info) = serving_request(&csr) {
            let nodes = client.list_all(&NODES, None, &ListOptions::default()).await?.items;
            // Its addresses may be told in a moment.
            return match names_are_its_own(&info, &nodes) {
                true => approved(approve(&client, &csr, SERVING).await),
                false => Ok(Outcome::After(AGAIN)),
            };
        }
        for permission in decide(&csr) {
            let answer = client.create(&ACCESS_REVIEWS, &review(&csr, permission)).await?;
            if answer["status"]["allowed"] == true {
                return approved(approve(&client, &csr, permission.1).await);
            }
        }
        // Who may not now may later: a resync asks again.
        Ok(Outcome::Done)
    }
}

/// A request that is gone by now needs no approval.
fn approved(result: Result<(), Error>) -> Reconciled {
    match result {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(Outcome::Done),
    }
}

async fn approve(client: &Client, csr: &Value, message: &str) -> Result<(), Error> {
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
    fn a_node_serves_with_its_own_addresses_alone() {
        let node = |name: &str, address: &str| {
            json!({"metadata": {"name": name}, "status": {"addresses": [
                {"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name},
            ]}})
        };
        let nodes =
            [node("a", "10.0.0.1"), node("b", "10.0.0.2"), node("c", "10.0.0.9"), node("d", "10.0.0.9")];
        let serving = |user: &str, asked: &str, hosts: &[&str]| {
            let mut csr = csr(user, asked, "system:nodes", hosts);
            csr["spec"]["signerName"] = SERVING_SIGNER.into();
            csr["spec"]["usages"] = json!(["digital signature", "server auth"]);
            csr
        };
        for (user, asked, hosts, expected) in [
            ("system:node:a", "system:node:a", vec!["10.0.0.1", "a"], true),
            ("system:node:a", "system:node:a", vec!["10.0.0.2"], false),
            ("system:node:a", "system:node:a", vec!["a.example"], false),
            ("system:node:c", "system:node:c", vec!["10.0.0.9"], false),
            ("system:node:a", "system:node:b", vec!["10.0.0.2"], false),
            ("jane", "system:node:b", vec!["10.0.0.2"], false),
        ] {
            let request = serving_request(&serving(user, asked, &hosts));
            let approved = request.is_some_and(|info| names_are_its_own(&info, &nodes));
            assert_eq!(approved, expected, "{user} {asked} {hosts:?}");
        }
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
