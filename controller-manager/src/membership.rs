//! Memberships: one counts when it names the organization whose namespace it is in, and that organization is there.

use crate::context::{Context, Reconcile};
use crate::kinds::MEMBERSHIPS;
use crate::object::{generation, status_patch, text};
use freehold_api::keys::{READY, organization_namespace};
use freehold_client::{Client, PatchOptions};
use freehold_controller_manager_runtime::{
    Informer, Interest, Key, Outcome, Queue, Reconciled, Store,
    conditions::{self, Set},
};
use freehold_machinery::Value;
use jiff::Timestamp;

/// The status that a membership should have; `None` where it has it.
fn decide(membership: &Value, organization_exists: bool, now: Timestamp) -> Option<Value> {
    let organization = text(membership, "/spec/organizationRef/name");
    let in_its_namespace = text(membership, "/metadata/namespace") == organization_namespace(organization);
    let (status, reason, message) = match (in_its_namespace, organization_exists) {
        (false, _) => {
            let home = organization_namespace(organization);
            (
                "False",
                "WrongNamespace",
                format!("a membership of {organization:?} belongs into namespace {home}"),
            )
        }
        (true, false) => {
            ("False", "OrganizationNotFound", format!("there is no organization {organization:?}"))
        }
        (true, true) => ("True", "Ready", String::new()),
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
    memberships: Store<Value>,
    organizations: Store<Value>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let by_organization =
        |_: &Key, membership: &Value| vec![text(membership, "/spec/organizationRef/name").to_owned()];
    let mut informer = Informer::new(&context.core, Interest::objects(MEMBERSHIPS).index(by_organization));
    informer.enqueue_into(&queue);
    let memberships = context.run_informer(informer);
    let (on_organizations, members) = (queue.clone(), memberships.clone());
    context.organizations().on_change(move |change| {
        if change.old.is_none() || change.new.is_none() {
            for (key, _) in members.by_index(&change.key.plane, &change.key.name) {
                on_organizations.add(key);
            }
        }
    });
    context.resync(&memberships, &queue);
    let organizations = context.organizations().store();
    let (client, waits, more) = (context.core.everywhere(), memberships.clone(), organizations.clone());
    context.control(
        "membership",
        4,
        &queue,
        &[&waits, &more],
        Memberships { client, memberships, organizations },
    );
}

impl Reconcile for Memberships {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(membership) = self.memberships.get(&key) else { return Ok(Outcome::Done) };
        let organization = Key::new(key.plane.clone(), "", text(&membership, "/spec/organizationRef/name"));
        let exists = self.organizations.get(&organization).is_some();
        if let Some(status) = decide(&membership, exists, Timestamp::now()) {
            let options = PatchOptions::status();
            self.client.patch(&MEMBERSHIPS, key.ns(), &key.name, &status_patch(&status), &options).await?;
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
        let membership = |namespace: &str| json!({"metadata": {"namespace": namespace}, "spec": {"organizationRef": {"name": "acme"}}});
        let rows = [
            ("organization-acme", true, "Ready"),
            ("organization-acme", false, "OrganizationNotFound"),
            ("organization-other", true, "WrongNamespace"),
        ];
        for (namespace, exists, reason) in rows {
            let status = decide(&membership(namespace), exists, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(status["conditions"][0]["reason"], reason, "{namespace} {exists}");
        }
        assert!(decide(&Value::Null, false, Timestamp::UNIX_EPOCH).is_some());
    }
}
