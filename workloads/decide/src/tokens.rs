//! Tokens of a project's service accounts, which host Pods get as Secrets: the host's own issuer knows nothing of them.

use crate::names::{NAME, NAMESPACE, PROJECT, UID, host_namespace, token_secret};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_machinery::{Value, meta, time};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Annotation of a Secret with tokens: when they are to be made anew, RFC 3339.
pub const RENEW: &str = "workloads.freehold.dev/renew";
/// Seconds for which a token is asked where its volume says nothing.
const DEFAULT_SECONDS: u64 = 3600;
/// The shortest time that Kubernetes gives a token.
const MIN_SECONDS: u64 = 600;

/// A token that a projected volume of a Pod shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSource {
    /// The key of the Secret that has it.
    pub key: String,
    /// Its audience; empty for the API's own.
    pub audience: String,
    /// For how long it is asked.
    pub seconds: u64,
}

impl TokenSource {
    /// The token that a source of a projected volume wants.
    pub(crate) fn of(source: &Value, key: String) -> Self {
        let seconds = source["expirationSeconds"].as_u64().unwrap_or(DEFAULT_SECONDS).max(MIN_SECONDS);
        Self { key, audience: source["audience"].as_str().unwrap_or_default().to_owned(), seconds }
    }

    /// The TokenRequest for a Pod's service account, which ends with the Pod.
    pub fn request(&self, pod: &Value) -> Value {
        let audiences: Vec<&str> =
            Some(self.audience.as_str()).filter(|a| !a.is_empty()).into_iter().collect();
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "expirationSeconds": self.seconds,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta::name(pod), "uid": meta::uid(pod)},
            },
        })
    }
}

/// When tokens have to be made anew: after four fifths of the shortest life among them, as kubelet does.
pub fn renewal(now: Timestamp, expirations: &[Timestamp]) -> Timestamp {
    let first = expirations.iter().min().copied().unwrap_or(now);
    let life = first.duration_since(now).max(SignedDuration::ZERO);
    now.checked_add(life * 4 / 5).unwrap_or(now)
}

/// The Secret with the tokens of a Pod: keys and tokens.
pub fn secret(pod: &Value, project: &str, tokens: &[(String, String)], renew: Timestamp) -> Value {
    let data: freehold_machinery::Map =
        tokens.iter().map(|(key, token)| (key.clone(), STANDARD.encode(token).into())).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": token_secret(meta::name(pod)),
            "namespace": host_namespace(project, meta::namespace(pod)),
            "labels": {PROJECT: project},
            "annotations": {
                NAMESPACE: meta::namespace(pod), NAME: meta::name(pod), UID: meta::uid(pod),
                RENEW: time::format_seconds(renew),
            },
        },
        "type": "Opaque",
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_end_with_their_pod_and_are_renewed_before_they_expire() {
        let source = TokenSource::of(
            &json!({"path": "token", "audience": "vault", "expirationSeconds": 60}),
            "k".into(),
        );
        assert_eq!(source.seconds, 600, "Kubernetes gives none for less");
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}});
        let request = source.request(&pod);
        assert_eq!(request["spec"]["boundObjectRef"]["uid"], "u");
        assert_eq!(request["spec"]["audiences"], json!(["vault"]));
        let (now, later) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(1000).unwrap());
        assert_eq!(renewal(now, &[later, Timestamp::from_second(5000).unwrap()]).as_second(), 800);
        assert_eq!(renewal(later, &[now]), later, "what has expired is due");
        let secret = secret(&pod, "project", &[("k".into(), "t".into())], later);
        assert_eq!(secret["data"]["k"], "dA==");
        assert_eq!(secret["metadata"]["annotations"][RENEW], "1970-01-01T00:16:40Z");
    }
}
