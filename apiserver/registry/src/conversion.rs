//! Custom resources in the version that was asked for, by the webhooks of their CRDs (`ConversionReview`,
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>).
//!
//! Objects are sent in batches. What a webhook made of some content is kept for a short while, so that the watchers and
//! lists of a busy resource don't ask again and again. An answer has to keep an object's identity; of its metadata only
//! labels and annotations are taken. A provider's webhook converts objects of all of its consumers, on behalf of the
//! provider's plane: what it costs and may reach is the provider's.

mod kept;
mod review;
mod stalled;

use crate::questions::{Question, Webhooks};
use crate::view::{OwnTypes, Versions};
use crate::{
    Object,
    convert::{self, schema_since},
    validate,
};
use bytes::Bytes;
use freehold_apiserver_admission::webhook::ClientConfig;
use freehold_apiserver_cache::{Cache, Entry, PageOfPlanes};
use freehold_machinery::{
    PlaneId, ResourceType, Result, Status, Value,
    resource::{Conversion, ConversionWebhook},
};
use kept::{Kept, Key};
use stalled::Stalled;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Objects of one batch, and bytes of their JSON after which it is full.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 8 << 20;
/// How long a webhook may take for a batch.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a provider's webhook may take, for which others wait.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that an answer may have beyond four times its question.
const ROOM: usize = 1 << 20;

/// Converts objects.
pub(crate) struct Converter {
    webhooks: Arc<dyn Webhooks>,
    kept: Kept,
    stalled: Stalled,
}

/// Whether a webhook is needed for an object of this version.
fn webhook<'t>(ty: &'t ResourceType, api_version: &str, to: &str) -> Option<&'t ConversionWebhook> {
    match &ty.storage.conversion {
        Conversion::Webhook(webhook) if api_version != to => Some(webhook),
        _ => None,
    }
}

fn api_version(object: &Value) -> &str {
    object["apiVersion"].as_str().unwrap_or_default()
}

/// Whether an object of a CRD is stored in another version than that of `ty`.
pub(crate) fn differs(ty: &ResourceType, entry: &Entry) -> bool {
    ty.custom && !entry.is_of(&ty.api_version())
}

impl Converter {
    pub(crate) fn new(webhooks: Arc<dyn Webhooks>) -> Self {
        Self { webhooks, kept: Kept::default(), stalled: Stalled::default() }
    }

    /// An entry in the version of `ty`, as [`convert::out`] gives it.
    pub(crate) async fn out(
        &self,
        plane: &PlaneId,
        ty: &ResourceType,
        entry: Arc<Entry>,
        since: u64,
    ) -> Result<Object> {
        if !matches!(ty.storage.conversion, Conversion::Webhook(_)) {
            return convert::out(ty, entry, since);
        }
        let mut out = self.all(plane, ty, vec![entry], since).await?;
        out.pop().ok_or_else(|| Status::internal("nothing was converted"))
    }

    /// Entries in the version of `ty`, in their order. Those that need a webhook are sent to it together.
    pub(crate) async fn all(
        &self,
        plane: &PlaneId,
        ty: &ResourceType,
        entries: Vec<Arc<Entry>>,
        since: u64,
    ) -> Result<Vec<Object>> {
        let Conversion::Webhook(webhook) = &ty.storage.conversion else {
            return entries.into_iter().map(|entry| convert::out(ty, entry, since)).collect();
        };
        let to = ty.api_version();
        let mut out: Vec<Option<Object>> = Vec::with_capacity(entries.len());
        let (mut waiting, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        for entry in entries {
            if entry.is_of(&to) {
                out.push(Some(convert::out(ty, entry, since)?));
                continue;
            }
            let json = entry.json();
            // A provider's webhook makes the same of equal objects, whichever consumer has them.
            let key = Key::new(webhook.home.as_ref().unwrap_or(plane), ty, &json);
            if let Some(known) = self.kept.get(&key) {
                out.push(Some(Object::Value(known)));
                continue;
            }
            places.push((out.len(), key));
            bytes += json.len();
            waiting.push(entry.value());
            out.push(None);
            if waiting.len() >= BATCH || bytes >= BATCH_BYTES {
                self.fill(plane, ty, webhook, (&mut waiting, &mut places), &mut out).await?;
                bytes = 0;
            }
        }
        self.fill(plane, ty, webhook, (&mut waiting, &mut places), &mut out).await?;
        Ok(out.into_iter().flatten().collect())
    }

    /// Entries of several planes, in their order, as who looks at all of them sees them by the type of one.
    pub(crate) async fn across(
        &self,
        versions: &Versions,
        cache: &Cache,
        ty: &ResourceType,
        found: &[PageOfPlanes],
    ) -> Result<Vec<Object>> {
        let entries = |run: &[PageOfPlanes]| run.iter().map(|one| one.entry.clone()).collect();
        let mut objects = Vec::with_capacity(found.len());
        // One question for all of them, where one webhook may see them.
        if let Versions::OfType = versions {
            return match found.first() {
                Some(PageOfPlanes { plane, .. }) => {
                    self.all(plane, ty, entries(found), schema_since(cache, plane, ty)).await
                }
                None => Ok(objects),
            };
        }
        for run in found.chunk_by(|a, b| a.plane == b.plane) {
            let Some(PageOfPlanes { plane, .. }) = run.first() else { continue };
            let types = if let Versions::OfPlanes(types) = versions { Some(types) } else { None };
            objects.extend(self.own(types, plane, ty, entries(run), schema_since(cache, plane, ty)).await?);
        }
        Ok(objects)
    }

    /// Entries of one of several planes, in their order. Those of another version than that of `ty`, which may be another
    /// plane's, come into it by the plane's own type, where `types` knows that; otherwise as [`convert::own`] gives them.
    async fn own(
        &self,
        types: Option<&Arc<dyn OwnTypes>>,
        plane: &PlaneId,
        ty: &ResourceType,
        entries: Vec<Arc<Entry>>,
        since: u64,
    ) -> Result<Vec<Object>> {
        if let Some(types) = types.filter(|_| entries.iter().any(|entry| differs(ty, entry)))
            && let Some(own) = types.own(plane, ty).await?
        {
            let converted = self.all(plane, &own, entries, since).await;
            return converted.map_err(|status| Status {
                message: format!("{}: {}", types.called(plane), status.message),
                ..status
            });
        }
        entries.into_iter().map(|entry| convert::own(ty, entry, since)).collect()
    }

    /// Converts what waits and puts it where it belongs.
    async fn fill(
        &self,
        plane: &PlaneId,
        ty: &ResourceType,
        webhook: &ConversionWebhook,
        (waiting, places): (&mut Vec<Value>, &mut Vec<(usize, Key)>),
        out: &mut [Option<Object>],
    ) -> Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let objects = std::mem::take(waiting);
        let single = out.len() == 1;
        let converted = self.ask(plane, ty, webhook, objects, &ty.api_version(), single).await?;
        for ((place, key), mut value) in places.drain(..).zip(converted) {
            validate::prune(ty, &mut value);
            validate::default(ty, &mut value);
            let value = Arc::new(value);
            self.kept.put(key, &value);
            out[place] = Some(Object::Value(value));
        }
        Ok(())
    }

    /// From any version to that of `ty`.
    pub(crate) async fn to_served(&self, plane: &PlaneId, ty: &ResourceType, object: Value) -> Result<Value> {
        let to = ty.api_version();
        match webhook(ty, api_version(&object), &to) {
            None => convert::to_served(ty, object),
            Some(webhook) => {
                let mut converted = self.one(plane, ty, webhook, object, &to).await?;
                validate::prune(ty, &mut converted);
                validate::default(ty, &mut converted);
                Ok(converted)
            }
        }
    }

    /// From one version of a resource to another, each given by its type.
    pub(crate) async fn between(
        &self,
        plane: &PlaneId,
        from: &ResourceType,
        to: &ResourceType,
        object: Value,
    ) -> Result<Value> {
        if matches!(to.storage.conversion, Conversion::Webhook(_)) {
            return self.to_served(plane, to, object).await;
        }
        match (&from.storage.conversion, &to.storage.conversion) {
            (Conversion::None, Conversion::None) => convert::to_served(to, object),
            _ => convert::to_served(to, convert::to_stored(from, object)?),
        }
    }

    /// From the version of `ty` to that in which objects are stored.
    pub(crate) async fn to_stored(&self, plane: &PlaneId, ty: &ResourceType, object: Value) -> Result<Value> {
        match webhook(ty, api_version(&object), &ty.storage.api_version) {
            None => convert::to_stored(ty, object),
            Some(webhook) => self.one(plane, ty, webhook, object, &ty.storage.api_version).await,
        }
    }

    async fn one(
        &self,
        plane: &PlaneId,
        ty: &ResourceType,
        webhook: &ConversionWebhook,
        object: Value,
        to: &str,
    ) -> Result<Value> {
        let converted = self.ask(plane, ty, webhook, vec![object], to, true).await?;
        converted.into_iter().next().ok_or_else(|| Status::internal("nothing was converted"))
    }

    async fn ask(
        &self,
        plane: &PlaneId,
        ty: &ResourceType,
        webhook: &ConversionWebhook,
        objects: Vec<Value>,
        to: &str,
        single: bool,
    ) -> Result<Vec<Value>> {
        let kind = if single { ty.kind.clone() } else { format!("{}List", ty.kind) };
        let of = format!("{}, Kind={kind}", objects.first().map_or("", api_version));
        let failed = |why: String| Status::new(500, "", format!("conversion webhook for {of} {why}"));
        let client = ClientConfig::of(&webhook.config["clientConfig"]);
        let client = client.map_err(|why| failed(format!("failed: {why}")))?;
        let review =
            review::Review::new(&webhook.config, &objects, to).map_err(|why| Status::new(500, "", why))?;
        let answer = match &webhook.home {
            None => self.call(plane, &client, &review, TIMEOUT).await,
            Some(home) if self.stalled.rests(home, &client) => {
                Err("it did not answer in time; it will be asked again in a few seconds".to_owned())
            }
            Some(home) => {
                let since = Instant::now();
                let answer = self.call(home, &client, &review, PROVIDER_TIMEOUT).await;
                let has_stalled = answer.is_err() && since.elapsed() >= PROVIDER_TIMEOUT;
                self.stalled.note(home, &client, has_stalled);
                answer
            }
        };
        let answer = answer.map_err(|why| failed(format!("failed: {why}")))?;
        review.read(&answer, objects, to, single).map_err(failed)
    }

    async fn call(
        &self,
        plane: &PlaneId,
        client: &ClientConfig,
        review: &review::Review,
        timeout: Duration,
    ) -> Result<Bytes, String> {
        let max = review.body.len() * 4 + ROOM;
        let question = Question { body: review.body.clone(), timeout, told: false, max, plugin: None };
        self.webhooks.ask(plane, client, question).await
    }
}
