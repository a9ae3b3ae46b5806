//! Outputs that a run's status has no room for: ControllerRevisions, which never change and go with the run.

use crate::definition::Problem;
use crate::kinds::REVISIONS;
use crate::live::Live;
use crate::pods::owner;
use freehold_client::{Client, Error};
use freehold_machinery::Value;
use freehold_runtime::Key;
use freehold_workflow_api::{EncodedState, names};
use freehold_workflow_engine::Run;
use serde_json::json;
use std::collections::BTreeMap;

/// The object with a piece of a page.
fn name_of(piece: &str) -> String {
    format!("workflow-outputs-{piece}")
}

/// Whether a run owns an object. Others write in its namespace as well.
fn is_of(object: &Value, run_uid: &str) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["uid"] == run_uid)
}

impl Live {
    /// Keeps outputs beside the status that is about to be written, where they are too many for it.
    ///
    /// # Errors
    /// A plane that does not take them: the status must not be written then.
    pub(crate) async fn keep_outputs(&mut self, client: &Client, key: &Key) -> Result<(), Error> {
        let Some(page) = self.run.page() else { return Ok(()) };
        for (piece, text) in &page.pieces {
            let revision = json!({
                "apiVersion": "apps/v1", "kind": "ControllerRevision",
                "metadata": {
                    "name": name_of(piece), "namespace": &*key.namespace, "ownerReferences": [owner(&self.run)],
                    "labels": {names::RUN_UID: self.run.info.uid},
                },
                "data": {"outputs": text}, "revision": 1,
            });
            match client.create(&REVISIONS, &revision).await {
                Err(error) if error.is_already_exists() => {
                    let found = client.get_opt(&REVISIONS, key.ns(), &name_of(piece)).await?;
                    if !found.is_some_and(|found| {
                        is_of(&found, &self.run.info.uid) && found["data"]["outputs"] == **text
                    }) {
                        let name = name_of(piece);
                        return Err(Error::Decode(format!("ControllerRevision {name:?} is somebody else's")));
                    }
                }
                created => drop(created?),
            }
        }
        self.run.paged(page);
        Ok(())
    }
}

/// Reads what is kept beside a status.
pub(crate) async fn beside(
    client: &Client,
    key: &Key,
    run_uid: &str,
    state: &EncodedState,
) -> Result<BTreeMap<String, String>, Problem> {
    let pieces = Run::kept_beside(state)
        .map_err(|error| Problem::Invalid(format!("its state can't be read: {error}")))?;
    let mut read = BTreeMap::new();
    for piece in pieces {
        let found = client.get_opt(&REVISIONS, key.ns(), &name_of(&piece)).await?;
        if let Some(text) = found
            .filter(|found| is_of(found, run_uid))
            .as_ref()
            .and_then(|found| found["data"]["outputs"].as_str())
        {
            read.insert(piece, text.to_owned());
        }
    }
    Ok(read)
}
