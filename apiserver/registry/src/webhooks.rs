//! Admission webhooks of a plane: looked up, called, obeyed.
//!
//! Configurations are compiled once for each content. A plane that has none pays for looking at two empty collections.
//! Mutating webhooks are called one after the other, in the order of their configurations' names, and once more where
//! `reinvocationPolicy` wants it; validating ones all at once.

use crate::{Operation, Registry, measure::Step, questions::Question, scale, validate};
use bytes::Bytes;
use freehold_apiserver_admission::{
    Attributes, Lookup, Matched, Seen,
    bundle::Sealed,
    chain,
    policy::Compiled,
    webhook::{Configuration, Failure, MUTATING, Response, Review, Webhook},
};
use freehold_machinery::{ResourceType, Result, Status, Value, meta};
use freehold_machinery_patch as patch;
use futures_util::future::join_all;
use serde_json::json;
use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Instant,
};

/// Bytes that the answer of an admission webhook may have.
const MAX_ANSWER: usize = 8 << 20;
/// Bytes that the answer of a webhook may have that came with an export, and the warnings in it.
const MAX_BUNDLED_ANSWER: usize = 2 << 20;
const MAX_BUNDLED_WARNINGS: usize = 4;
/// Before the keys under which the audit log says what webhooks did.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";
const VALIDATION: &str = "validating.webhook.admission.k8s.io/";

static CONFIGURATIONS: LazyLock<Compiled<Configuration>> = LazyLock::new(Compiled::default);

/// The plugin that asks webhooks of one sort.
fn plugin(mutating: bool) -> &'static str {
    if mutating { chain::MUTATING_WEBHOOK } else { chain::VALIDATING_WEBHOOK }
}

/// The webhooks of one sort that a plane has.
pub(crate) type Hooks = Vec<Arc<Configuration>>;

/// What has to be remembered between the two rounds of mutating webhooks.
#[derive(Default)]
pub(crate) struct Rounds {
    second: bool,
    /// Those that were called and may be called again.
    called: BTreeSet<usize>,
    /// Webhooks after which something changed.
    due: BTreeSet<usize>,
    /// The object as the first round left it.
    left: Option<Value>,
}

impl Rounds {
    /// Begins the second round, of an object that may have changed meanwhile.
    pub(crate) fn again(&mut self, object: Option<&Value>) {
        self.second = true;
        if self.left.as_ref() != object {
            self.due.append(&mut self.called);
        }
    }
}

/// The objects of a write in another version, where a webhook wants one.
enum Version {
    Asked,
    Other { ty: Arc<ResourceType>, object: Option<Value>, old: Option<Value> },
}

impl Version {
    fn seen<'a>(&'a self, asked: Seen<'a>) -> Seen<'a> {
        match self {
            Self::Asked => asked,
            Self::Other { ty, object, old } => Seen { ty, object: object.as_ref(), old: old.as_ref() },
        }
    }
}

impl Registry {
    /// The webhooks of a plane, in the order of their configurations' names.
    pub(crate) async fn hooks(&self, op: &Operation, resource: &'static str) -> Result<Hooks> {
        if !self.chain.runs(plugin(resource == MUTATING)) {
            return Ok(Hooks::new());
        }
        let mut hooks = self.compiled(op, resource, &CONFIGURATIONS, Configuration::of).await?;
        if let Some(bundle) = self.bundle(op) {
            let own = if resource == MUTATING { &bundle.mutating_hooks } else { &bundle.validating_hooks };
            hooks.extend(own.clone());
        }
        Ok(hooks)
    }

    /// One round of mutating webhooks; gives whether they changed anything.
    pub(crate) async fn mutate_by_webhooks(
        &self,
        op: &Operation,
        attributes: &mut Attributes<'_>,
        lookup: &(dyn Lookup + Sync),
        hooks: &Hooks,
        rounds: &mut Rounds,
        warnings: &mut Vec<String>,
    ) -> Result<bool> {
        let mut changed = false;
        let sealed = Sealed(lookup);
        for (index, hook) in hooks.iter().flat_map(|hooks| &hooks.webhooks).enumerate() {
            let lookup: &(dyn Lookup + Sync) = if hook.home.is_some() { &sealed } else { lookup };
            let Some(version) = self.version(op, hook, attributes, lookup).await? else { continue };
            let shown = shown(op, attributes)?;
            let seen = version.seen(shown.seen(attributes));
            if !hook.applies(attributes, &seen, lookup)? || rounds.second && !rounds.due.contains(&index) {
                continue;
            }
            let place = format!("round_{}_index_{index}", u8::from(rounds.second));
            let patched = match self.mutated(hook, attributes, &seen, &place, warnings).await {
                Ok(patched) => patched,
                Err(Failure::Refused(status)) => return Err(status),
                Err(Failure::Calling(why)) if hook.fails => return Err(hook.failed(&why)),
                Err(Failure::Calling(why)) => {
                    tracing::debug!(plane = %op.plane, webhook = hook.name, why, "webhook failed, and is passed over");
                    op.annotations.add(format!("failed-open.{MUTATION}{place}"), hook.name.clone());
                    continue;
                }
            };
            let mutated = patched.is_some();
            let said = json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": mutated});
            op.annotations.add(format!("{MUTATION}{place}"), said.to_string());
            if let Some(patched) = patched {
                self.take(op, attributes, &version, patched).await?;
                changed = true;
                rounds.due.append(&mut rounds.called);
            }
            if hook.again {
                rounds.called.insert(index);
            }
        }
        if !rounds.called.is_empty() || !rounds.due.is_empty() {
            rounds.left = attributes.object().cloned();
        }
        Ok(changed)
    }

    /// The object as a mutating webhook wants it, in the version that it sees; `None` where it changes nothing.
    async fn mutated(
        &self,
        hook: &Webhook,
        attributes: &Attributes<'_>,
        seen: &Seen<'_>,
        place: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Value>, Failure> {
        let review = hook.review(attributes, seen)?;
        let since = Instant::now();
        let answer = self.ask(hook, attributes, review, true).await;
        let step = (Step::Admit, attributes.verb);
        self.admission.webhook((&hook.name, hook.fails), step, since, answer.as_ref());
        let response = answer?;
        warnings.extend(response.warnings);
        attributes.annotations.extend(response.annotations);
        if response.patch.is_empty() {
            return Ok(None);
        }
        let refused = |why: String| Failure::Refused(Status::internal(why));
        let Some(object) = seen.object else {
            let name = &hook.name;
            return Err(refused(format!(
                "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            )));
        };
        let operations = Value::Array(response.patch);
        let patched = patch::json_in_words(object, &operations).map_err(|failed| refused(failed.why()))?;
        if let Some(why) = validate::unreadable_as(seen.ty, attributes.subresource, &patched) {
            return Err(refused(why));
        }
        if patched == *object {
            return Ok(None);
        }
        let said = json!({"configuration": hook.configuration, "webhook": hook.name, "patch": operations, "patchType": "JSONPatch"});
        attributes.annotations.add(format!("{PATCH}{place}"), said.to_string());
        Ok(Some(patched))
    }

    /// Takes over what a webhook made of the object.
    async fn take(
        &self,
        op: &Operation,
        attributes: &mut Attributes<'_>,
        version: &Version,
        mut patched: Value,
    ) -> Result<()> {
        if let Version::Other { ty, .. } = version {
            patched = self.converter.between(&op.plane, ty, &op.ty, patched).await?;
        }
        let Some(object) = attributes.object.as_deref_mut() else { return Ok(()) };
        if op.subresource.as_deref() == Some("scale") {
            patched = scale::write(op, object, &patched)?;
        }
        let before = std::mem::replace(object, patched);
        object["apiVersion"] = before["apiVersion"].clone();
        object["kind"] = before["kind"].clone();
        if before["metadata"].is_object() && !object["metadata"].is_object() {
            return Err(Status::internal("a webhook made an object without metadata"));
        }
        if object["metadata"].get("managedFields").is_some_and(|fields| !fields.is_array()) {
            object["metadata"]["managedFields"] = before["metadata"]["managedFields"].clone();
        }
        for (field, what) in [("name", "name"), ("namespace", "namespace"), ("uid", "uid")] {
            if meta::text(object, field) != meta::text(&before, field) {
                let (now, was) = (meta::text(object, field), meta::text(&before, field));
                return Err(Status::bad_request(format!(
                    "the {what} of the object ({now}), as a webhook changed it, does not match the {what} of the request ({was})"
                )));
            }
        }
        validate::settle(&op.ty, attributes.subresource, object);
        Ok(())
    }

    /// Asks validating webhooks, all at once.
    ///
    /// # Errors
    /// What the first of them has against it, in their order.
    pub(crate) async fn validate_by_webhooks(
        &self,
        op: &Operation,
        attributes: &Attributes<'_>,
        lookup: &(dyn Lookup + Sync),
        hooks: &Hooks,
    ) -> Result<Vec<String>> {
        let mut calls = Vec::new();
        let sealed = Sealed(lookup);
        for hook in hooks.iter().flat_map(|hooks| &hooks.webhooks) {
            let lookup: &(dyn Lookup + Sync) = if hook.home.is_some() { &sealed } else { lookup };
            let Some(version) = self.version(op, hook, attributes, lookup).await? else { continue };
            let shown = shown(op, attributes)?;
            let seen = version.seen(shown.seen(attributes));
            if hook.applies(attributes, &seen, lookup)? {
                calls.push((hook, hook.review(attributes, &seen)));
            }
        }
        let asked = calls.into_iter().map(async |(hook, review)| {
            let since = Instant::now();
            let answer = match review {
                Ok(review) => self.ask(hook, attributes, review, false).await,
                Err(failure) => Err(failure),
            };
            let step = (Step::Validate, attributes.verb);
            self.admission.webhook((&hook.name, hook.fails), step, since, answer.as_ref());
            (hook, answer)
        });
        let mut warnings = Vec::new();
        let mut refusal = None;
        for (index, (hook, answer)) in join_all(asked).await.into_iter().enumerate() {
            let status = match answer {
                Ok(response) => {
                    warnings.extend(response.warnings);
                    attributes.annotations.extend(response.annotations);
                    continue;
                }
                Err(Failure::Refused(status)) => status,
                Err(Failure::Calling(why)) if hook.fails => hook.failed(&why),
                Err(Failure::Calling(why)) => {
                    tracing::debug!(plane = %op.plane, webhook = hook.name, why, "webhook failed, and is passed over");
                    let key = format!("failed-open.{VALIDATION}round_0_index_{index}");
                    attributes.annotations.add(key, hook.name.clone());
                    continue;
                }
            };
            refusal.get_or_insert(status);
        }
        refusal.map_or(Ok(warnings), Err)
    }

    /// The version in which a webhook sees a write; `None` where it is not about it.
    async fn version(
        &self,
        op: &Operation,
        hook: &Webhook,
        attributes: &Attributes<'_>,
        lookup: &(dyn Lookup + Sync),
    ) -> Result<Option<Version>> {
        let ty = match hook.matches(attributes, lookup)? {
            Matched::Nothing => return Ok(None),
            Matched::Asked => return Ok(Some(Version::Asked)),
            Matched::As(ty) => ty,
        };
        let shown = shown(op, attributes)?;
        let seen = shown.seen(attributes);
        let mut converted = [None, None];
        for (to, from) in converted.iter_mut().zip([seen.object, seen.old]) {
            if let Some(object) = from {
                *to = Some(self.converter.between(&op.plane, &op.ty, &ty, object.clone()).await?);
            }
        }
        let [object, old] = converted;
        Ok(Some(Version::Other { ty, object, old }))
    }

    async fn ask(
        &self,
        hook: &Webhook,
        attributes: &Attributes<'_>,
        review: Review,
        mutating: bool,
    ) -> Result<Response, Failure> {
        let client = match &hook.client {
            Ok(client) => client,
            Err(why) => return Err(Failure::Calling(format!("could not get REST client: {why}"))),
        };
        let mut review = review;
        let body = Bytes::from(std::mem::take(&mut review.body));
        let plugin = Some(plugin(mutating));
        // What a provider's webhook costs and may reach is the provider's.
        let (plane, max) = match &hook.home {
            Some(home) => (home, MAX_BUNDLED_ANSWER),
            None => (attributes.plane, MAX_ANSWER),
        };
        let question = Question { body, timeout: hook.timeout, told: true, max, plugin };
        let answer = self.webhooks.ask(plane, client, question).await;
        let answer = answer.map_err(|why| Failure::Calling(format!("failed to call webhook: {why}")))?;
        let mut response = hook.verify(&review, mutating, &answer)?;
        if hook.home.is_some() {
            // The consumer's audit log is not the provider's to write.
            response.annotations.clear();
            response.warnings.truncate(MAX_BUNDLED_WARNINGS);
        }
        Ok(response)
    }
}

/// The objects of a write as its subresource speaks them.
struct Shown<'a> {
    object: Option<Cow<'a, Value>>,
    old: Option<Cow<'a, Value>>,
}

fn shown<'a>(op: &Operation, attributes: &'a Attributes<'_>) -> Result<Shown<'a>> {
    let scaled = op.subresource.as_deref() == Some("scale");
    let show = |object: Option<&'a Value>| {
        object.map(
            |object| if scaled { scale::read(op, object).map(Cow::Owned) } else { Ok(Cow::Borrowed(object)) },
        )
    };
    Ok(Shown { object: show(attributes.object()).transpose()?, old: show(attributes.old).transpose()? })
}

impl Shown<'_> {
    fn seen<'a>(&'a self, attributes: &'a Attributes<'_>) -> Seen<'a> {
        Seen { ty: attributes.ty, object: self.object.as_deref(), old: self.old.as_deref() }
    }
}
