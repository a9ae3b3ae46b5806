//! Reviews of identities: TokenReview, SelfSubjectReview, and the documents with which tokens are verified outside
//! (<https://openid.net/specs/openid-connect-discovery-1_0.html>).

use crate::TokenError;
use crate::token::{ServiceAccountLookup, TokenIssuer};
use freehold_machinery::{Map, PlaneId, User, Value};
use serde_json::json;

impl TokenIssuer {
    /// The status of a TokenReview with that spec.
    pub fn review(
        &self,
        plane: &PlaneId,
        spec: &Value,
        now: i64,
        lookup: &dyn ServiceAccountLookup,
    ) -> Value {
        let wanted = spec["audiences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let wanted: Vec<String> = wanted.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let audiences = if wanted.is_empty() { self.api_audiences(plane) } else { wanted };
        let token = spec["token"].as_str().unwrap_or_default();
        match self.verify_for(plane, token, &audiences, now, lookup) {
            Ok(verified) => answer(Ok((verified.user, verified.audiences))),
            Err(TokenError::Unverifiable) => answer(Err(&[])),
            Err(error) => answer(Err(&[error.to_string()])),
        }
    }

    /// The plane's `/.well-known/openid-configuration`. `jwks_uri` is where its keys are served.
    pub fn openid_configuration(&self, plane: &PlaneId, jwks_uri: &str) -> Value {
        json!({
            "issuer": self.issuer(plane),
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }
}

/// The status of a TokenReview: who bears the token and for which audiences, or what is wrong with it.
pub fn answer(found: Result<(User, Vec<String>), &[String]>) -> Value {
    match found {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
        }
        Err([]) => json!({"user": {}, "error": "invalid bearer token"}),
        Err(errors) => json!({"user": {}, "error": format!("[invalid bearer token, {}]", errors.join(", "))}),
    }
}

/// A user as `authentication.k8s.io` writes one: what TokenReview and SelfSubjectReview answer.
pub fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".into(), user.name.clone().into());
    if !user.uid.is_empty() {
        info.insert("uid".into(), user.uid.clone().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}
