//! `freehold tenancy sleep` and `wake`: a state by hand for a tenant or a namespace.
//!
//! The command writes one ResourceSupervisor, however many namespaces the tenant has; `kubectl` can do the same.

use anyhow::{Context as _, bail};
use clap::Args;
use freehold_api::Object;
use freehold_client::{Client, DeleteOptions, Patch, PatchOptions, Resource};
use freehold_machinery::time;
use freehold_tenancy_api::supervisor::{Override, ResourceSupervisorSpec, SleepState};
use freehold_tenancy_api::target::Target;
use freehold_tenancy_api::{GROUP, VERSION};
use jiff::{SignedDuration, Timestamp};

const SUPERVISORS: Resource = Resource::cluster(GROUP, VERSION, "resourcesupervisors");
const TENANTS: Resource = Resource::cluster(GROUP, VERSION, "tenants");
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
/// Priority of states by hand: above that of schedules.
const PRIORITY: i32 = 1_000_000;

/// Which namespaces, and for how long.
#[derive(Args, Debug)]
pub(crate) struct ByHand {
    /// The tenant whose namespaces are meant.
    #[arg(required_unless_present = "namespace", conflicts_with = "namespace")]
    tenant: Option<String>,
    /// A single namespace instead of a tenant.
    #[arg(long, short)]
    namespace: Option<String>,
    /// For how long, such as 2h; afterwards the schedules count again. Without it: until the opposite command.
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
    /// Ends the state by hand: the schedules count again.
    #[arg(long, conflicts_with = "duration")]
    follow_schedule: bool,
}

impl ByHand {
    fn name(&self) -> anyhow::Result<String> {
        match (&self.tenant, &self.namespace) {
            (Some(tenant), _) => Ok(format!("by-hand-tenant-{tenant}")),
            (_, Some(namespace)) => Ok(format!("by-hand-namespace-{namespace}")),
            _ => bail!("a tenant or --namespace is required"),
        }
    }

    /// Refuses names of what is not there. Who may not read it is not asked about it.
    async fn exists(&self, client: &Client) -> anyhow::Result<()> {
        let named = [("tenant", &TENANTS, &self.tenant), ("namespace", &NAMESPACES, &self.namespace)];
        for (what, resource, name) in named {
            let Some(name) = name else { continue };
            if let Ok(None) = client.get_opt(resource, None, name).await {
                bail!("there is no {what} {name:?}");
            }
        }
        Ok(())
    }

    fn target(&self) -> Target {
        Target {
            tenants: self.tenant.iter().cloned().collect(),
            namespaces: self.namespace.iter().cloned().collect(),
            ..Target::default()
        }
    }

    fn until(&self, now: Timestamp) -> anyhow::Result<String> {
        let Some(text) = &self.duration else { return Ok(String::new()) };
        match time::parse_duration(text) {
            Some(nanos) if nanos > 0 => Ok(time::format_seconds(now + SignedDuration::from_nanos(nanos))),
            _ => bail!("--for: {text:?} is no positive duration such as 2h"),
        }
    }

    fn supervisor(
        &self,
        state: SleepState,
        now: Timestamp,
    ) -> anyhow::Result<Object<ResourceSupervisorSpec>> {
        let spec = ResourceSupervisorSpec {
            target: self.target(),
            priority: PRIORITY,
            by_hand: Some(Override { state, until: self.until(now)? }),
            ..ResourceSupervisorSpec::default()
        };
        Ok(Object::new(&self.name()?, spec))
    }
}

/// Puts namespaces to sleep, or wakes them, and prints what follows.
///
/// # Errors
/// An unreadable duration, or the server's refusal.
pub(crate) async fn run(client: &Client, state: SleepState, by_hand: &ByHand) -> anyhow::Result<()> {
    let name = by_hand.name()?;
    if by_hand.follow_schedule {
        match client.delete(&SUPERVISORS, None, &name, &DeleteOptions::default()).await {
            Err(error) if !error.is_not_found() => {
                return Err(error).context("failed to end the state by hand");
            }
            _ => println!("resourcesupervisor/{name} deleted: the schedules count"),
        }
        return Ok(());
    }
    by_hand.exists(client).await?;
    let supervisor = by_hand.supervisor(state, Timestamp::now())?;
    let until = supervisor.spec.by_hand.as_ref().map(|by_hand| by_hand.until.clone()).unwrap_or_default();
    let mut object = serde_json::to_value(&supervisor)?;
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    let options = PatchOptions::apply("freehold-tenancy");
    client
        .patch(&SUPERVISORS, None, &name, &Patch::Apply(object), &options)
        .await
        .context("failed to write it")?;
    let wanted = format!("{state:?}").to_lowercase();
    match until.as_str() {
        "" => println!("resourcesupervisor/{name}: {wanted} until it is changed or deleted"),
        until => println!("resourcesupervisor/{name}: {wanted} until {until}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_by_hand_is_one_supervisor() {
        let by_hand = ByHand {
            tenant: Some("acme".into()),
            namespace: None,
            duration: Some("2h".into()),
            follow_schedule: false,
        };
        let supervisor =
            by_hand.supervisor(SleepState::Asleep, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(supervisor.metadata.name, "by-hand-tenant-acme");
        assert_eq!(supervisor.spec.target.tenants, ["acme"]);
        assert_eq!(supervisor.spec.by_hand.unwrap().until, "2026-01-01T02:00:00Z");
        let bad = ByHand { duration: Some("soon".into()), ..by_hand };
        assert!(bad.supervisor(SleepState::Asleep, Timestamp::UNIX_EPOCH).is_err());
    }
}
