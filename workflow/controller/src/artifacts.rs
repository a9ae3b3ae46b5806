//! Where a task's artifacts are: the repository of a namespace, keys, and requests that are signed for one Pod alone.
//!
//! A Pod never has the credentials of a store. Its container's command is run by `freehold workflow artifact exec`, which an
//! init container puts there; it gets presigned requests for exactly the objects of its task from a Secret of its own. Keys
//! begin with plane, namespace and the namespace's uid, whatever a task says.

use crate::kinds::{CONFIG_MAPS, SECRETS};
use crate::live::Live;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use freehold_client::{Client, Error};
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::Key;
use freehold_workflow_api::{Archive, ArtifactInput, ArtifactOutput, Artifacts, duration, validate};
use freehold_workflow_engine::{NodeId, Plan, Run, values};
use freehold_workflow_outbound::{Bucket, BucketConfig, Credentials, sign::LONGEST};
use http::Method;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// The ConfigMap that says where the artifacts of a namespace are.
pub const CONFIG: &str = "workflow-artifacts";
/// The only type of Secret that is read for the credentials of a store.
const SECRET_TYPE: &str = "workflow.freehold.dev/s3";
/// How long signed requests hold beyond the time that a task may take.
const MARGIN: Duration = Duration::from_secs(3600);
/// How long they hold for tasks without a limit of time.
const USUAL: Duration = Duration::from_secs(24 * 3600);
/// Items of a fan-out whose artifacts one task takes.
const MAX_ITEMS: usize = 1000;
/// Bytes of what a container is told of its artifacts.
const MAX_PLACES: usize = 120 << 10;
/// Where a repository that is a volume is mounted.
pub(crate) const STORE: &str = "/freehold-artifact-store";

/// What is said of an artifact repository.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RepositoryConfig {
    /// URL of an S3-compatible store.
    pub endpoint: String,
    /// Bucket.
    pub bucket: String,
    /// Region.
    pub region: String,
    /// Whether the bucket is the first part of the path.
    pub path_style: bool,
    /// What keys begin with.
    pub prefix: String,
    /// The Secret with `accessKeyId` and `secretAccessKey`, of the type `workflow.freehold.dev/s3`.
    pub secret_name: String,
    /// Instead of a store: a volume that all Pods of the namespace share, as Pods declare volumes.
    pub volume: Value,
    /// Certificates of authorities (PEM) that vouch for the store, beside those of the image.
    pub ca_bundle: String,
}

/// A place for artifacts.
#[derive(Clone, Debug)]
pub struct Repository {
    place: Place,
    prefix: String,
    ca_bundle: String,
}

#[derive(Clone, Debug)]
enum Place {
    Bucket(Bucket),
    Volume(Value),
}

impl Repository {
    /// A repository by its configuration, with credentials where it is a bucket.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(config: &RepositoryConfig, credentials: Credentials) -> Result<Self, String> {
        let prefix = config.prefix.trim_matches('/');
        if !prefix.is_empty() && !validate::is_relative(prefix) {
            return Err(format!("prefix {prefix:?} is no beginning of a key"));
        }
        let place = match config.volume.is_null() {
            false if config.bucket.is_empty() && config.volume.is_object() => {
                Place::Volume(config.volume.clone())
            }
            false => return Err("exactly one of bucket and volume is wanted".into()),
            true => {
                let bucket = BucketConfig {
                    endpoint: config.endpoint.clone(),
                    bucket: config.bucket.clone(),
                    region: config.region.clone(),
                    path_style: config.path_style,
                };
                Place::Bucket(Bucket::new(&bucket, credentials)?)
            }
        };
        Ok(Self { place, prefix: prefix.to_owned(), ca_bundle: config.ca_bundle.clone() })
    }

    /// The whole key of an artifact of a namespace, by its name and uid.
    fn key(&self, plane: &PlaneId, (namespace, uid): (&str, &str), relative: &str) -> String {
        let own = format!("{plane}/{namespace}/{uid}/{relative}");
        if self.prefix.is_empty() { own } else { format!("{}/{own}", self.prefix) }
    }
}

/// What a Pod needs for its artifacts.
#[derive(Clone, Debug)]
pub(crate) struct PodArtifacts {
    /// Names and paths of what is there before the command begins.
    pub(crate) inputs: Vec<(String, String)>,
    /// Names and paths of what is kept.
    pub(crate) outputs: Vec<(String, String)>,
    /// The shared volume that is the repository.
    pub(crate) volume: Option<Value>,
    /// What the Secret of the Pod says.
    pub(crate) places: Value,
}

/// The key of an output within its namespace.
fn output_key(
    run: &Run,
    plan: &Plan,
    node: NodeId,
    attempt: u32,
    of: &ArtifactOutput,
) -> Result<String, String> {
    let suffix = of.archive.suffix();
    let mut key = match of.key.is_empty() {
        true => {
            let item = node.item.number().map_or_else(|| "-".to_owned(), |item| item.to_string());
            format!("runs/{}/{}/{item}/{attempt}/{}", run.info.uid, plan.task(node.task).name(), of.name)
        }
        false => format!("named/{}", values::expand_text(run, plan, node, attempt, &of.key)?),
    };
    if !key.ends_with(suffix) {
        key.push_str(suffix);
    }
    if !validate::is_key(&key) {
        return Err(format!("artifact {:?}: {key:?} is no key", of.name));
    }
    Ok(key)
}

/// The keys of a task's artifacts, as outputs.
pub(crate) fn outputs(
    run: &Run,
    plan: &Plan,
    node: NodeId,
    attempt: u32,
) -> Result<BTreeMap<String, Value>, String> {
    let declared =
        plan.tasks().get(node.task as usize).and_then(|task| task.task.template.artifacts.as_ref());
    let each = declared.iter().flat_map(|artifacts| &artifacts.outputs);
    each.map(|of| Ok((of.name.clone(), output_key(run, plan, node, attempt, of)?.into()))).collect()
}

/// The keys that an input stands for: one, or one for each item of a fan-out.
fn input_keys(
    run: &Run,
    plan: &Plan,
    node: NodeId,
    attempt: u32,
    of: &ArtifactInput,
) -> Result<Vec<(String, Option<usize>)>, String> {
    let mut value = Value::String(of.key.clone());
    values::expand(run, plan, node, attempt, &mut value)?;
    let keys: Vec<(String, Option<usize>)> = match value {
        Value::String(key) => vec![(key, None)],
        Value::Array(items) if items.len() <= MAX_ITEMS => (0..)
            .zip(items)
            .map(|(n, item)| (item.as_str().unwrap_or_default().to_owned(), Some(n)))
            .collect(),
        Value::Array(items) => {
            return Err(format!(
                "artifact {:?}: {} items; at most {MAX_ITEMS} are taken",
                of.name,
                items.len()
            ));
        }
        _ => Vec::new(),
    };
    match keys.iter().find(|(key, _)| !validate::is_key(key)) {
        Some((bad, _)) => Err(format!("artifact {:?}: {bad:?} is no key of the namespace", of.name)),
        None => Ok(keys),
    }
}

/// Finds the repository of a namespace: its own, or the controllers'.
async fn repository(
    client: &Client,
    key: &Key,
    default: Option<&Repository>,
) -> Result<Result<Repository, String>, Error> {
    let Some(found) = client.get_opt(&CONFIG_MAPS, key.ns(), CONFIG).await? else {
        let none = || format!("the namespace has no ConfigMap {CONFIG:?} that says where artifacts are kept");
        return Ok(default.cloned().ok_or_else(none));
    };
    let config = match config_of(&found["data"]) {
        Ok(config) => config,
        Err(error) => return Ok(Err(format!("ConfigMap {CONFIG:?}: {error}"))),
    };
    let mut credentials = Credentials::default();
    if config.volume.is_null() {
        let name = if config.secret_name.is_empty() { CONFIG } else { &config.secret_name };
        let Some(secret) = client.get_opt(&SECRETS, key.ns(), name).await? else {
            return Ok(Err(format!("there is no Secret {name:?} with the credentials of the store")));
        };
        if secret["type"] != SECRET_TYPE {
            return Ok(Err(format!("Secret {name:?} is not of the type {SECRET_TYPE}")));
        }
        credentials = credentials_of(&secret["data"]);
    }
    Ok(Repository::new(&config, credentials).map_err(|error| format!("ConfigMap {CONFIG:?}: {error}")))
}

/// Reads a configuration from the texts of a ConfigMap.
fn config_of(data: &Value) -> Result<RepositoryConfig, String> {
    let mut fields = data.as_object().cloned().unwrap_or_default();
    for field in ["pathStyle", "volume"] {
        if let Some(text) = fields.get(field).and_then(Value::as_str) {
            let read = serde_json::from_str(text).map_err(|error| format!("{field} is no JSON: {error}"))?;
            fields.insert(field.to_owned(), read);
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

fn credentials_of(data: &Value) -> Credentials {
    let text = |field: &str| {
        let bytes = BASE64.decode(data[field].as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    };
    Credentials {
        access_key: text("accessKeyId"),
        secret_key: text("secretAccessKey"),
        session_token: Some(text("sessionToken")).filter(|token| !token.is_empty()),
    }
}

impl Live {
    /// Finds out what a Pod needs for its artifacts; `None` where its task has none. An inner error is the task's own.
    pub(crate) async fn artifacts(
        &self,
        client: &Client,
        key: &Key,
        (node, attempt): (NodeId, u32),
        default: Option<&Repository>,
    ) -> Result<Option<Result<PodArtifacts, String>>, Error> {
        let Some(artifacts) = &self.plan.task(node.task).task.template.artifacts else { return Ok(None) };
        Ok(Some(match repository(client, key, default).await? {
            Ok(repository) => self.placed(key, (node, attempt), artifacts, &repository),
            Err(error) => Err(error),
        }))
    }

    fn placed(
        &self,
        key: &Key,
        (node, attempt): (NodeId, u32),
        artifacts: &Artifacts,
        repository: &Repository,
    ) -> Result<PodArtifacts, String> {
        let (run, plan) = (&self.run, &self.plan);
        let holds = validity(&plan.task(node.task).task.template.timeout);
        let at = |method: Method, relative: &str| {
            let whole = repository.key(&key.plane, (&key.namespace, &self.namespace_uid), relative);
            match &repository.place {
                Place::Bucket(bucket) => bucket
                    .presign(&method, &whole, &[], holds)
                    .map(|url| json!({"url": url}))
                    .map_err(|error| error.to_string()),
                Place::Volume(_) => Ok(json!({"file": whole})),
            }
        };
        let place = |name: &str, method: Method, relative: &str, packed: bool, optional: bool| {
            let mut place = at(method, relative)?;
            place["name"] = name.into();
            place["packed"] = packed.into();
            place["optional"] = optional.into();
            Ok::<Value, String>(place)
        };
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for of in &artifacts.inputs {
            for (relative, item) in input_keys(run, plan, node, attempt, of)? {
                let (name, path) = match item {
                    None => (of.name.clone(), of.path.clone()),
                    Some(n) => (format!("{}/{n}", of.name), format!("{}/{n}", of.path.trim_end_matches('/'))),
                };
                let packed = of.archive.is_packed(&relative);
                from.push(place(&name, Method::GET, &relative, packed, of.optional)?);
                inputs.push((name, path));
            }
        }
        for of in &artifacts.outputs {
            let relative = output_key(run, plan, node, attempt, of)?;
            let packed = of.archive == Archive::TarGz;
            to.push(place(&of.name, Method::PUT, &relative, packed, of.optional)?);
            outputs.push((of.name.clone(), of.path.clone()));
        }
        let volume = match &repository.place {
            Place::Volume(volume) => Some(volume.clone()),
            Place::Bucket(_) => None,
        };
        let places = json!({"inputs": from, "outputs": to, "ca": repository.ca_bundle});
        // They are one variable of the container, and Linux allows 128 KiB for one.
        if places.to_string().len() > MAX_PLACES {
            return Err(format!(
                "the places of {} artifacts are more than a container can be told",
                inputs.len() + outputs.len()
            ));
        }
        Ok(PodArtifacts { inputs, outputs, volume, places })
    }
}

/// How long requests of a task hold.
fn validity(timeout: &str) -> Duration {
    let limit = duration::parse(timeout).filter(|limit| !limit.is_zero());
    limit.map_or(USUAL, |limit| limit.saturating_add(MARGIN)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_read_from_a_config_map() {
        let bucket = json!({"endpoint": "https://s3.example", "bucket": "artifacts", "pathStyle": "true", "prefix": "/a/b/"});
        let config = config_of(&bucket).unwrap();
        let repository = Repository::new(&config, Credentials::default()).unwrap();
        let plane = "web".parse().unwrap();
        assert_eq!(repository.key(&plane, ("default", "n1"), "runs/u/x"), "a/b/web/default/n1/runs/u/x");
        let volume = json!({"volume": "{\"persistentVolumeClaim\": {\"claimName\": \"c\"}}"});
        assert!(matches!(
            Repository::new(&config_of(&volume).unwrap(), Credentials::default()).unwrap().place,
            Place::Volume(_)
        ));
        for bad in [
            json!({"bucket": "artifacts", "volume": "{}"}),
            json!({"volume": "nonsense"}),
            json!({"endpoint": "https://s3.example", "bucket": "artifacts", "prefix": "../up"}),
            json!({"endpoint": "https://s3.example", "bucket": "artifacts", "unknown": "x"}),
        ] {
            let made = config_of(&bad).and_then(|config| Repository::new(&config, Credentials::default()));
            assert!(made.is_err(), "{bad}");
        }
    }

    #[test]
    fn requests_hold_as_long_as_a_task_may_take_and_a_week_at_most() {
        assert_eq!((validity(""), validity("10m")), (USUAL, Duration::from_secs(4200)));
        assert_eq!(validity("30d"), LONGEST);
    }
}
