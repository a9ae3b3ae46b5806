//! Forks: a project whose plane begins with what another one has, or had.

use super::Projects;
use crate::plane::{Refusal, refusal};
use crate::references::{Layer, OwnPlane, References, no_snapshot};
use freehold_client::Error;
use freehold_controllers_context::object::{int, text};
use freehold_machinery::{Value, meta};

/// Whether a project is to be a fork and is not one yet.
pub(super) fn is_wanted(project: &Value) -> bool {
    project.pointer("/spec/controlPlane/from").is_some_and(Value::is_object)
        && text(project, "/status/controlPlane/id").is_empty()
}

/// The layer of a snapshot that a fork of a project can begin with.
fn layer(snapshot: &Value, source: &str) -> Result<Layer, Refusal> {
    let name = meta::name(snapshot);
    if text(snapshot, "/spec/projectRef/name") != source {
        let message = format!("snapshot {name:?} is not of project {source:?}");
        return Err(Refusal::waiting("SnapshotNotFound", message));
    }
    match text(snapshot, "/status/phase") {
        "Ready" => Ok(Layer::of_snapshot(snapshot)),
        "Failed" => Err(Refusal::waiting("SnapshotFailed", format!("snapshot {name:?} has failed"))),
        _ => Err(Refusal::waiting("SnapshotNotReady", format!("snapshot {name:?} is not ready yet"))),
    }
}

impl Projects {
    /// Makes a project a fork; `None` once it is one.
    pub(super) async fn fork(&self, project: &Value) -> Result<Option<Refusal>, Error> {
        let references = References::of_project(&self.core, project);
        let Some((plane, references)) = OwnPlane::of(project).zip(references) else {
            return Ok(Some(Refusal::failed("ForkFailed", "the project has no uid or no organization")));
        };
        let from = &project["spec"]["controlPlane"]["from"];
        let (source, snapshot) = (text(from, "/project"), text(from, "/snapshot"));
        let own = Layer::of_fork(&plane);
        let done = if snapshot.is_empty() {
            let source = match references.plane(source).await? {
                Ok(found) => found,
                Err(why) => return Ok(Some(why)),
            };
            match self.actions.snapshot(&source, &own, int(from, "/revision")).await {
                Ok(_) => self.actions.fork(&plane, &own).await,
                Err(error) => Err(error),
            }
        } else {
            let Some(found) = references.snapshot(snapshot).await? else {
                return Ok(Some(Refusal::waiting("SnapshotNotFound", no_snapshot(snapshot))));
            };
            match layer(&found, source) {
                Ok(layer) => self.actions.fork(&plane, &layer).await,
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
        let snapshot = json!({"metadata": {"name": "s1", "uid": "u"}, "spec": {"projectRef": {"name": "web"}},
            "status": {"phase": "Ready", "layer": "snapshot-of-others"}});
        assert_eq!(
            layer(&snapshot, "web").map(|layer| layer.as_str().to_owned()).ok(),
            Some("snapshot-u".into())
        );
        assert_eq!(layer(&snapshot, "shop").map_err(|why| why.reason).err(), Some("SnapshotNotFound"));
    }
}
