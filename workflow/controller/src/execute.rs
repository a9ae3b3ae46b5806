//! Tasks that need no Pod: actions on objects, requests, child DAGs.

use crate::kinds::RUNS;
use crate::live::Live;
use crate::outputs;
use crate::pods::owner;
use freehold_client::{
    Client, Config, DeleteOptions, Error, Identity, Patch, PatchOptions, RawRequest, Resource,
};
use freehold_machinery::{Value, meta};
use freehold_machinery_cel::{Budget, Program, Variable};
use freehold_workflow_api::{ResourceAction, ResourceTask, TaskKind, names};
use freehold_workflow_engine::{Failure, NodeId, names::child_run, values};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// DAGs that can be within each other.
const MAX_DEPTH: u32 = 16;
/// Bytes of a response that are kept.
const MAX_RESPONSE: usize = 1 << 20;

/// How namespaces of the control plane begin.
const PROTECTED: [&str; 3] = ["kube-", "freehold-", "openshift-"];
const SERVICE_ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts");

/// What came of a task: its outputs or a failure; `None`: it goes on.
pub(crate) type Came = Option<Result<BTreeMap<String, Value>, Failure>>;

fn failure(reason: &str, message: impl std::fmt::Display) -> Came {
    Some(Err(Failure::new(reason, message.to_string())))
}

impl Live {
    /// Does what a task says.
    ///
    /// # Errors
    /// A plane that could not be asked; the task is done again.
    pub(crate) async fn execute(
        &self,
        client: &Client,
        id: NodeId,
        attempt: u32,
        http: bool,
    ) -> Result<Came, Error> {
        match self.plan.task(id.task).kind {
            TaskKind::Resource => self.resource(client, id, attempt).await,
            TaskKind::Dag => self.child(client, id, attempt).await,
            TaskKind::Http if !http => {
                Ok(failure("HttpDisabled", "HTTP tasks are not enabled here (--http-tasks)"))
            }
            TaskKind::Http => Ok(self.http(id, attempt).await),
            TaskKind::Pod | TaskKind::Wait | TaskKind::Approval => Ok(None),
        }
    }

    async fn child(&self, client: &Client, id: NodeId, attempt: u32) -> Result<Came, Error> {
        let task = &self.plan.task(id.task).task;
        let Some(child) = &task.template.dag else { return Ok(None) };
        let depth = self
            .object
            .metadata
            .annotations
            .get(names::DEPTH)
            .and_then(|depth| depth.parse().ok())
            .unwrap_or(0u32)
            + 1;
        if depth > MAX_DEPTH {
            return Ok(failure("TooDeep", format!("more than {MAX_DEPTH} DAGs are within each other")));
        }
        let mut parameters = json!(task.parameters);
        let dag = match values::expand(&self.run, &self.plan, id, attempt, &mut parameters)
            .and_then(|()| values::expand_text(&self.run, &self.plan, id, attempt, &child.name))
        {
            Ok(dag) => dag,
            Err(error) => return Ok(failure("InvalidReference", error)),
        };
        let info = &self.run.info;
        let mut labels = json!({names::DAG: freehold_workflow_engine::names::label(&dag)});
        if let Some(instance) = self.object.metadata.labels.get(names::INSTANCE) {
            labels[names::INSTANCE] = instance.as_str().into();
        }
        let run = json!({
            "apiVersion": RUNS.api_version(), "kind": "DAGRun",
            "metadata": {
                "name": child_run(&info.name, &info.uid, &task.name, id, attempt), "namespace": info.namespace, "labels": labels,
                "annotations": {names::NODE: format!("{id}.{attempt}"), names::DEPTH: depth.to_string()},
                "ownerReferences": [owner(&self.run)],
            },
            "spec": {"dag": dag, "parameters": parameters},
        });
        match client.create(&RUNS, &run).await {
            Ok(_) => Ok(None),
            Err(error) if error.is_already_exists() => Ok(None),
            Err(error) if error.is_transient() => Err(error),
            Err(error) => Ok(failure("ChildRefused", error)),
        }
    }

    async fn resource(&self, client: &Client, id: NodeId, attempt: u32) -> Result<Came, Error> {
        let Some(task) = &self.plan.task(id.task).task.template.resource else { return Ok(None) };
        let mut manifest = task.manifest.clone();
        if let Err(error) = values::expand(&self.run, &self.plan, id, attempt, &mut manifest) {
            return Ok(failure("InvalidReference", error));
        }
        let client = match self.as_account(client).await? {
            Ok(client) => client,
            Err(failed) => return Ok(Some(Err(failed))),
        };
        let resource = match resource_of(&client, &manifest).await? {
            Ok(resource) => resource,
            Err(error) => return Ok(failure("UnknownKind", error)),
        };
        if resource.namespaced && meta::namespace(&manifest).is_empty() {
            meta::set(&mut manifest, "namespace", self.run.info.namespace.as_str());
        }
        if task.set_owner_reference {
            manifest["metadata"]["ownerReferences"] = json!([owner(&self.run)]);
        }
        if meta::name(&manifest).is_empty() {
            let info = &self.run.info;
            let name = child_run(&info.name, &info.uid, &self.plan.task(id.task).task.name, id, attempt);
            meta::set(&mut manifest, "name", name);
        }
        match act(&client, &resource, task.action, &manifest).await {
            Ok(object) => Ok(self.judge(id, task, &object)),
            Err(error) if error.is_transient() => Err(error),
            Err(error) => Ok(failure("ResourceRefused", error)),
        }
    }

    /// A client with the rights of the run's own account, which are not those of the controller. Accounts of the control plane's
    /// own namespaces may do more than those who may write runs there, so nobody acts as one.
    async fn as_account(&self, client: &Client) -> Result<Result<Client, Failure>, Error> {
        let namespace = self.run.info.namespace.as_str();
        let account = match self.plan.spec().service_account_name.as_str() {
            "" => "default",
            name => name,
        };
        let failed = |reason: &str, why: &str| {
            Ok(Err(Failure::new(reason, format!("service account {namespace}/{account} {why}"))))
        };
        if PROTECTED.iter().any(|prefix| namespace.starts_with(prefix)) {
            return failed("AccountProtected", "belongs to the control plane");
        }
        if !freehold_machinery::names::dns1123_subdomain(account).is_empty() {
            return failed("AccountNotFound", "can't be one of that name");
        }
        match client.get_opt(&SERVICE_ACCOUNTS, Some(namespace), account).await {
            Ok(Some(_)) => {}
            Ok(None) => return failed("AccountNotFound", "is not there"),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => return failed("AccountNotFound", &format!("can't be read: {error}")),
        }
        client.acting_as(&format!("system:serviceaccount:{namespace}:{account}"), &[]).map(Ok)
    }

    /// What an object says of its task: conditions decide, where there are some.
    fn judge(&self, id: NodeId, task: &ResourceTask, object: &Value) -> Came {
        let is_true = |expression: &str| -> Result<bool, String> {
            let program = Program::compile(expression).map_err(|error| error.to_string())?;
            // A field that is not there yet is no error: the object is looked at again.
            Ok(program
                .is_true(&[("object", Variable::Json(object, None))], &Budget::default())
                .unwrap_or(false))
        };
        if !task.failure_condition.is_empty() && is_true(&task.failure_condition).unwrap_or(false) {
            return failure("FailureCondition", format!("{} holds", task.failure_condition));
        }
        if !task.success_condition.is_empty() && !is_true(&task.success_condition).unwrap_or(false) {
            return None;
        }
        let outputs = outputs::of_object(&self.plan.task(id.task).task.template.outputs, object);
        Some(outputs.map_err(|error| Failure::new("InvalidOutput", error)))
    }

    async fn http(&self, id: NodeId, attempt: u32) -> Came {
        let Some(task) = &self.plan.task(id.task).task.template.http else { return None };
        let text = |text: &str| values::expand_text(&self.run, &self.plan, id, attempt, text);
        let request = || -> Result<(String, RawRequest), String> {
            let url: http::Uri = text(&task.url)?.parse().map_err(|_| "not a URL".to_owned())?;
            let origin = format!(
                "{}://{}",
                url.scheme_str().unwrap_or("https"),
                url.authority().map_or("", |a| a.as_str())
            );
            let path = url.path_and_query().map_or("/", |path| path.as_str());
            let method = if task.method.is_empty() { "GET" } else { &task.method };
            let method = method.parse().map_err(|_| "not a method".to_owned())?;
            let mut request =
                RawRequest { accept: "*/*", body: text(&task.body)?.into(), ..RawRequest::new(method, path) };
            for header in &task.headers {
                let name: http::HeaderName =
                    header.name.parse().map_err(|_| format!("{:?} is no header", header.name))?;
                let value = text(&header.value)?
                    .parse()
                    .map_err(|_| format!("header {:?} has no such value", header.name))?;
                request.headers.insert(name, value);
            }
            Ok((origin, request))
        };
        let (origin, request) = match request() {
            Ok(request) => request,
            Err(error) => return failure("InvalidRequest", error),
        };
        let mut config = Config::new(origin, authorities(), Identity::None);
        config.max_response_bytes = MAX_RESPONSE;
        config.timeout = Duration::from_secs(30);
        let answer = match Client::new(&config) {
            Ok(client) => client.once(&request).await,
            Err(error) => Err(error),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return failure("RequestFailed", error),
        };
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        let json = serde_json::from_str(&body).unwrap_or(Value::Null);
        let response = json!({"code": answer.status.as_u16(), "body": body, "json": json});
        let succeeded = match task.success_condition.as_str() {
            "" => answer.status.is_success(),
            condition => Program::compile(condition).is_ok_and(|program| {
                program
                    .is_true(&[("response", Variable::Json(&response, None))], &Budget::default())
                    .unwrap_or(false)
            }),
        };
        if !succeeded {
            return failure("UnexpectedResponse", format!("the server answered {}", answer.status));
        }
        let outputs = &self.plan.task(id.task).task.template.outputs;
        let of = if json.is_null() { &response["body"] } else { &json };
        Some(outputs::of_object(outputs, of).map_err(|error| Failure::new("InvalidOutput", error)))
    }
}

/// The authorities that the machine trusts.
fn authorities() -> String {
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
        .unwrap_or_default()
}

/// The type of a manifest, as the plane's discovery has it.
async fn resource_of(client: &Client, manifest: &Value) -> Result<Result<Resource, String>, Error> {
    let (api_version, kind) = (meta_text(manifest, "apiVersion"), meta_text(manifest, "kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let listed = match client.get_path(&path).await {
        Err(error) if error.is_not_found() => return Ok(Err(format!("there is no {api_version}"))),
        Err(error) if !error.is_transient() => return Ok(Err(error.to_string())),
        listed => listed?,
    };
    let mut types = listed["resources"].as_array().into_iter().flatten();
    let found = types.find(|of| of["kind"] == kind && !of["name"].as_str().unwrap_or_default().contains('/'));
    Ok(found
        .map(|of| {
            let plural = of["name"].as_str().unwrap_or_default();
            Resource::dynamic(group, version, plural, of["namespaced"] == true)
        })
        .ok_or_else(|| format!("there is no {kind} in {api_version}")))
}

fn meta_text<'a>(manifest: &'a Value, field: &str) -> &'a str {
    manifest[field].as_str().unwrap_or_default()
}

async fn act(
    client: &Client,
    resource: &Resource,
    action: ResourceAction,
    manifest: &Value,
) -> Result<Value, Error> {
    let (namespace, name) = (Some(meta::namespace(manifest)).filter(|n| !n.is_empty()), meta::name(manifest));
    match action {
        ResourceAction::Create => match client.create(resource, manifest).await {
            Err(error) if error.is_already_exists() => client.get(resource, namespace, name).await,
            created => created,
        },
        ResourceAction::Apply => client.apply(resource, "freehold-workflow", manifest).await,
        ResourceAction::Patch => {
            let mut patch = manifest.clone();
            if let Some(patch) = patch.as_object_mut() {
                patch.remove("apiVersion");
                patch.remove("kind");
            }
            client.patch(resource, namespace, name, &Patch::Merge(patch), &PatchOptions::default()).await
        }
        ResourceAction::Delete => {
            match client.delete(resource, namespace, name, &DeleteOptions::default()).await {
                Err(error) if error.is_not_found() => Ok(json!({})),
                deleted => deleted,
            }
        }
        ResourceAction::Get => client.get(resource, namespace, name).await,
    }
}
