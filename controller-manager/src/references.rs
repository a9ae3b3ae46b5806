//! References between Freehold's own objects, resolved on behalf of the organization of the object that they stand in.
//!
//! Whatever acts on planes wants an [`OwnPlane`] and a [`Layer`], and those are found here alone: a lookup that leaves the
//! organization out does not compile. What a status says is never asked, for tenants may have been able to write it: planes
//! and layers follow from uids, which the server gives.

use crate::plane::Refusal;
use freehold_client::{Client, Error};
use freehold_controllers_context::kinds::{PROJECTS, SNAPSHOTS};
use freehold_controllers_context::object::text;
use freehold_machinery::{PlaneId, Value, meta, tenancy::OrganizationName};

/// The plane of a project of the organization that asked.
pub(crate) struct OwnPlane(PlaneId);

impl OwnPlane {
    /// The plane of the very project that is being looked at.
    pub(crate) fn of(project: &Value) -> Option<Self> {
        meta::uid(project).parse().ok().map(Self)
    }

    pub(crate) fn id(&self) -> &PlaneId {
        &self.0
    }
}

/// A layer of the store, by what it holds.
pub(crate) struct Layer(String);

impl Layer {
    /// The layer of a snapshot.
    pub(crate) fn of_snapshot(snapshot: &Value) -> Self {
        Self(format!("snapshot-{}", meta::uid(snapshot)))
    }

    /// The layer that a fork begins with where it names no snapshot; it is the fork's alone.
    pub(crate) fn of_fork(fork: &OwnPlane) -> Self {
        Self(format!("fork-{}", fork.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What one organization's references can lead to.
pub(crate) struct References<'a> {
    core: &'a Client,
    organization: OrganizationName,
}

impl<'a> References<'a> {
    /// Returns the references of an object in a namespace; `None` outside of organizations' namespaces.
    pub(crate) fn of_namespace(core: &'a Client, namespace: &str) -> Option<Self> {
        Some(Self { core, organization: OrganizationName::of_namespace(namespace)? })
    }

    /// Returns the references of a project; `None` for one without an organization.
    pub(crate) fn of_project(core: &'a Client, project: &Value) -> Option<Self> {
        let organization = OrganizationName::named(text(project, "/spec/ownerRef/name"))?;
        Some(Self { core, organization })
    }

    /// The plane of a project that can be worked with.
    pub(crate) async fn plane(&self, name: &str) -> Result<Result<OwnPlane, Refusal>, Error> {
        let project = self.core.get_opt(&PROJECTS, None, name).await?;
        let own = |project: &Value| text(project, "/spec/ownerRef/name") == self.organization.as_str();
        Ok(workable(name, project.filter(own).as_ref()))
    }

    /// A snapshot.
    pub(crate) async fn snapshot(&self, name: &str) -> Result<Option<Value>, Error> {
        self.core.get_opt(&SNAPSHOTS, Some(&self.organization.namespace()), name).await
    }
}

/// What is said of a snapshot that is not there.
pub(crate) fn no_snapshot(name: &str) -> String {
    format!("there is no snapshot {name:?} in this organization")
}

fn workable(name: &str, project: Option<&Value>) -> Result<OwnPlane, Refusal> {
    let Some(project) = project else { return Err(no_project(name)) };
    if meta::is_deleting(project) {
        return Err(Refusal::failed("ProjectTerminating", format!("project {name:?} is being deleted")));
    }
    let is_made = !text(project, "/status/controlPlane/id").is_empty();
    let not_ready = || Refusal::waiting("ProjectNotReady", format!("project {name:?} is not ready yet"));
    OwnPlane::of(project).filter(|_| is_made).ok_or_else(not_ready)
}

/// What is said of a project that is not there.
pub(crate) fn no_project(name: &str) -> Refusal {
    let message = format!("there is no project {name:?} in this organization");
    Refusal::waiting("ProjectNotFound", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn planes_and_layers_follow_from_uids_whatever_a_status_says() {
        let project = json!({"metadata": {"uid": "own"}, "status": {"controlPlane": {"id": "another"}}});
        assert_eq!(workable("web", Some(&project)).map(|plane| plane.0.to_string()).ok(), Some("own".into()));
        let snapshot = json!({"metadata": {"uid": "own"}, "status": {"layer": "snapshot-another"}});
        assert_eq!(Layer::of_snapshot(&snapshot).as_str(), "snapshot-own");
    }

    #[test]
    fn a_project_that_can_not_be_worked_with_is_refused_with_a_reason() {
        let made = json!({"id": "u"});
        let deleting =
            json!({"metadata": {"uid": "u", "deletionTimestamp": "x"}, "status": {"controlPlane": made}});
        let rows = [
            (None, "ProjectNotFound"),
            (Some(deleting), "ProjectTerminating"),
            (Some(json!({"metadata": {"uid": "u"}})), "ProjectNotReady"),
        ];
        for (project, reason) in rows {
            assert_eq!(workable("web", project.as_ref()).map_err(|why| why.reason).err(), Some(reason));
        }
    }
}
