//! Refusal of bad definitions and runs when they are written: in a server's own process, and by a webhook for any other
//! Kubernetes API.
//!
//! Nothing depends on the webhook: while it is down, objects are let in, and what is wrong with them is told by the condition
//! `Valid` of DAGs and the reason `InvalidDefinition` of runs.

use crate::kinds::DAGS;
use freehold_client::{Client, Error, Resource};
use freehold_machinery::status::{FieldError, FieldErrorKind};
use freehold_machinery::{Status, Value, meta};
use freehold_runtime::Admission;
use freehold_webhook::certificates::Shared;
use freehold_webhook::{Address, Place, Reviewer, Webhook, WebhookError};
use freehold_workflow_api::admission::{FindDag, RESOURCES, admit, referenced_dag};
use freehold_workflow_api::{GROUP, kontroler};
use freehold_workflow_convert::convert;
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The check for servers that ask in their own process.
pub(crate) const ADMISSION: Admission = Admission {
    groups: &[GROUP, kontroler::GROUP],
    admit: |object, old, find| check(object, old, &|namespace, name| find("dags", namespace, name)),
};

const CONFIGURATIONS: Resource =
    Resource::cluster("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations");
const PATH: &str = "/admit";
const SECRET: &str = "workflow-webhook-ca";
/// Seconds that the API server waits for an answer.
const TIMEOUT: u8 = 10;

/// Starts the webhook and registers it. The authority that replicas share is a Secret in `namespace`.
///
/// # Errors
/// [`WebhookError`] where there is no certificate or no registration.
pub async fn start_webhook(
    client: &Client,
    listener: TcpListener,
    place: Place,
    namespace: String,
    (tasks, token): (&TaskTracker, CancellationToken),
) -> Result<(), WebhookError> {
    let reviewer = Arc::new(Definitions { client: client.clone() });
    let webhook = Webhook { listener, place, secret: Shared { namespace, name: SECRET }, reviewer };
    webhook.start(client.clone(), tasks, token).await
}

/// Checks an object of the subsystem's kinds or of Kontroler's.
fn check(object: &Value, old: Option<&Value>, find: &FindDag<'_>) -> Result<(), Status> {
    let group = object["apiVersion"].as_str().and_then(|version| version.split('/').next());
    match group {
        Some(kontroler::GROUP) => convertible(object, old),
        _ => admit(object, old, find),
    }
}

/// Refuses an object of Kontroler's kinds that could not be converted, whatever else there is.
fn convertible(object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if old.is_some_and(|old| old["spec"] == object["spec"]) {
        return Ok(());
    }
    let converted = convert(std::slice::from_ref(object)).pop().unwrap_or_default();
    let found: Vec<FieldError> = converted
        .problems
        .into_iter()
        .map(|problem| FieldError::new(FieldErrorKind::Forbidden, problem.path, problem.message))
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    let kind = object["kind"].as_str().unwrap_or_default();
    Err(Status::invalid(kontroler::GROUP, kind, meta::name(object), &found))
}

/// Decides on definitions and runs.
struct Definitions {
    client: Client,
}

#[async_trait::async_trait]
impl Reviewer for Definitions {
    async fn review(&self, path: &str, mut review: Value) -> Option<Value> {
        if path != PATH {
            return None;
        }
        let mut request = review["request"].take();
        let (object, old) = (request["object"].take(), request["oldObject"].take());
        let mut response = self.respond(&object, Some(&old).filter(|old| !old.is_null())).await;
        response["uid"] = request["uid"].take();
        Some(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    }

    async fn register(&self, client: &Client, address: &Address, bundle: &str) -> Result<(), Error> {
        client.apply(&CONFIGURATIONS, "freehold-workflow", &configuration(address, bundle)).await.map(drop)
    }
}

impl Definitions {
    async fn respond(&self, object: &Value, old: Option<&Value>) -> Value {
        let dag = match referenced_dag(object, old) {
            // A DAG that cannot be read now is one that may come later.
            Some(name) => {
                self.client.get_opt(&DAGS, Some(meta::namespace(object)), name).await.ok().flatten()
            }
            None => None,
        };
        let dag = dag.map(Arc::new);
        match check(object, old, &|_, _| dag.clone()) {
            Ok(()) => json!({"allowed": true}),
            Err(status) => json!({"allowed": false, "status": status.to_json()}),
        }
    }
}

/// The configuration: only objects of the subsystem's kinds, and only while the webhook answers.
fn configuration(address: &Address, bundle: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": GROUP},
        "webhooks": [{
            "name": format!("definitions.{GROUP}"), "clientConfig": address.client_config(bundle, PATH),
            "rules": [{
                "apiGroups": [GROUP, kontroler::GROUP], "apiVersions": ["*"], "resources": RESOURCES,
                "operations": ["CREATE", "UPDATE"], "scope": "*",
            }],
            "failurePolicy": "Ignore", "matchPolicy": "Equivalent", "sideEffects": "None",
            "timeoutSeconds": TIMEOUT, "admissionReviewVersions": ["v1"],
        }],
    })
}
