//! Forks: a project whose plane begins with what another one has, or had.

use super::Projects;
use crate::kinds::SNAPSHOTS;
use crate::object::{int, text};
use crate::plane::{Refusal, plane_in, refusal};
use freehold_api::keys::organization_namespace;
use freehold_client::Error;
use freehold_machinery::{PlaneId, Value, meta};

/// The name under which a fork is put above its layer.
const OPERATION: &str = "fork";

/// Whether a project is to be a fork and is not one yet.
pub(super) fn is_wanted(project: &Value) -> bool {
    project.pointer("/spec/controlPlane/from").is_some_and(Value::is_object)
        && text(project, "/status/controlPlane/id").is_empty()
}

/// The layer of a snapshot that a fork of a project can begin with.
fn layer<'a>(snapshot: &'a Value, source: &str) -> Result<&'a str, Refusal> {
    let name = meta::name(snapshot);
    if text(snapshot, "/spec/projectRef/name") != source {
        let message = format!("snapshot {name:?} is not of project {source:?}");
        return Err(Refusal::waiting("SnapshotNotFound", message));
    }
    match text(snapshot, "/status/phase") {
        "Ready" => Ok(text(snapshot, "/status/layer")),
        "Failed" => Err(Refusal::waiting("SnapshotFailed", format!("snapshot {name:?} has failed"))),
        _ => Err(Refusal::waiting("SnapshotNotReady", format!("snapshot {name:?} is not ready yet"))),
    }
}

impl Projects {
    /// Makes a project a fork; `None` once it is one.
    pub(super) async fn fork(&self, project: &Value) -> Result<Option<Refusal>, Error> {
        let Ok(plane) = meta::uid(project).parse::<PlaneId>() else {
            return Ok(Some(Refusal::failed("ForkFailed", "the project has no uid")));
        };
        let from = &project["spec"]["controlPlane"]["from"];
        let namespace = organization_namespace(text(project, "/spec/ownerRef/name"));
        let source = text(from, "/project");
        let own = format!("fork-{plane}");
        let snapshot = text(from, "/snapshot");
        let done = if snapshot.is_empty() {
            let source = match plane_in(&self.core, &namespace, source).await? {
                Ok(found) => found,
                Err(why) => return Ok(Some(why)),
            };
            match self.actions.snapshot(&source, &own, int(from, "/revision")).await {
                Ok(_) => self.actions.switch(&plane, &own, OPERATION).await,
                Err(error) => Err(error),
            }
        } else {
            let found = self.core.get_opt(&SNAPSHOTS, Some(&namespace), snapshot).await?;
            let Some(found) = found else {
                let message = format!("there is no snapshot {snapshot:?} in this organization");
                return Ok(Some(Refusal::waiting("SnapshotNotFound", message)));
            };
            match layer(&found, source) {
                Ok(layer) => self.actions.switch(&plane, layer, OPERATION).await,
                Err(why) => return Ok(Some(why)),
            }
        };
        if let Err(error) = done {
            let why = refusal(error)?;
            let reason = if why.is_final { "ForkFailed" } else { why.reason };
            return Ok(Some(Refusal { reason, ..why }));
        }
        if snapshot.is_empty() {
            // It is the fork's alone, and goes with it.
            self.actions.release(&own).await?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_project_is_forked_once() {
        let rows = [
            (json!({"spec": {"controlPlane": {"mode": "Shared"}}}), false),
            (json!({"spec": {"controlPlane": {"from": {"project": "web"}}}}), true),
            (
                json!({"spec": {"controlPlane": {"from": {"project": "web"}}}, "status": {"controlPlane": {"id": "u"}}}),
                false,
            ),
        ];
        for (project, wanted) in rows {
            assert_eq!(is_wanted(&project), wanted, "{project}");
        }
    }

    #[test]
    fn a_fork_begins_with_a_snapshot_of_the_project_that_it_names() {
        let snapshot = json!({"metadata": {"name": "s1"}, "spec": {"projectRef": {"name": "web"}},
            "status": {"phase": "Ready", "layer": "l"}});
        assert_eq!(layer(&snapshot, "web"), Ok("l"));
        assert_eq!(layer(&snapshot, "shop").map_err(|why| why.reason), Err("SnapshotNotFound"));
    }
}
