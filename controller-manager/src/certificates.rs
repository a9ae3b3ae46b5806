//! Signs approved CertificateSigningRequests for `kubernetes.io/kube-apiserver-client` and, of nodes,
//! `kubernetes.io/kube-apiserver-client-kubelet` and `kubernetes.io/kubelet-serving`.
//!
//! A certificate that was asked for in a project's plane is signed by the authority of that plane's clients and bound to the
//! plane, so it is worth nothing elsewhere: neither here, nor with whoever trusts another project's authority.
//! Requests for other signers are somebody else's. Those for `kubernetes.io/legacy-unknown` are signed by nobody, and in the
//! core plane those for `kubernetes.io/kubelet-serving` neither: the authority there is the server's own, and who may approve
//! would get a certificate for the server's name.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_client::{Patch, PatchOptions};
use freehold_controllers_context::kinds::SIGNING_REQUESTS;
use freehold_controllers_context::object::{int, items, text};
use freehold_controllers_context::project::{ProjectView, generation_of};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{
    PlaneId, Value,
    reserved::{self, Source},
};
use freehold_pki::{Authority, CsrInfo, CsrTerms, PlaneBinding};
use freehold_runtime::{
    Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store,
    conditions::{self, Set},
};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The signer of nodes' client certificates.
pub(crate) const KUBELET_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of the certificates that nodes serve with.
pub(crate) const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The group of nodes.
const NODES: &str = "system:nodes";
/// How names of nodes begin.
const NODE: &str = "system:node:";
/// Usages that this signer signs; `client auth` must be among them.
const USAGES: &[&str] = &["digital signature", "key encipherment", "client auth"];

/// What to do about a request.
#[derive(Debug, PartialEq)]
enum Action {
    Sign { request: Vec<u8>, usages: Vec<String>, validity: Duration },
    Fail(String),
}

fn decide(csr: &Value, longest: Duration) -> Option<Action> {
    let list = &csr["status"]["conditions"];
    let waits = conditions::is_true(list, "Approved")
        && !conditions::is_true(list, "Denied")
        && !conditions::is_true(list, "Failed")
        && text(csr, "/status/certificate").is_empty();
    let check = match text(csr, "/spec/signerName") {
        SIGNER => check_client,
        KUBELET_SIGNER => check_kubelet,
        SERVING_SIGNER => check_serving,
        _ => return None,
    };
    waits.then(|| accept(csr, check, longest).unwrap_or_else(Action::Fail))
}

/// What a request asks for.
pub(crate) fn request_of(csr: &Value) -> Result<(Vec<u8>, CsrInfo), String> {
    let request =
        STANDARD.decode(text(csr, "/spec/request")).map_err(|_| "spec.request is not base64".to_owned())?;
    let info = CsrInfo::parse(&request).map_err(|e| e.to_string())?;
    Ok((request, info))
}

fn usages(csr: &Value) -> Vec<String> {
    items(csr, "/spec/usages").iter().filter_map(|u| u.as_str().map(str::to_owned)).collect()
}

/// Whether a request is one of a node: its subject, and the usages besides `key encipherment`.
fn check_node(csr: &Value, info: &CsrInfo, kind: &str) -> Result<(), String> {
    let mut usages = usages(csr);
    usages.retain(|usage| usage != "key encipherment");
    usages.sort();
    usages.dedup();
    if info.organizations != [NODES] {
        return Err(format!("subject organization is not {NODES}"));
    }
    if !info.common_name.starts_with(NODE) {
        return Err(format!("subject common name does not begin with {NODE}"));
    }
    let wanted = if kind == "client" {
        ["client auth", "digital signature"]
    } else {
        ["digital signature", "server auth"]
    };
    if usages != wanted {
        return Err(format!("usages did not match those of a node's {kind} certificate"));
    }
    Ok(())
}

/// Whether a request is one of a node for the certificate that it serves with.
pub(crate) fn check_serving(csr: &Value, info: &CsrInfo) -> Result<(), String> {
    let names = &info.names;
    if !(names.emails.is_empty() && names.uris.is_empty()) {
        return Err("subjectAltNames other than DNS names and IP addresses are not allowed".to_owned());
    }
    if names.dns.is_empty() && names.ips.is_empty() {
        return Err("a DNS or IP subjectAltName is required".to_owned());
    }
    check_node(csr, info, "serving")
}

/// The name of the node that a request is of; empty where it is of none.
pub(crate) fn node_of(info: &CsrInfo) -> &str {
    info.common_name.strip_prefix(NODE).unwrap_or("")
}

/// Whether a request is one of a node for its client certificate, and for no more than that.
pub(crate) fn check_kubelet(csr: &Value, info: &CsrInfo) -> Result<(), String> {
    let names = &info.names;
    if !(names.dns.is_empty() && names.ips.is_empty() && names.emails.is_empty() && names.uris.is_empty()) {
        return Err("subjectAltNames are not allowed".to_owned());
    }
    check_node(csr, info, "client")
}

fn check_client(csr: &Value, info: &CsrInfo) -> Result<(), String> {
    reserved::check(Source::Certificate, &info.common_name, &info.organizations, [])
        .map_err(|why| why.to_string())?;
    let usages = usages(csr);
    if !usages.iter().any(|u| u == "client auth") || !usages.iter().all(|u| USAGES.contains(&u.as_str())) {
        return Err("usages must include \"client auth\" and no others than those of a client".to_owned());
    }
    Ok(())
}

fn accept(
    csr: &Value,
    check: fn(&Value, &CsrInfo) -> Result<(), String>,
    longest: Duration,
) -> Result<Action, String> {
    let (request, info) = request_of(csr)?;
    check(csr, &info)?;
    let usages = usages(csr);
    let asked =
        int(csr, "/spec/expirationSeconds").and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
    Ok(Action::Sign { request, usages, validity: asked.unwrap_or(longest).min(longest) })
}

struct Signing {
    planes: Planes,
    requests: Store<Value>,
    projects: Store<ProjectView>,
    authority: Arc<Authority>,
    longest: Duration,
}

/// Starts the controller, if there is an authority to sign with.
pub(crate) fn start(context: &mut Context) {
    let Some(authority) = context.config.signing.clone() else { return };
    let queue = Queue::new();
    let mut informer = Informer::new(&context.planes, Interest::objects(SIGNING_REQUESTS));
    informer.enqueue_into(&queue);
    let requests = context.run_informer(informer);
    let projects = context.projects().store();
    let (planes, longest) = (context.planes.clone(), context.config.certificate_validity);
    let waits = (requests.clone(), projects.clone());
    let controller = Signing { planes, requests, projects, authority, longest };
    context.control("certificate-signing", 2, &queue, &[&waits.0, &waits.1], controller);
}

impl Reconcile for Signing {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(csr) = self.requests.get(&key) else { return Ok(Outcome::Done) };
        if key.plane.is_core() && text(&csr, "/spec/signerName") == SERVING_SIGNER {
            return Ok(Outcome::Done);
        }
        let Some(action) = decide(&csr, self.longest) else { return Ok(Outcome::Done) };
        let status = match self.sign(&key.plane, action) {
            Ok(certificate) => json!({"certificate": STANDARD.encode(certificate)}),
            Err(message) => failed(&csr, &message, Timestamp::now()),
        };
        let patch = Patch::Merge(json!({"status": status}));
        self.planes
            .client(&key.plane)
            .patch(&SIGNING_REQUESTS, None, &key.name, &patch, &PatchOptions::status())
            .await?;
        Ok(Outcome::Done)
    }
}

impl Signing {
    fn sign(&self, plane: &PlaneId, action: Action) -> Result<String, String> {
        match action {
            Action::Fail(message) => Err(message),
            Action::Sign { request, usages, validity } => {
                let generation = generation_of(&self.projects, plane);
                let bound = (!plane.is_core()).then(|| PlaneBinding { plane: plane.as_str(), generation });
                let own = (!plane.is_core()).then(|| self.authority.for_plane(plane.as_str())).transpose();
                let own = own.map_err(|e| e.to_string())?;
                let terms = CsrTerms { usages: &usages, validity, plane: bound };
                let authority = own.as_ref().unwrap_or(&self.authority);
                authority.sign_csr(&request, &terms).map_err(|e| e.to_string())
            }
        }
    }
}

fn failed(csr: &Value, message: &str, now: Timestamp) -> Value {
    let mut list = csr["status"]["conditions"].clone();
    let set =
        Set { type_: "Failed", status: "True", reason: "SignerValidationFailure", message, generation: None };
    conditions::set(&mut list, set, now);
    json!({"conditions": list})
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_pki::{ClientName, PrivateKey};

    const LONGEST: Duration = Duration::from_secs(1000);

    fn csr(group: &str, usages: &[&str]) -> Value {
        csr_of("jane", group, usages)
    }

    fn csr_of(user: &str, group: &str, usages: &[&str]) -> Value {
        let key = PrivateKey::generate().unwrap();
        let client = ClientName { user, groups: &[group.to_owned()], plane: None };
        let request = freehold_pki::csr::request(&key, &client, &[] as &[&str]).unwrap();
        json!({
            "spec": {"signerName": SIGNER, "request": STANDARD.encode(request), "usages": usages},
            "status": {"conditions": [{"type": "Approved", "status": "True"}]},
        })
    }

    #[test]
    fn an_approved_request_of_a_client_is_signed_for_no_longer_than_allowed() {
        let mut approved = csr("devs", &["client auth"]);
        for (asked, given) in [(json!(null), 1000), (json!(600), 600), (json!(100_000), 1000)] {
            approved["spec"]["expirationSeconds"] = asked;
            let Some(Action::Sign { validity, .. }) = decide(&approved, LONGEST) else {
                panic!("not signed")
            };
            assert_eq!(validity.as_secs(), given);
        }
    }

    #[test]
    fn what_is_not_approved_or_of_another_signer_is_left_alone() {
        let mut other = csr("devs", &["client auth"]);
        other["spec"]["signerName"] = "example.com/mine".into();
        let mut pending = csr("devs", &["client auth"]);
        pending["status"] = json!({});
        let mut denied = csr("devs", &["client auth"]);
        denied["status"]["conditions"] = json!([
            {"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"},
        ]);
        let mut signed = csr("devs", &["client auth"]);
        signed["status"]["certificate"] = "eA==".into();
        for csr in [other, pending, denied, signed, Value::Null] {
            assert_eq!(decide(&csr, LONGEST), None, "{csr}");
        }
    }

    #[test]
    fn a_node_gets_a_client_certificate_and_no_more() {
        let mut node = csr_of("system:node:a", NODES, &["client auth", "digital signature"]);
        node["spec"]["signerName"] = KUBELET_SIGNER.into();
        assert!(matches!(decide(&node, LONGEST), Some(Action::Sign { .. })));
        node["spec"]["usages"] = json!(["server auth", "digital signature"]);
        assert!(matches!(decide(&node, LONGEST), Some(Action::Fail(_))));
        let mut other = csr_of("jane", NODES, &["client auth", "digital signature"]);
        other["spec"]["signerName"] = KUBELET_SIGNER.into();
        assert!(matches!(decide(&other, LONGEST), Some(Action::Fail(_))));
        other["spec"]["signerName"] = "kubernetes.io/legacy-unknown".into();
        assert_eq!(decide(&other, LONGEST), None);
    }

    #[test]
    fn a_node_gets_a_certificate_to_serve_with_for_names_alone() {
        let key = PrivateKey::generate().unwrap();
        let serving = |user: &str, hosts: &[&str], usages: &[&str]| {
            let client = ClientName { user, groups: &[NODES.to_owned()], plane: None };
            let request = freehold_pki::csr::request(&key, &client, hosts).unwrap();
            json!({
                "spec": {"signerName": SERVING_SIGNER, "request": STANDARD.encode(request), "usages": usages},
                "status": {"conditions": [{"type": "Approved", "status": "True"}]},
            })
        };
        let usages = ["digital signature", "server auth"];
        for (user, hosts, usages, signed) in [
            ("system:node:a", vec!["a.example", "10.0.0.1"], usages, true),
            ("system:node:a", vec![], usages, false),
            ("jane", vec!["a.example"], usages, false),
            ("system:node:a", vec!["a.example"], ["client auth", "digital signature"], false),
        ] {
            let decided = decide(&serving(user, &hosts, &usages), LONGEST);
            assert_eq!(matches!(decided, Some(Action::Sign { .. })), signed, "{user} {hosts:?} {usages:?}");
        }
    }

    #[test]
    fn what_asks_for_too_much_fails() {
        let mut garbage = csr("devs", &["client auth"]);
        garbage["spec"]["request"] = "AAAA".into();
        let rows = [
            csr("system:masters", &["client auth"]),
            csr("system:freehold:controllers", &["client auth"]),
            csr("freehold:serviceaccounts", &["client auth"]),
            csr("organization:acme:devs", &["client auth"]),
            csr_of("system:freehold:provisioner", "devs", &["client auth"]),
            csr_of("freehold:serviceaccount:organization-acme:ci", "devs", &["client auth"]),
            csr_of("organization:acme:jane", "devs", &["client auth"]),
            csr_of("aggregator:4711", "devs", &["client auth"]),
            csr("devs", &["client auth", "server auth"]),
            csr("devs", &[]),
            csr_of("plane:4711", "devs", &["client auth"]),
            csr_of("freehold-apiserver", "devs", &["client auth"]),
            garbage,
        ];
        for csr in rows {
            assert!(matches!(decide(&csr, LONGEST), Some(Action::Fail(_))), "{csr}");
        }
    }
}
