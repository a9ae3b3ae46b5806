//! Files that tasks take and give, results that are kept for later, and who is told of a run's end.

use crate::dag::SecretKeyRef;
use crate::task::is_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Files and folders that a task takes and gives, by way of the namespace's artifact repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Artifacts {
    /// What is there before its command begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub inputs: Vec<ArtifactInput>,
    /// What is kept after its command succeeded: `$(tasks.TASK.outputs.NAME)` is its key for tasks after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub outputs: Vec<ArtifactOutput>,
}

/// A file or folder that a task takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "path", "key"]))]
pub struct ArtifactInput {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Where it is put in the container, an absolute path.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
    /// Which: `$(tasks.TASK.outputs.NAME)`, or `named/KEY` for one with a key of its own. Of a task with `forEach` each item's is
    /// put below `path` under the item's number.
    #[schemars(length(min = 1, max = 1024))]
    pub key: String,
    /// How it was packed.
    #[serde(skip_serializing_if = "is_default")]
    pub archive: InputArchive,
    /// Whether the task begins without it where there is none.
    #[serde(skip_serializing_if = "crate::dag::is_false")]
    pub optional: bool,
}

/// A file or folder that a task gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "path"]))]
pub struct ArtifactOutput {
    /// Its name among the task's outputs.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Where it is in the container, an absolute path.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
    /// A key of its own in the namespace's repository, so that other runs find it as `named/KEY`. Without one it is the run's.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub key: String,
    /// How it is packed.
    #[serde(skip_serializing_if = "is_default")]
    pub archive: Archive,
    /// Whether the task succeeds without it.
    #[serde(skip_serializing_if = "crate::dag::is_false")]
    pub optional: bool,
}

/// How an artifact is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Archive {
    /// A compressed archive, of a file or a folder.
    #[default]
    TarGz,
    /// One file as it is.
    None,
}

/// How an artifact that a task takes was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InputArchive {
    /// A compressed archive where its key ends so, or else one file.
    #[default]
    ByKey,
    /// A compressed archive.
    TarGz,
    /// One file as it is.
    None,
}

impl InputArchive {
    /// Whether the artifact with a key is an archive.
    pub fn is_packed(self, key: &str) -> bool {
        match self {
            Self::ByKey => key.ends_with(Archive::TarGz.suffix()),
            Self::TarGz => true,
            Self::None => false,
        }
    }
}

impl Archive {
    /// The end of keys of artifacts that are packed so.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::TarGz => ".tar.gz",
            Self::None => "",
        }
    }
}

/// A result that is kept, so that a task with the same key need not be done again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["key"]))]
pub struct Memoize {
    /// What the result depends on: `$(params.commit)-$(item)`. Definition, service account and namespace of the task count beside it.
    #[schemars(length(min = 1, max = 1024))]
    pub key: String,
    /// Results that are older are not used. Without it they are used as long as they are kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub max_age: String,
    /// The cache that keeps it, of the namespace; `default` without one. A cache keeps 1,000 results, the youngest.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub cache: String,
}

/// Who is told of what becomes of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Notifications {
    /// Which tasks' ends are Kubernetes events of the run. The end of the run is one in any case but `None`.
    #[serde(skip_serializing_if = "is_default")]
    pub events: TaskEvents,
    /// Servers that get a signed request at a run's end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub webhooks: Vec<RunWebhook>,
}

/// Which tasks' ends are Kubernetes events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaskEvents {
    /// Those that failed.
    #[default]
    Failures,
    /// All that were done.
    All,
    /// Not even the run's end.
    None,
}

/// A server that gets a signed request at a run's end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["url"]))]
pub struct RunWebhook {
    /// Where to, `https` or `http`.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// After which ends.
    #[serde(skip_serializing_if = "is_default")]
    pub on: NotifyOn,
    /// The key of a Secret with which requests are signed. Without one they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// Ends of runs that somebody is told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NotifyOn {
    /// All.
    #[default]
    Always,
    /// Runs that succeeded.
    Success,
    /// Runs that did not.
    Failure,
}

impl NotifyOn {
    /// Whether an end is among them.
    pub fn includes(self, succeeded: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Success => succeeded,
            Self::Failure => !succeeded,
        }
    }
}

/// A notification that was not delivered yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Delivery {
    /// The id that receivers tell repeated deliveries by.
    pub id: String,
    /// The number of the webhook in the definition of the run.
    pub webhook: u32,
    /// How often it was tried.
    #[serde(skip_serializing_if = "crate::dag::is_zero")]
    pub attempts: u32,
    /// When it is tried next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<String>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}
