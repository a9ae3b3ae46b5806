//! `serviceaccounts/token`: TokenRequests and the tokens that answer them
//! (<https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>).

use crate::token::{
    Audiences, BoundKind, Claims, Freehold, Kubernetes, Reference, ServiceAccountLookup, TokenIssuer,
};
use freehold_machinery::{
    GroupResource, PlaneId, Status, Value, meta,
    status::{FieldError, FieldErrorKind},
};
use serde_json::json;

/// The shortest life of a token that can be asked for, in seconds.
pub const MIN_SECONDS: i64 = 600;
/// The longest life of a token that can be asked for, in seconds.
pub const MAX_SECONDS: i64 = 1 << 32;
/// The life of a token where none is asked for, in seconds.
pub const DEFAULT_SECONDS: i64 = 3600;
/// How many audiences one token can have.
pub const MAX_AUDIENCES: usize = 64;

/// What a TokenRequest asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequestSpec {
    /// Whom the token is for; empty means the API itself.
    pub audiences: Vec<String>,
    /// How long, in seconds.
    pub expiration_seconds: i64,
    /// What the token ends with.
    pub bound: Option<BoundReference>,
}

/// An object that a token is to be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundReference {
    /// Its kind.
    pub kind: BoundKind,
    /// Its name.
    pub name: String,
    /// Its uid, where the client insists on one.
    pub uid: String,
}

const BINDABLE: [(&str, BoundKind); 3] =
    [("Pod", BoundKind::Pod), ("Secret", BoundKind::Secret), ("Node", BoundKind::Node)];

impl BoundKind {
    /// The kind's name and plural resource, both of group core and version v1.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Pod => ("Pod", "pods"),
            Self::Secret => ("Secret", "secrets"),
            Self::Node => ("Node", "nodes"),
        }
    }
}

impl TokenRequestSpec {
    /// Reads a TokenRequest object.
    ///
    /// # Errors
    /// As in kube-apiserver: 422 for wrong lifetimes, 400 for kinds that no token can be bound to.
    pub fn parse(request: &Value) -> Result<Self, Status> {
        let spec = &request["spec"];
        let audiences = spec["audiences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let audiences: Vec<String> = audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let expiration_seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
        let mut errors = Vec::new();
        let mut bad_life = |detail| {
            let value = Value::from(expiration_seconds);
            errors.push(FieldError::invalid("spec.expirationSeconds", value, detail));
        };
        if expiration_seconds < MIN_SECONDS {
            bad_life("may not specify a duration less than 10 minutes");
        } else if expiration_seconds > MAX_SECONDS {
            bad_life("may not specify a duration larger than 2^32 seconds");
        }
        if audiences.len() > MAX_AUDIENCES {
            let detail = format!("must have at most {MAX_AUDIENCES} items");
            errors.push(FieldError::new(FieldErrorKind::TooMany, "spec.audiences", detail));
        }
        if !errors.is_empty() {
            return Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", &errors));
        }
        let bound =
            spec.get("boundObjectRef").filter(|r| !r.is_null()).map(BoundReference::parse).transpose()?;
        Ok(Self { audiences, expiration_seconds, bound })
    }
}

impl BoundReference {
    fn parse(reference: &Value) -> Result<Self, Status> {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let found = BINDABLE.iter().find(|(name, _)| *name == kind && api_version == "v1");
        let kind = found.map(|(_, kind)| *kind).ok_or_else(|| {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            Status::bad_request(format!("cannot bind token to object of type {group}/{version}, Kind={kind}"))
        })?;
        Ok(Self { kind, name: text("name").to_owned(), uid: text("uid").to_owned() })
    }

    fn check(&self, object: &Value, account: &str) -> Result<(), Status> {
        let (kind, _) = self.kind.names();
        let uid = meta::uid(object);
        if !self.uid.is_empty() && self.uid != uid {
            let why = format!(
                "the UID in the bound object reference ({}) does not match the UID in record. \
                 The object might have been deleted and then recreated",
                self.uid
            );
            return Err(Status::conflict(&GroupResource::new("", kind), &self.name, &why));
        }
        let runs_as = object["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if self.kind == BoundKind::Pod && runs_as != account {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        Ok(())
    }
}

impl TokenIssuer {
    /// Answers a TokenRequest for `account`, a ServiceAccount object: the request with its status filled in.
    ///
    /// `bound` is the object that `spec.bound` names, as it is now; the caller answers 404 where there is none.
    ///
    /// # Errors
    /// 409 if the bound object is another one than the client means, 400 if it is a Pod of another service account.
    pub fn issue(
        &self,
        plane: &PlaneId,
        account: &Value,
        spec: &TokenRequestSpec,
        bound: Option<&Value>,
        now: i64,
        lookup: &dyn ServiceAccountLookup,
    ) -> Result<Value, Status> {
        let (namespace, name) = (meta::namespace(account), meta::name(account));
        let mut kubernetes = Kubernetes {
            namespace: namespace.to_owned(),
            node: None,
            pod: None,
            secret: None,
            serviceaccount: reference(account),
        };
        if let (Some(wanted), Some(object)) = (&spec.bound, bound) {
            wanted.check(object, name)?;
            match wanted.kind {
                BoundKind::Pod => {
                    kubernetes.node = node_of(plane, object, lookup);
                    kubernetes.pod = Some(reference(object));
                }
                BoundKind::Secret => kubernetes.secret = Some(reference(object)),
                BoundKind::Node => kubernetes.node = Some(reference(object)),
            }
        }
        let audiences =
            if spec.audiences.is_empty() { self.api_audiences(plane) } else { spec.audiences.clone() };
        let exp = now.saturating_add(spec.expiration_seconds);
        let claims = Claims {
            aud: Audiences::Many(audiences.clone()),
            exp,
            iat: now,
            iss: self.issuer(plane),
            jti: uuid::Uuid::new_v4().to_string(),
            kubernetes,
            freehold: Freehold { plane: plane.to_string() },
            nbf: now,
            sub: crate::token::subject(namespace, name),
        };
        let token = self.keys().sign(&claims).map_err(Status::internal)?;
        answer(account, spec, &audiences, &token, exp)
    }
}

fn answer(
    account: &Value,
    spec: &TokenRequestSpec,
    audiences: &[String],
    token: &str,
    exp: i64,
) -> Result<Value, Status> {
    let expires = jiff::Timestamp::from_second(exp).map_err(Status::internal)?;
    let bound = spec.bound.as_ref().map(|bound| {
        json!({"kind": bound.kind.names().0, "apiVersion": "v1", "name": bound.name, "uid": bound.uid})
    });
    Ok(json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": meta::name(account),
            "namespace": meta::namespace(account),
            "creationTimestamp": jiff::Timestamp::from_second(exp - spec.expiration_seconds).map_err(Status::internal)?.to_string(),
        },
        "spec": {"audiences": audiences, "expirationSeconds": spec.expiration_seconds, "boundObjectRef": bound},
        "status": {"token": token, "expirationTimestamp": expires.to_string()},
    }))
}

fn reference(object: &Value) -> Reference {
    Reference { name: meta::name(object).to_owned(), uid: meta::uid(object).to_owned() }
}

fn node_of(plane: &PlaneId, pod: &Value, lookup: &dyn ServiceAccountLookup) -> Option<Reference> {
    let name = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())?;
    let uid = lookup.object_uid(plane, BoundKind::Node, "", name).unwrap_or_default();
    Some(Reference { name: name.to_owned(), uid })
}
