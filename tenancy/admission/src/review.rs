//! `admission.k8s.io/v1`: requests of the API server, and what they are answered.

use crate::configuration::{DEFAULTS_PATH, PATH, register};
use crate::index::Live;
use crate::ledger::{Desks, Refusal, Wanted};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_client::{Client, Error};
use freehold_machinery::{GroupResource, Value};
use freehold_runtime::Key;
use freehold_tenancy_decide::admission::{Decision, Exempt, Index as _, Operation, Request, User, admit};
use freehold_tenancy_decide::limits::ObjectId;
use freehold_webhook::Address;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the namespace of a request is waited for.
const CATCH_UP: Duration = Duration::from_secs(2);

/// What a review is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Whether the request is let in. Only new namespaces are changed by the answer.
    Decision,
    /// What an object is given by default. The decision is asked for by another call.
    Defaults,
}

/// Decides on reviews.
#[derive(Clone)]
pub struct Reviewer {
    live: Live,
    /// `None` where the server keeps limits itself.
    desks: Option<Desks>,
    exempt: Arc<Exempt>,
}

#[async_trait::async_trait]
impl freehold_webhook::Reviewer for Reviewer {
    /// Whether all tenants and namespaces are known.
    fn is_ready(&self) -> bool {
        self.live.is_synced()
    }

    async fn review(&self, path: &str, mut review: Value) -> Option<Value> {
        let ask = match path {
            PATH => Ask::Decision,
            DEFAULTS_PATH => Ask::Defaults,
            _ => return None,
        };
        let mut request = review["request"].take();
        let uid = request["uid"].take();
        // Stands for the name of an object that the server has not named yet: no two of those are the same.
        let unnamed = format!("?{}", uid.as_str().unwrap_or_default());
        let mut response = self.respond(request, &unnamed, ask).await;
        response["uid"] = uid;
        Some(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    }

    async fn register(&self, client: &Client, address: &Address, bundle: &str) -> Result<(), Error> {
        register(client, address, bundle).await
    }
}

impl Reviewer {
    /// A reviewer with the state of `live` and the desks for reservations; `None` where nothing is reserved.
    pub fn new(live: Live, desks: Option<Desks>, exempt: Exempt) -> Self {
        Self { live, desks, exempt: Arc::new(exempt) }
    }

    async fn respond(&self, mut review: Value, unnamed: &str, ask: Ask) -> Value {
        let object = Arc::new(review["object"].take());
        let old = review["oldObject"].take();
        let text = |pointer: &str| review.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("/operation") {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            _ => return allowed(&[]),
        };
        let groups = review.pointer("/userInfo/groups").and_then(Value::as_array);
        let groups = groups.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let user = User { name: text("/userInfo/username").to_owned(), groups };
        let request = Request {
            operation,
            resource: GroupResource::new(text("/resource/group"), text("/resource/resource")),
            subresource: text("/subResource"),
            namespace: text("/namespace"),
            name: Some(text("/name")).filter(|name| !name.is_empty()).unwrap_or(name_of(&object)),
            object: &object,
            old: &old,
            user: &user,
        };
        if !self.knows(request.namespace, &request.resource).await {
            return denied(429, "TooManyRequests", "the namespace is not known to admission yet; try again");
        }
        let patch = match admit(&request, &self.live, &self.exempt) {
            Decision::Deny(message) => return denied(403, "Forbidden", &message),
            Decision::Allow(patch) => patch,
        };
        if ask == Ask::Defaults {
            return allowed(&patch);
        }
        let dry_run = review["dryRun"] == true;
        if let Some(desks) = &self.desks
            && let Some((tenants, wanted)) = self.charge(&request, (&object, unnamed), &patch)
        {
            let reserved = match dry_run {
                true => desks.check(&tenants, &wanted),
                false => desks.reserve(&tenants, wanted).await,
            };
            match reserved {
                Ok(()) => {}
                Err(Refusal::Exceeded(message)) => return denied(403, "Forbidden", &message),
                Err(Refusal::TryAgain(message)) => return denied(429, "TooManyRequests", &message),
            }
        }
        if !dry_run && operation != Operation::Delete {
            self.live.remember_hosts(&request.resource, request.namespace, request.name, &object);
        }
        let changes = request.resource == GroupResource::new("", "namespaces");
        allowed(if changes { &patch } else { &[] })
    }

    /// Waits until the informer has the namespace of an object: the server asks only about namespaces with a tenant.
    async fn knows(&self, namespace: &str, resource: &GroupResource) -> bool {
        if namespace.is_empty() || *resource == GroupResource::new("", "namespaces") {
            return true;
        }
        let begun = Instant::now();
        loop {
            if self.live.namespace(namespace).is_some_and(|namespace| namespace.tenant().is_some()) {
                return true;
            }
            if begun.elapsed() > CATCH_UP {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The tenants whose limits an object counts for, and what is to be reserved.
    fn charge(
        &self,
        request: &Request<'_>,
        (object, unnamed): (&Arc<Value>, &str),
        patch: &[Value],
    ) -> Option<(Vec<Key>, Wanted)> {
        if request.operation == Operation::Delete || !matches!(request.subresource, "" | "resize") {
            return None;
        }
        let is_namespace = request.resource == GroupResource::new("", "namespaces");
        let tenant = match is_namespace {
            true if request.operation == Operation::Create => joined(object, patch)?,
            true => return None,
            false => self.live.namespace(request.namespace)?.tenant()?.to_owned(),
        };
        let tenants = self.live.usages().charged(self.live.plane(), &tenant);
        if tenants.is_empty() {
            return None;
        }
        let text =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let id = ObjectId {
            resource: request.resource.clone(),
            namespace: if is_namespace { String::new() } else { request.namespace.to_owned() },
            name: Some(request.name).filter(|name| !name.is_empty()).unwrap_or(unnamed).to_owned(),
        };
        let replaces = match request.operation {
            Operation::Update => text(request.old, "resourceVersion").parse().unwrap_or(1),
            _ => 0,
        };
        Some((tenants, Wanted { id, uid: text(object, "uid"), object: object.clone(), replaces }))
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// The tenant that a new namespace joins: by its own label, or by the one that it is given.
fn joined(object: &Value, patch: &[Value]) -> Option<String> {
    let label = freehold_tenancy_api::TENANT_LABEL;
    let own = object["metadata"]["labels"][label].as_str();
    let path = format!("/metadata/labels/{}", label.replace('/', "~1"));
    let given = patch.iter().find(|operation| operation["path"] == path.as_str());
    own.or_else(|| given?["value"].as_str()).map(str::to_owned)
}

fn allowed(patch: &[Value]) -> Value {
    if patch.is_empty() {
        return json!({"allowed": true});
    }
    let patch = STANDARD.encode(Value::from(patch.to_vec()).to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

fn denied(code: u16, reason: &str, message: &str) -> Value {
    json!({"allowed": false, "status": {"code": code, "reason": reason, "message": message}})
}
