//! Memberships: one counts when it names the organization whose namespace it is in, and that organization is there.
//!
//! There are more of them than of anything else: nothing is kept of those that say what is so. Where an organization comes or
//! goes, those of its namespace are asked for.

use freehold_api::keys::{READY, organization_namespace};
use freehold_client::{Client, ListOptions, PatchOptions};
use freehold_controllers_context::kinds::MEMBERSHIPS;
use freehold_controllers_context::object::{generation, status_patch, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{
    Informer, Interest, Key, Outcome, Queue, Reconciled, Store,
    conditions::{self, Set},
};
use jiff::Timestamp;

/// Whether a membership counts, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ready,
    OrganizationNotFound,
    WrongNamespace,
}

fn organization(membership: &Value) -> &str {
    text(membership, "/spec/organizationRef/name")
}

fn decide(membership: &Value, organization_exists: bool) -> Verdict {
    let at_home = meta::namespace(membership) == organization_namespace(organization(membership));
    match (at_home, organization_exists) {
        (false, _) => Verdict::WrongNamespace,
        (true, false) => Verdict::OrganizationNotFound,
        (true, true) => Verdict::Ready,
    }
}

/// The status with which a membership tells a verdict; `None` where it has it.
fn status(verdict: Verdict, membership: &Value, now: Timestamp) -> Option<Value> {
    let organization = organization(membership);
    let (status, reason, message) = match verdict {
        Verdict::WrongNamespace => {
            let home = organization_namespace(organization);
            (
                "False",
                "WrongNamespace",
                format!("a membership of {organization:?} belongs into namespace {home}"),
            )
        }
        Verdict::OrganizationNotFound => {
            ("False", "OrganizationNotFound", format!("there is no organization {organization:?}"))
        }
        Verdict::Ready => ("True", "Ready", String::new()),
    };
    let generation = Some(generation(membership));
    let mut wanted = membership["status"].clone();
    wanted["observedGeneration"] = generation.into();
    conditions::set(
        &mut wanted["conditions"],
        Set { type_: READY, status, reason, message: &message, generation },
        now,
    );
    (wanted != membership["status"]).then_some(wanted)
}

struct Memberships {
    client: Client,
    organizations: Store<Value>,
}

/// What a membership's status should say, where it says something else.
fn untold(organizations: &Store<Value>, membership: &Value, now: Timestamp) -> Option<Value> {
    let organization = Key::new(PlaneId::core(), "", organization(membership));
    status(decide(membership, organizations.get(&organization).is_some()), membership, now)
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let organizations = context.organizations().store();
    let known = organizations.clone();
    let interest = Interest::projected(MEMBERSHIPS, move |membership| {
        untold(&known, &membership, Timestamp::UNIX_EPOCH).map(drop)
    });
    let mut informer = Informer::new(&context.core, interest);
    informer.enqueue_into(&queue);
    let memberships = context.run_informer_after(&organizations, informer);
    let (on_organizations, known) = (queue.clone(), organizations.clone());
    context.organizations().on_change(move |change| {
        // What was there at the start is known before the memberships are read. Those in other namespaces do not count,
        // whether the organization that they name is there or not.
        if known.is_synced() && change.old.is_some() != change.new.is_some() {
            let home = organization_namespace(&change.key.name);
            on_organizations.add(Key::new(change.key.plane.clone(), &home, ""));
        }
    });
    context.resync(&memberships, &queue);
    let client = context.core.everywhere();
    context.control("membership", 4, &queue, &[&memberships], Memberships { client, organizations });
}

impl Memberships {
    /// The membership of a key, or all of a namespace where it has no name.
    async fn found(&self, key: &Key) -> Result<Vec<Value>, freehold_client::Error> {
        match &*key.name {
            "" => Ok(self.client.list_all(&MEMBERSHIPS, key.ns(), &ListOptions::default()).await?.items),
            name => Ok(self.client.get_opt(&MEMBERSHIPS, key.ns(), name).await?.into_iter().collect()),
        }
    }
}

impl Reconcile for Memberships {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        for membership in self.found(&key).await? {
            if let Some(status) = untold(&self.organizations, &membership, Timestamp::now()) {
                let (name, options) = (meta::name(&membership), PatchOptions::status());
                self.client.patch(&MEMBERSHIPS, key.ns(), name, &status_patch(&status), &options).await?;
            }
        }
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_membership_counts_in_its_organizations_namespace_alone() {
        let rows = [
            ("organization-acme", true, "Ready"),
            ("organization-acme", false, "OrganizationNotFound"),
            ("organization-other", true, "WrongNamespace"),
        ];
        for (namespace, exists, reason) in rows {
            let mut membership = json!({
                "metadata": {"namespace": namespace, "generation": 2},
                "spec": {"organizationRef": {"name": "acme"}},
            });
            let verdict = decide(&membership, exists);
            let wanted = status(verdict, &membership, Timestamp::now()).unwrap();
            assert_eq!(wanted["conditions"][0]["reason"], reason, "{namespace} {exists}");
            membership["status"] = wanted;
            assert_eq!(status(verdict, &membership, Timestamp::UNIX_EPOCH), None, "it is told once");
            membership["metadata"]["generation"] = 3.into();
            assert!(status(verdict, &membership, Timestamp::now()).is_some(), "of each generation");
        }
    }
}
