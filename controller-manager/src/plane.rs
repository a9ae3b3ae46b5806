//! What the apiserver does with planes as a whole, for controllers: each action is done once however often it is asked.

use crate::references::{Layer, OwnPlane};
use freehold_api::urls::plane_path;
use freehold_client::{Client, Error, RawRequest};
use freehold_controllers_context::object::text;
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::conditions::{self, Set};
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
        plane: &OwnPlane,
        layer: &Layer,
        revision: Option<i64>,
    ) -> Result<Value, Error> {
        let query = revision.map(|revision| format!("?revision={revision}")).unwrap_or_default();
        self.send(Method::PUT, plane.id(), &format!("layers/{}{query}", layer.as_str())).await
    }

    /// Puts a plane above a layer of its organization, to begin with it.
    pub(crate) async fn fork(&self, plane: &OwnPlane, layer: &Layer) -> Result<(), Error> {
        let rest = format!("stack?layer={}&operation=fork", layer.as_str());
        self.send(Method::PUT, plane.id(), &rest).await.map(drop)
    }

    /// Puts a plane above a snapshot of itself; gives the revision.
    pub(crate) async fn restore(
        &self,
        plane: &OwnPlane,
        layer: &Layer,
        operation: &str,
    ) -> Result<i64, Error> {
        let rest = format!("stack?layer={}&operation={operation}&restore=true", layer.as_str());
        let answer = self.send(Method::PUT, plane.id(), &rest).await?;
        Ok(answer["revision"].as_i64().unwrap_or_default())
    }

    /// Lets a layer go.
    pub(crate) async fn release(&self, layer: &Layer) -> Result<Value, Error> {
        self.send(Method::DELETE, &PlaneId::core(), &format!("layers/{}", layer.as_str())).await
    }

    /// Makes a class' objects the layer of its planes; gives that layer.
    pub(crate) async fn install_class(&self, class: &str) -> Result<String, Error> {
        let answer = self.send(Method::PUT, &PlaneId::core(), &format!("classes/{class}")).await?;
        Ok(text(&answer, "/layer").to_owned())
    }
}

/// Sets phase and `Ready` condition of an object's status.
pub(crate) fn set_phase(status: &mut Value, object: &Value, phase: &str, why: Option<&Refusal>) {
    let generation = Some(freehold_controllers_context::object::generation(object));
    status["phase"] = phase.into();
    status["observedGeneration"] = generation.into();
    let (word, reason, message) = match why {
        None => ("True", phase, ""),
        Some(why) => ("False", why.reason, why.message.as_str()),
    };
    let set = Set { type_: freehold_api::keys::READY, status: word, reason, message, generation };
    conditions::set(&mut status["conditions"], set, Timestamp::now());
}
