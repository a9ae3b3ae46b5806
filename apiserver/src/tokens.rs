//! TokenRequests of service accounts.

use crate::lookup::Lookup;
use freehold_apiserver_authn::{TokenIssuer, TokenRequestSpec, token_request::DEFAULT_SECONDS};
use freehold_apiserver_catalog::schema_of_kind;
use freehold_apiserver_registry::{Operation, Registry, WriteOptions};
use freehold_machinery::{GroupVersionKind, Result, Status, Value, meta, status::FieldError};
use freehold_machinery_patch::apply;
use serde_json::json;
use std::sync::Arc;

/// The kind of the requests.
const KIND: &str = "TokenRequest";
const VERSION: &str = "authentication.k8s.io/v1";

/// Fills in what a request leaves out, and who wrote which fields of it, before admission sees it.
pub(crate) fn default(op: &Operation, options: &WriteOptions, request: &mut Value) {
    if !request["metadata"].is_object() {
        request["metadata"] = json!({});
    }
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    if request["spec"]["expirationSeconds"].is_null() {
        request["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
    let kind =
        GroupVersionKind { group: "authentication.k8s.io".into(), version: "v1".into(), kind: KIND.into() };
    let now = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
    let manager = apply::Options {
        manager: &options.field_manager,
        force: false,
        api_version: VERSION,
        kind: KIND,
        subresource: op.subresource.as_deref().unwrap_or_default(),
        now: &now,
        schema: schema_of_kind(&kind).map(|schema| &**schema),
        reset_fields: None,
    };
    apply::update(None, request, &manager);
}

/// Finds the account of a request, and fills in what depends on it: name, namespace and audiences.
///
/// # Errors
/// 404 where there is no such account, 422 for a request that names another one or lasts too short or too long.
pub(crate) async fn prepare(
    tokens: &TokenIssuer,
    registry: &Registry,
    op: &Operation,
    request: &mut Value,
) -> Result<Arc<Value>> {
    let mut at = op.clone();
    at.subresource = None;
    let account = registry.get(&at, "").await?.value();
    for (field, what) in [("name", "service account name"), ("namespace", "service account namespace")] {
        let (given, own) = (meta::text(request, field), meta::text(&account, field));
        if !given.is_empty() && given != own {
            let detail = format!("must match the {what} if specified");
            let error = FieldError::invalid(format!("metadata.{field}"), given.into(), &detail);
            return Err(Status::invalid("authentication.k8s.io", KIND, meta::name(&account), &[error]));
        }
        meta::set(request, field, own);
    }
    if request["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        request["spec"]["audiences"] = json!(tokens.api_audiences(&op.plane));
    }
    TokenRequestSpec::parse(request)?;
    Ok(account)
}

/// Answers a request for an account.
///
/// # Errors
/// 404 where there is nothing that it is to be bound to, and what else [`TokenIssuer::issue`] fails with.
pub(crate) async fn issue(
    tokens: &TokenIssuer,
    registry: &Registry,
    lookup: &Lookup,
    op: &Operation,
    (account, request): (&Value, &Value),
) -> Result<Value> {
    let spec = TokenRequestSpec::parse(request)?;
    let bound = match &spec.bound {
        None => None,
        Some(reference) => {
            let resource = reference.kind.names().1;
            let mut at = op.clone();
            at.subresource = None;
            at.ty = op.types.find("", "v1", resource).map(Arc::clone).ok_or_else(Status::no_such_resource)?;
            at.name = Some(reference.name.clone());
            Some(registry.get(&at, "").await?.value())
        }
    };
    let now = jiff::Timestamp::now().as_second();
    let mut issued = tokens.issue(&op.plane, account, &spec, bound.as_deref(), now, lookup)?;
    if let Some(fields) = request["metadata"].get("managedFields") {
        meta::set(&mut issued, "managedFields", fields.clone());
    }
    meta::set(&mut issued, "uid", meta::uid(account));
    Ok(issued)
}
