//! TokenRequests of service accounts.

use crate::lookup::Lookup;
use freehold_apiserver_authn::{TokenIssuer, TokenRequestSpec};
use freehold_apiserver_registry::{Operation, Registry};
use freehold_machinery::{Result, Status, Value};
use std::sync::Arc;

/// Answers a TokenRequest for `account`.
pub(crate) async fn issue(
    tokens: &TokenIssuer,
    registry: &Registry,
    lookup: &Lookup,
    op: &Operation,
    request: &Value,
) -> Result<Value> {
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
    tokens.issue(&op.plane, &account, &spec, bound.as_deref(), now, lookup)
}
