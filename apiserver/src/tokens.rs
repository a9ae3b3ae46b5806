//! TokenRequests of service accounts.

use crate::lookup::Lookup;
use freehold_apiserver_authn::{TokenIssuer, TokenRequestSpec};
use freehold_apiserver_catalog::schema_of_kind;
use freehold_apiserver_registry::{Operation, Registry, WriteOptions};
use freehold_machinery::{GroupVersionKind, Result, Status, Value, apply, meta};
use serde_json::json;
use std::sync::Arc;

/// Answers a TokenRequest for `account`.
pub(crate) async fn issue(
    tokens: &TokenIssuer,
    registry: &Registry,
    lookup: &Lookup,
    op: &Operation,
    request: &Value,
) -> Result<(Value, String)> {
    let mut at = op.clone();
    at.subresource = None;
    let account = registry.get(&at, "").await?.value();
    let spec = TokenRequestSpec::parse(request)?;
    let bound = match &spec.bound {
        None => None,
        Some(reference) => {
            let resource = reference.kind.names().1;
            at.ty = op.types.find("", "v1", resource).map(Arc::clone).ok_or_else(Status::no_such_resource)?;
            at.name = Some(reference.name.clone());
            Some(registry.get(&at, "").await?.value())
        }
    };
    let now = jiff::Timestamp::now().as_second();
    let uid = meta::uid(&account).to_owned();
    Ok((tokens.issue(&op.plane, &account, &spec, bound.as_deref(), now, lookup)?, uid))
}

/// Adds what each created object has: the account's uid, and who wrote which fields of the request.
pub(crate) fn managed(
    op: &Operation,
    options: &WriteOptions,
    request: &Value,
    uid: &str,
    issued: &mut Value,
) {
    const KIND: &str = "TokenRequest";
    const VERSION: &str = "authentication.k8s.io/v1";
    let kind =
        GroupVersionKind { group: "authentication.k8s.io".into(), version: "v1".into(), kind: KIND.into() };
    let now = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
    let mut object = json!({"apiVersion": VERSION, "kind": KIND, "metadata": {}, "spec": request["spec"]});
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.entry("expirationSeconds").or_insert_with(|| 3600.into());
    }
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
    apply::update(None, &mut object, &manager);
    if let Some(fields) = object["metadata"].get("managedFields") {
        meta::set(issued, "managedFields", fields.clone());
    }
    meta::set(issued, "uid", uid);
}
