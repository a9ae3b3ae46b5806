//! Identity providers and users.

use freehold_apiserver_authn::oidc::JwtAuthenticator;
use freehold_machinery::{
    Value, meta,
    reserved::{self, Source},
    status::FieldError,
};

/// What is wrong about an IdentityProvider, its expressions among it: what is said of an AuthenticationConfiguration's
/// `jwt` entry. What did not change is left alone.
pub(super) fn check_provider(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if old.is_some_and(|old| old["spec"] == object["spec"]) {
        return Vec::new();
    }
    match serde_json::from_value::<JwtAuthenticator>(object["spec"].clone()) {
        Ok(config) => config.validate("spec", &[]),
        Err(error) => vec![FieldError::invalid("spec", Value::Null, error.to_string())],
    }
}

/// What is wrong about a User: one who would be a component of Freehold.
pub(super) fn check_user(object: &Value) -> Vec<FieldError> {
    let given = object["spec"]["username"].as_str().filter(|name| !name.is_empty());
    let name = given.unwrap_or_else(|| meta::name(object));
    let field = if given.is_some() { "spec.username" } else { "metadata.name" };
    let refused = reserved::check(Source::Object, name, [], []).err();
    refused.map(|why| FieldError::invalid(field, name.into(), why.to_string())).into_iter().collect()
}
