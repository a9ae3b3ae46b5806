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
use freehold_machinery::{Value, meta};
use jiff::Timestamp;

/// Whether a membership counts, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ready,
    OrganizationNotFound,
    WrongNamespace,
}

/// What is kept of a membership, of which there are more than of anything else: what it is judged by, and nothing that its
/// key says already.
#[derive(Debug)]
struct Member {
    /// Whether it names the organization whose namespace it is in.
    at_home: bool,
    /// What its status says; `None` where it has to be written, whatever the verdict.
    told: Option<Verdict>,
}

fn organization(membership: &Value) -> &str {
    text(membership, "/spec/organizationRef/name")
}

impl Member {
    fn of(membership: &Value) -> Self {
        let at_home = meta::namespace(membership) == organization_namespace(organization(membership));
        let verdicts = match at_home {
            true => [Verdict::Ready, Verdict::OrganizationNotFound].as_slice(),
            false => &[Verdict::WrongNamespace],
        };
        let is_told = |verdict: &Verdict| status(*verdict, membership, Timestamp::UNIX_EPOCH).is_none();
        Self { at_home, told: verdicts.iter().copied().find(is_told) }
    }

    /// What its status should say; `None` where it says that.
    fn decide(&self, organization_exists: bool) -> Option<Verdict> {
        let verdict = match (self.at_home, organization_exists) {
            (false, _) => Verdict::WrongNamespace,
            (true, false) => Verdict::OrganizationNotFound,
            (true, true) => Verdict::Ready,
        };
        (self.told != Some(verdict)).then_some(verdict)
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
    memberships: Store<Member>,
    organizations: Store<Value>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let interest = Interest::projected(MEMBERSHIPS, |membership| Some(Member::of(&membership)));
    let mut informer = Informer::new(&context.core, interest);
    informer.enqueue_into(&queue);
    let memberships = context.run_informer(informer);
    let (on_organizations, members) = (queue.clone(), memberships.clone());
    context.organizations().on_change(move |change| {
        if change.old.is_none() || change.new.is_none() {
            // Those in other namespaces do not count, whether the organization that they name is there or not.
            let home = organization_namespace(&change.key.name);
            for (key, _) in members.in_namespace(&change.key.plane, &home) {
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

impl Memberships {
    /// Whether the organization is there whose namespace an object is in.
    fn has_organization(&self, key: &Key) -> bool {
        let name = key.namespace.strip_prefix(&organization_namespace("")).unwrap_or_default();
        self.organizations.get(&Key::new(key.plane.clone(), "", name)).is_some()
    }
}

impl Reconcile for Memberships {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(member) = self.memberships.get(&key) else { return Ok(Outcome::Done) };
        let Some(verdict) = member.decide(self.has_organization(&key)) else { return Ok(Outcome::Done) };
        let found = self.client.get_opt(&MEMBERSHIPS, key.ns(), &key.name).await?;
        if let Some(status) = found.and_then(|membership| status(verdict, &membership, Timestamp::now())) {
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
            let verdict = Member::of(&membership).decide(exists).unwrap();
            let wanted = status(verdict, &membership, Timestamp::now()).unwrap();
            assert_eq!(wanted["conditions"][0]["reason"], reason, "{namespace} {exists}");
            membership["status"] = wanted;
            assert_eq!(Member::of(&membership).decide(exists), None, "it is told once");
            membership["metadata"]["generation"] = 3.into();
            assert_eq!(Member::of(&membership).decide(exists), Some(verdict), "of each generation");
        }
        assert!(Member::of(&Value::Null).decide(false).is_some());
    }
}
