//! Names of host objects, and the labels and annotations by which the syncer knows them.

use sha2::{Digest as _, Sha256};

/// Label of every host object: the identifier of the project's plane. Watches of the host select by it.
pub const PROJECT: &str = "workloads.freehold.dev/project";
/// Annotation of a host object: the namespace in the project.
pub const NAMESPACE: &str = "workloads.freehold.dev/namespace";
/// Annotation of a host object: its name in the project.
pub const NAME: &str = "workloads.freehold.dev/name";
/// Annotation of a host object: the uid of the project's object.
pub const UID: &str = "workloads.freehold.dev/uid";
/// Annotation of a host object: a number for what the syncer last applied.
pub const HASH: &str = "workloads.freehold.dev/hash";
/// Annotation of a host Pod: all labels of the project's Pod, as the downward API writes them.
pub const LABELS: &str = "workloads.freehold.dev/labels";
/// Annotation of a host Pod: all annotations of the project's Pod, as the downward API writes them.
pub const ANNOTATIONS: &str = "workloads.freehold.dev/annotations";
/// What begins the keys of single annotations that the downward API is asked for.
pub(crate) const ANNOTATION: &str = "annotation.workloads.freehold.dev/";
/// Label of a Node of a project that stands for a shared cluster: the cluster's name.
pub const CLUSTER: &str = "workloads.freehold.dev/cluster";

/// The service account of all host Pods. It has no rights and no token.
pub const ACCOUNT: &str = "x-freehold-pods";
/// What begins the names of host objects that are the syncer's own, which names of tenants' never begin with.
const OWN: &str = "x-freehold-";
/// ConfigMaps that a cluster makes itself in each namespace.
const CLUSTERS_OWN: [&str; 1] = ["kube-root-ca.crt"];
/// Characters of a hash: 90 bits.
const HASH_LENGTH: usize = 18;

/// The namespace on the host of a namespace of a project.
pub fn host_namespace(project: &str, namespace: &str) -> String {
    format!("project-{project}-{}", short_hash(&[namespace]))
}

/// The name on the host of an object of a project. Names are kept, but for those that the syncer or the cluster uses itself:
/// Services and Pods are found by them.
pub fn host_name(name: &str) -> String {
    match name.starts_with(OWN) || CLUSTERS_OWN.contains(&name) {
        true => format!("{OWN}t-{}", short_hash(&[name])),
        false => name.to_owned(),
    }
}

/// The name of the Secret with the tokens of a Pod.
pub fn token_secret(pod: &str) -> String {
    format!("{OWN}tokens-{}", short_hash(&[pod]))
}

/// The name of an object that the syncer makes once in each host namespace.
pub fn own_name(what: &str) -> String {
    format!("{OWN}{what}")
}

/// Whether a label or annotation of a tenant may stand on a host object under its own key.
pub fn is_tenants(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain != "freehold.dev" && !domain.ends_with(".freehold.dev")
}

/// A hash of words that is short enough for a name, in lower-case letters and digits.
pub(crate) fn short_hash(words: &[&str]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut hasher = Sha256::new();
    for word in words {
        hasher.update(word.as_bytes());
        hasher.update([0]);
    }
    let digest = hasher.finalize();
    let bits = digest.iter().flat_map(|byte| (0..8).rev().map(move |bit| (byte >> bit) & 1));
    let bits: Vec<u8> = bits.take(HASH_LENGTH * 5).collect();
    let letters = bits.chunks(5).map(|five| five.iter().fold(0, |sum, bit| sum * 2 + usize::from(*bit)));
    letters.map(|letter| char::from(ALPHABET[letter % 32])).collect()
}

/// A number for the content of an object that is the same in every process.
pub fn content_hash(object: &freehold_machinery::Value) -> String {
    short_hash(&[&object.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_projects_and_of_one_project_never_meet() {
        let (a, b) = ("0b8f3e50-7a51-4f0e-9a43-1a4cf2f6c001", "0b8f3e50-7a51-4f0e-9a43-1a4cf2f6c002");
        let all = [(a, "x"), (a, "y"), (a, "x-y"), (b, "x"), (b, "y")].map(|(p, n)| host_namespace(p, n));
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        for name in &all {
            assert_eq!(name.len(), 63, "{name}");
        }
        assert_eq!(host_namespace(a, "x"), host_namespace(a, "x"));
    }

    #[test]
    fn a_tenant_names_nothing_that_is_the_syncers_or_the_clusters_own() {
        for name in ["kube-root-ca.crt", ACCOUNT, &token_secret("web"), &own_name("isolation")] {
            let host = host_name(name);
            assert!(host != name && host.starts_with("x-freehold-t-"), "{name}: {host}");
            // And what it becomes is no name that another could have.
            assert_ne!(host_name(&host), host);
        }
        assert_eq!(host_name("web"), "web");
        assert_ne!(token_secret("a"), token_secret("b"));
    }

    #[test]
    fn labels_of_freehold_are_none_of_a_tenants() {
        for key in [PROJECT, HASH, "freehold.dev/plane", "a.b.freehold.dev/x"] {
            assert!(!is_tenants(key), "{key}");
        }
        for key in ["app", "app.kubernetes.io/name", "notfreehold.dev/x", "freehold.dev.example.com/x"] {
            assert!(is_tenants(key), "{key}");
        }
    }
}
