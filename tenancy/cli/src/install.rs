//! `freehold tenancy install`: kinds, roles and policies in a control plane or cluster.

use anyhow::{Context as _, Result, bail};
use freehold_client::{Client, Resource};
use freehold_machinery::{Value, meta};
use freehold_tenancy_admission::policies;
use freehold_tenancy_controllers::roles::roles;
use std::time::{Duration, Instant};

const CRDS: Resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const MANAGER: &str = "freehold-tenancy";
/// How long a definition may take to be served.
const ESTABLISHED: Duration = Duration::from_secs(30);

/// Arguments of `freehold tenancy install`.
#[derive(clap::Args, Debug)]
pub(crate) struct Install {
    /// Print the objects instead, one JSON document each, for `kubectl apply -f -`.
    #[arg(long)]
    print: bool,
    /// Leave out the admission policies.
    #[arg(long)]
    no_policies: bool,
}

/// Roles and validating policies, which each server of the subsystem has beside the kinds.
pub(crate) fn manifests() -> Vec<Value> {
    let mut objects = roles();
    objects.extend(policies::validating());
    objects
}

/// The resource of an object of [`manifests`] or of the mutating policies.
fn resource_of(object: &Value) -> Result<Resource> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let plural = match kind {
        "ClusterRole" => "clusterroles".to_owned(),
        kind if kind.ends_with("Policy") => format!("{}ies", kind.trim_end_matches('y').to_lowercase()),
        kind if kind.ends_with("Binding") => format!("{}s", kind.to_lowercase()),
        other => bail!("no resource is known for the kind {other:?}"),
    };
    Ok(Resource::dynamic(group, version, plural, false))
}

/// Whether the server has a resource of `admissionregistration.k8s.io/v1`.
async fn serves(client: &Client, plural: &str) -> bool {
    let Ok(list) = client.get_path("/apis/admissionregistration.k8s.io/v1").await else { return false };
    list["resources"].as_array().is_some_and(|resources| resources.iter().any(|r| r["name"] == plural))
}

pub(crate) async fn run(client: &Client, args: &Install) -> Result<()> {
    let mut objects = roles();
    if !args.no_policies {
        if args.print || serves(client, "validatingadmissionpolicies").await {
            objects.extend(policies::validating());
        } else {
            eprintln!(
                "the server has no ValidatingAdmissionPolicies: rules hold only while the webhook runs"
            );
        }
        if !args.print && serves(client, "mutatingadmissionpolicies").await {
            objects.extend(policies::mutating());
        }
    }
    let crds = freehold_tenancy_api::crds();
    if args.print {
        for object in crds.iter().chain(&objects) {
            println!("---\n{object}");
        }
        return Ok(());
    }
    for crd in &crds {
        let name = meta::name(crd);
        client.apply(&CRDS, MANAGER, crd).await.with_context(|| format!("failed to install {name}"))?;
    }
    for crd in &crds {
        established(client, meta::name(crd)).await?;
    }
    for object in &objects {
        let name = meta::name(object);
        let applied = client.apply(&resource_of(object)?, MANAGER, object).await;
        applied.with_context(|| format!("failed to install {} {name:?}", object["kind"]))?;
    }
    println!("installed {} kinds, {} roles and policies", crds.len(), objects.len());
    Ok(())
}

async fn established(client: &Client, name: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let crd = client.get(&CRDS, None, name).await?;
        if freehold_runtime::conditions::is_true(&crd["status"]["conditions"], "Established") {
            return Ok(());
        }
        if begun.elapsed() > ESTABLISHED {
            bail!("{name} is not served after {ESTABLISHED:?}: kubectl describe crd {name} says why");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_object_of_the_subsystem_has_a_resource() {
        for object in manifests().iter().chain(&policies::mutating()) {
            let resource = resource_of(object).unwrap();
            assert!(resource.plural.ends_with('s') && resource.version == "v1", "{resource}");
        }
        let policy =
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"});
        assert_eq!(resource_of(&policy).unwrap().plural, "validatingadmissionpolicies");
    }
}
