//! CertificateSigningRequests that nobody needs any more are deleted, as kube-controller-manager does: an hour after they
//! were signed, denied or failed, a day after they were made or approved without anything following, and when the certificate
//! has expired.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_client::DeleteOptions;
use freehold_controllers_context::kinds::SIGNING_REQUESTS;
use freehold_controllers_context::object::{conditions_of, text, unless_gone};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use jiff::Timestamp;
use std::time::Duration;

/// What was decided on stays so long.
const SETTLED: Duration = Duration::from_secs(3600);
/// What waits for somebody stays so long.
const PENDING: Duration = Duration::from_secs(24 * 3600);

/// What is kept of a request: who it is, and when it goes.
#[derive(Clone, Debug, PartialEq)]
struct Deadline {
    uid: String,
    at: Timestamp,
}

impl Deadline {
    fn of(csr: Value) -> Option<Self> {
        Some(Self { uid: meta::uid(&csr).to_owned(), at: deadline(&csr)? })
    }
}

/// When a request is to go, if ever.
fn deadline(csr: &Value) -> Option<Timestamp> {
    let certificate = text(csr, "/status/certificate");
    let conditions = conditions_of(csr);
    if conditions.is_empty() {
        return later(time::parse(meta::text(csr, "creationTimestamp")), PENDING);
    }
    let each = conditions.iter().filter_map(|condition| {
        let told = time::parse(text(condition, "/lastUpdateTime"));
        match text(condition, "/type") {
            "Approved" if certificate.is_empty() => later(told, PENDING),
            "Approved" => [later(told, SETTLED), expiry(certificate)].into_iter().flatten().min(),
            "Denied" | "Failed" => later(told, SETTLED),
            _ => None,
        }
    });
    each.min()
}

fn later(from: Option<Timestamp>, wait: Duration) -> Option<Timestamp> {
    from?.checked_add(wait).ok()
}

/// When a certificate in base64 of PEM expires.
fn expiry(certificate: &str) -> Option<Timestamp> {
    let pem = String::from_utf8(STANDARD.decode(certificate).ok()?).ok()?;
    freehold_pki::not_after(&pem).ok()
}

struct Cleaner {
    planes: Planes,
    requests: Store<Deadline>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.planes, Interest::projected(SIGNING_REQUESTS, Deadline::of));
    informer.enqueue_into(&queue);
    let requests = context.run_informer(informer);
    let controller = Cleaner { planes: context.planes.clone(), requests: requests.clone() };
    context.control("certificate-cleaner", 1, &queue, &[&requests], controller);
}

impl Reconcile for Cleaner {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(request) = self.requests.get(&key) else { return Ok(Outcome::Done) };
        if let Ok(left) = Duration::try_from(request.at.duration_since(Timestamp::now()))
            && !left.is_zero()
        {
            return Ok(Outcome::After(left));
        }
        let options = DeleteOptions::uid(&request.uid);
        let client = self.planes.client(&key.plane);
        match client.delete(&SIGNING_REQUESTS, None, &key.name, &options).await {
            Err(error) => {
                unless_gone(&client, &SIGNING_REQUESTS, (None, &key.name, &request.uid), error).await?;
                Ok(Outcome::Done)
            }
            Ok(_) => Ok(Outcome::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_pki::{Authority, ClientName};
    use serde_json::json;

    #[test]
    fn requests_stay_as_long_as_somebody_may_need_them() {
        let authority = Authority::generate("test").unwrap();
        let short = authority
            .issue_client(&ClientName { user: "jane", groups: &[], plane: None }, Duration::from_secs(60))
            .unwrap();
        let expires = freehold_pki::not_after(&short.cert_pem).unwrap();
        let csr = |conditions: &[&str], certificate: &str| {
            let one =
                |t: &&str| json!({"type": t, "status": "True", "lastUpdateTime": "2100-01-01T12:00:00Z"});
            json!({
                "metadata": {"uid": "u", "creationTimestamp": "2100-01-01T00:00:00Z"},
                "status": {"conditions": conditions.iter().map(one).collect::<Vec<_>>(), "certificate": certificate},
            })
        };
        let rows = [
            (csr(&[], ""), Some("2100-01-02T00:00:00Z".to_owned())),
            (csr(&["Approved"], ""), Some("2100-01-02T12:00:00Z".to_owned())),
            (csr(&["Approved"], "eA=="), Some("2100-01-01T13:00:00Z".to_owned())),
            (csr(&["Approved"], &STANDARD.encode(&short.cert_pem)), Some(time::format_seconds(expires))),
            (csr(&["Denied"], ""), Some("2100-01-01T13:00:00Z".to_owned())),
            (csr(&["Approved", "Failed"], ""), Some("2100-01-01T13:00:00Z".to_owned())),
            (csr(&["Strange"], ""), None),
        ];
        for (csr, at) in rows {
            assert_eq!(deadline(&csr).map(time::format_seconds), at, "{csr}");
        }
    }
}
