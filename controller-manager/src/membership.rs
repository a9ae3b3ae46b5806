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

/// What is kept of a membership: there are more of them than of anything else, and each would take four times as much whole.
struct Member {
    organization: Box<str>,
    generation: i64,
    /// As JSON.
    status: Box<str>,
}

impl Member {
    fn of(membership: &Value) -> Self {
        Self {
            organization: text(membership, "/spec/organizationRef/name").into(),
            generation: generation(membership),
            status: membership["status"].to_string().into(),
        }
    }
}

/// The status that a membership in a namespace should have; `None` where it has it.
fn decide(namespace: &str, member: &Member, organization_exists: bool, now: Timestamp) -> Option<Value> {
    let organization = &*member.organization;
    let in_its_namespace = namespace == organization_namespace(organization);
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
    let generation = Some(member.generation);
    let status_now: Value = serde_json::from_str(&member.status).unwrap_or_default();
    let mut wanted = status_now.clone();
    wanted["observedGeneration"] = generation.into();
    conditions::set(
        &mut wanted["conditions"],
        Set { type_: READY, status, reason, message: &message, generation },
        now,
    );
    (wanted != status_now).then_some(wanted)
}

struct Memberships {
    client: Client,
    memberships: Store<Member>,
    organizations: Store<Value>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let by_organization = |_: &Key, member: &Member| vec![member.organization.to_string()];
    let interest = Interest::projected(MEMBERSHIPS, |membership| Some(Member::of(&membership)));
    let mut informer = Informer::new(&context.core, interest.index(by_organization));
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
        let Some(member) = self.memberships.get(&key) else { return Ok(Outcome::Done) };
        let organization = Key::new(key.plane.clone(), "", &member.organization);
        let exists = self.organizations.get(&organization).is_some();
        if let Some(status) = decide(&key.namespace, &member, exists, Timestamp::now()) {
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
        let member = Member::of(
            &json!({"metadata": {"generation": 2}, "spec": {"organizationRef": {"name": "acme"}}}),
        );
        let rows = [
            ("organization-acme", true, "Ready"),
            ("organization-acme", false, "OrganizationNotFound"),
            ("organization-other", true, "WrongNamespace"),
        ];
        for (namespace, exists, reason) in rows {
            let status = decide(namespace, &member, exists, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(status["conditions"][0]["reason"], reason, "{namespace} {exists}");
            let told = Member { status: status.to_string().into(), organization: "acme".into(), ..member };
            assert!(decide(namespace, &told, exists, Timestamp::now()).is_none(), "it is told once");
        }
        assert!(decide("", &Member::of(&Value::Null), false, Timestamp::UNIX_EPOCH).is_some());
    }
}
