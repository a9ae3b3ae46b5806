//! The parameters of a policy, as a binding names them.

use super::{Binding, Policy};
use crate::{Attributes, Lookup};
use freehold_machinery::{Value, meta, selector::Labels};
use std::sync::Arc;

/// The parameters that a policy is evaluated with: once for each, with `None` where it has none. An empty list is no
/// evaluation at all.
///
/// # Errors
/// What is missing, in Kubernetes' words.
pub(super) fn params(
    policy: &Policy,
    binding: &Binding,
    attributes: &Attributes<'_>,
    lookup: &dyn Lookup,
) -> Result<Vec<Option<Arc<Value>>>, String> {
    let reference = &binding.param_ref;
    let Some((api_version, kind)) = &policy.param_kind else { return Ok(vec![None]) };
    if !reference.is_object() {
        return Ok(vec![None]);
    }
    let Some((resource, namespaced)) = lookup.resource_of(attributes.plane, api_version, kind) else {
        return Err(format!("paramKind kind `{api_version}, Kind={kind}` not known"));
    };
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let given = reference["namespace"].as_str().unwrap_or_default();
    let namespace = match (namespaced, given) {
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "") if attributes.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        (true, "") => attributes.namespace,
        (true, given) => given,
    };
    let found: Vec<Arc<Value>> = match reference["name"].as_str() {
        Some(name) => lookup.get(attributes.plane, group, &resource, namespace, name).into_iter().collect(),
        None => {
            let selector = Labels::from_value(&reference["selector"])?;
            let mut all = lookup.list(attributes.plane, group, &resource, namespace);
            all.retain(|object| selector.matches(|key| meta::label(object, key)));
            all
        }
    };
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found.into_iter().map(Some).collect())
}
