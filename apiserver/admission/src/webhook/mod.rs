//! Admission webhooks, the pure half: which webhooks a write matches, the requests to them, and the meaning of their
//! answers (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>).
//!
//! A configuration is compiled once for each content ([`Configuration::of`]). A call goes: [`Webhook::matches`], the
//! object converted to the version that matched, [`Webhook::applies`], [`Webhook::review`], the call itself, which is not
//! done here, [`Webhook::verify`]. Answers are not trusted: what is wrong about one is a [`Failure`].

mod check;
mod client;
mod response;
mod review;

pub use check::check_conditions;
pub use client::{At, ClientConfig};
pub use response::{Failure, Response};
pub use review::Review;

use crate::{
    Attributes, Lookup, Matched, Seen,
    matching::Match,
    policy::{
        self,
        compiled::Named,
        scope::{Names, Scope, conditions_hold},
        typing::Environment,
    },
};
use freehold_machinery::{PlaneId, Result, Status, Value, meta};
use std::{sync::Arc, time::Duration};

/// The resource of webhooks that change objects.
pub const MUTATING: &str = "mutatingwebhookconfigurations";
/// The resource of webhooks that refuse them.
pub const VALIDATING: &str = "validatingwebhookconfigurations";

/// How long a webhook may take that does not say.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A `MutatingWebhookConfiguration` or `ValidatingWebhookConfiguration`.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Its webhooks, in their order.
    pub webhooks: Vec<Webhook>,
}

/// One webhook.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Its name: `imagepolicy.example.com`.
    pub name: String,
    /// The name of its configuration.
    pub configuration: String,
    /// Where it is, or what is wrong about that.
    pub client: Result<ClientConfig, String>,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether a call that fails fails the write (`failurePolicy`).
    pub fails: bool,
    /// Whether it is called again when others changed the object after it (`reinvocationPolicy`).
    pub again: bool,
    /// The plane on whose behalf it is called, where that is not the one that is written to: it came with an export.
    pub home: Option<PlaneId>,
    matches: Match,
    conditions: Vec<Named>,
    /// What they name.
    names: Names,
    /// Whether it does nothing that a dry run must not do.
    dry: bool,
    /// The version of reviews that it is sent.
    version: Option<&'static str>,
}

fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value[field].as_array().into_iter().flatten()
}

impl Configuration {
    /// From an object of either kind.
    pub fn of(object: &Value) -> Self {
        let webhooks = list(object, "webhooks").map(|hook| Webhook::of(meta::name(object), hook));
        Self { webhooks: webhooks.collect() }
    }
}

impl Webhook {
    fn of(configuration: &str, value: &Value) -> Self {
        let text = |field: &str| value[field].as_str().unwrap_or_default();
        let known = |version: &str| ["v1", "v1beta1"].into_iter().find(|known| *known == version);
        let names = Environment::new(None, None);
        let conditions: Vec<Named> =
            list(value, "matchConditions").map(|value| Named::of(value, &names)).collect();
        Self {
            name: text("name").to_owned(),
            configuration: configuration.to_owned(),
            client: ClientConfig::of(&value["clientConfig"]),
            timeout: value["timeoutSeconds"].as_u64().map_or(TIMEOUT, Duration::from_secs),
            fails: text("failurePolicy") != "Ignore",
            again: text("reinvocationPolicy") == "IfNeeded",
            home: None,
            matches: Match::of_webhook(value),
            names: Names::of(conditions.iter().map(|condition| &condition.expression)),
            conditions,
            dry: ["None", "NoneOnDryRun"].contains(&text("sideEffects")),
            version: list(value, "admissionReviewVersions").filter_map(Value::as_str).find_map(known),
        }
    }

    /// Whether a condition reads something of the plane beside the write.
    pub(crate) fn reads_plane(&self) -> bool {
        self.names.read_plane()
    }

    /// As what it is about this write, as far as its rules and selectors go. Nobody may lock themselves out of the
    /// configuration of admission: no webhook is about that.
    ///
    /// # Errors
    /// 500 for a selector that makes no sense.
    pub fn matches(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<Matched> {
        if policy::exempt(attributes) {
            return Ok(Matched::Nothing);
        }
        self.matches.which(attributes, lookup).map_err(Status::internal)
    }

    /// Whether its match conditions hold.
    ///
    /// # Errors
    /// 403 for one that can't be evaluated, unless its failures are ignored.
    pub fn applies(&self, attributes: &Attributes<'_>, seen: &Seen<'_>, lookup: &dyn Lookup) -> Result<bool> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let mut scope = Scope::new((&[], self.names), attributes, seen, lookup, None);
        match conditions_hold(&self.conditions, &mut scope) {
            Err(why) if self.fails => Err(attributes.forbidden(&why)),
            Err(_) => Ok(false),
            Ok(holds) => Ok(holds),
        }
    }

    /// What it is sent.
    ///
    /// # Errors
    /// A dry run that it does not support; no version of reviews that is known.
    pub fn review(&self, attributes: &Attributes<'_>, seen: &Seen<'_>) -> Result<Review, Failure> {
        if attributes.dry_run && !self.dry {
            let why = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Failure::Refused(Status::bad_request(why)));
        }
        let Some(version) = self.version else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Failure::Calling(why.to_owned()));
        };
        Ok(Review::new(version, attributes, seen))
    }

    /// What its answer means.
    ///
    /// # Errors
    /// It refuses the write, or its answer is none.
    pub fn verify(&self, review: &Review, mutating: bool, answer: &[u8]) -> Result<Response, Failure> {
        response::verify(&self.name, review, mutating, answer)
    }

    /// A failed call as a client sees it.
    pub fn failed(&self, why: &str) -> Status {
        Status::internal(format!("failed calling webhook {:?}: {why}", self.name))
    }
}

/// Configurations of a plane, compiled.
pub type Configurations = Vec<Arc<Configuration>>;
