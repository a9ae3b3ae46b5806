//! What the apiserver does with planes as a whole, for controllers: each action is done once however often it is asked.

use crate::kinds::PROJECTS;
use crate::object::text;
use freehold_api::keys::organization_namespace;
use freehold_api::urls::plane_path;
use freehold_client::{Client, Error, RawRequest};
use freehold_controller_manager_runtime::conditions::{self, Set};
use freehold_machinery::{PlaneId, Value, meta};
use http::Method;
use jiff::Timestamp;

/// Why something can't be done: a reason in CamelCase and a message for people.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Whether trying again can't help.
    pub(crate) is_final: bool,
}

impl Refusal {
    /// It may be otherwise later.
    pub(crate) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_final: false }
    }

    /// It stays so.
    pub(crate) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_final: true }
    }
}

/// The server's own paths, at which planes are acted on.
#[derive(Clone)]
pub(crate) struct Actions(pub(crate) Client);

/// An answer that says that it will never be otherwise.
pub(crate) fn refusal(error: Error) -> Result<Refusal, Error> {
    match error.code() {
        400 | 404 | 409 | 410 | 413 | 422 => Ok(Refusal::failed("Refused", error.to_string())),
        403 => Ok(Refusal::waiting("QuotaExceeded", error.to_string())),
        _ => Err(error),
    }
}

impl Actions {
    async fn send(&self, method: Method, plane: &PlaneId, rest: &str) -> Result<Value, Error> {
        self.0.json(RawRequest::new(method, format!("{}/{rest}", plane_path(plane)))).await
    }

    /// Copies a plane into a layer; gives the layer's record.
    pub(crate) async fn snapshot(
        &self,
        plane: &PlaneId,
        layer: &str,
        revision: Option<i64>,
    ) -> Result<Value, Error> {
        let query = revision.map(|revision| format!("?revision={revision}")).unwrap_or_default();
        self.send(Method::PUT, plane, &format!("layers/{layer}{query}")).await
    }

    /// Puts a plane above a layer; gives the revision.
    pub(crate) async fn switch(&self, plane: &PlaneId, layer: &str, operation: &str) -> Result<i64, Error> {
        let rest = format!("stack?layer={layer}&operation={operation}");
        let answer = self.send(Method::PUT, plane, &rest).await?;
        Ok(answer["revision"].as_i64().unwrap_or_default())
    }

    /// Lets a layer go.
    pub(crate) async fn release(&self, layer: &str) -> Result<Value, Error> {
        self.send(Method::DELETE, &PlaneId::core(), &format!("layers/{layer}")).await
    }

    /// Makes a class' objects the layer of its planes; gives that layer.
    pub(crate) async fn install_class(&self, class: &str) -> Result<String, Error> {
        let answer = self.send(Method::PUT, &PlaneId::core(), &format!("classes/{class}")).await?;
        Ok(text(&answer, "/layer").to_owned())
    }
}

/// The plane of a project, if it belongs to the organization whose namespace this is and can be worked with.
pub(crate) async fn plane_in(
    core: &Client,
    namespace: &str,
    name: &str,
) -> Result<Result<PlaneId, Refusal>, Error> {
    let project = core.get_opt(&PROJECTS, None, name).await?;
    let theirs = |p: &Value| organization_namespace(text(p, "/spec/ownerRef/name")) == namespace;
    let Some(project) = project.filter(theirs) else {
        let message = format!("there is no project {name:?} in this organization");
        return Ok(Err(Refusal::waiting("ProjectNotFound", message)));
    };
    if meta::is_deleting(&project) {
        return Ok(Err(Refusal::failed("ProjectTerminating", format!("project {name:?} is being deleted"))));
    }
    let not_ready = || Refusal::waiting("ProjectNotReady", format!("project {name:?} is not ready yet"));
    Ok(text(&project, "/status/controlPlane/id").parse().map_err(|_| not_ready()))
}

/// Sets phase and `Ready` condition of an object's status.
pub(crate) fn set_phase(status: &mut Value, object: &Value, phase: &str, why: Option<&Refusal>) {
    let generation = Some(crate::object::generation(object));
    status["phase"] = phase.into();
    status["observedGeneration"] = generation.into();
    let (word, reason, message) = match why {
        None => ("True", phase, ""),
        Some(why) => ("False", why.reason, why.message.as_str()),
    };
    let set = Set { type_: freehold_api::keys::READY, status: word, reason, message, generation };
    conditions::set(&mut status["conditions"], set, Timestamp::now());
}
