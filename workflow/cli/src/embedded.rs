//! History in the data folder of `freehold up`: written by its controllers, read through its own API.

use crate::history::History;
use crate::serve::repository;
use crate::server::{Keep, purge};
use freehold_machinery::Status;
use freehold_runtime::{ReadHandler, Reads, Scope, Subsystem};
use freehold_workflow_controller::{Options, Repository, start};
use freehold_workflow_server::{HISTORY_GROUP, HistoryRead, read};
use freehold_workflow_store::{Database, Error, Location, Recorder};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;

/// The file in the folder of subsystems.
const FILE: &str = "workflow.db";
/// What the history keeps: a plane that makes many runs has those of fewer days.
const KEEP: Keep = Keep { days: 90, of_each_plane: Some(100_000) };
/// The file there that says where artifacts are of namespaces that say nothing themselves.
const ARTIFACTS: &str = "workflow-artifacts.yaml";
/// How soon opening is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// The workflow subsystem with its history.
pub const SUBSYSTEM: Subsystem = Subsystem {
    reads: Some(Reads { group: HISTORY_GROUP, version: "v1alpha1", open }),
    start: start_with_history,
    ..freehold_workflow_controller::SUBSYSTEM
};

type Opened = Arc<OnceCell<Database>>;

/// Databases of this process by their files: what writes one and what reads it share connections.
static OPENED: Mutex<BTreeMap<PathBuf, Opened>> = Mutex::new(BTreeMap::new());

async fn database(folder: &Path) -> Result<Database, Error> {
    let path = folder.join(FILE);
    let opened =
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).entry(path.clone()).or_default().clone();
    let open = async {
        tokio::fs::create_dir_all(folder)
            .await
            .map_err(|error| Error::Database(format!("{}: {error}", folder.display())))?;
        Database::open(&Location::File(path)).await
    };
    opened.get_or_try_init(|| open).await.cloned()
}

/// Reads of the history below a folder. The database is opened by the first.
fn open(folder: &Path) -> ReadHandler {
    let folder: Arc<Path> = folder.into();
    Arc::new(move |plane, request| {
        let folder = folder.clone();
        Box::pin(async move {
            let database = database(&folder).await.map_err(|error| {
                tracing::warn!(%error, "failed to open the workflow history");
                Status::new(503, "ServiceUnavailable", "the workflow history can't be opened; retry")
            })?;
            let request = HistoryRead {
                namespace: request.namespace.as_deref(),
                namespace_uid: &request.namespace_uid,
                resource: &request.resource,
                name: request.name.as_deref(),
                subresource: request.subresource.as_deref(),
                query: &request.query,
            };
            read(&database, &plane, request).await
        })
    })
}

/// How the controllers of a server run.
fn options() -> Options {
    // Where the server's own spans go.
    let traces = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").unwrap_or_default();
    Options { kontroler: true, traces, ..Options::default() }
}

/// Where artifacts are of namespaces that say nothing themselves, if the folder has a file about it.
fn artifacts(folder: &Path) -> Option<Arc<Repository>> {
    let file = folder.join(ARTIFACTS);
    let read = file.is_file().then(|| repository(&file))?;
    read.inspect_err(|error| tracing::error!(error = format!("{error:#}"), "there is no artifact repository"))
        .ok()
        .map(Arc::new)
}

/// Starts the controllers, with a history where there is a folder for it.
fn start_with_history(scope: &Scope) {
    let Some(folder) = scope.folder.clone() else {
        start(scope, options());
        return;
    };
    let scope = scope.clone();
    scope.tasks.clone().spawn(async move {
        let database = loop {
            match database(&folder).await {
                Ok(database) => break database,
                Err(error) => tracing::error!(%error, "failed to open the workflow history; will retry"),
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = scope.token.cancelled() => return,
            }
        };
        let observer = Arc::new(History::new(Recorder::start(database.clone()), None));
        let artifacts = artifacts(&folder);
        start(&scope, Options { observer: Some(observer), artifacts, ..options() });
        purge(database, None, KEEP, scope.token.clone()).await;
    });
}
