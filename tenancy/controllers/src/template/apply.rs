//! Writes of an instance: its objects, applied and deleted with the rights of its identity.

use super::render::Kinds;
use super::world::{Watched, World};
use freehold_client::{Client, DeleteOptions, Error, RawRequest, Resource};
use freehold_machinery::{Value, meta};
use freehold_runtime::Key;
use freehold_tenancy_api::template::{ADOPTED_ANNOTATION, INSTANCE_LABEL, KeptObject, ObjectDiff};
use freehold_tenancy_decide::template::{RenderError, Rendered, differences, instance_label, is_applied};
use futures_util::{FutureExt as _, StreamExt as _};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// How many objects of one instance are written at once.
const WRITES: usize = 8;
/// How many objects a dry run tells of.
const SHOWN: usize = 50;

/// What was applied last, by object: a digest of what was wanted, and the revision that came of it.
pub(super) type Memory = HashMap<String, (u64, String)>;

/// An object that is not as it should be.
pub(super) struct Pending<'a> {
    pub(super) rendered: &'a Rendered,
    watched: &'a Watched,
    live: Option<Value>,
}

/// What came of the writes.
#[derive(Default)]
pub(super) struct Outcome {
    /// Objects that existed before and were not the instance's.
    pub(super) adopted: BTreeSet<String>,
    /// Digests and revisions of written objects.
    pub(super) applied: Memory,
    /// What was refused for good.
    pub(super) refused: Option<RenderError>,
    /// What may succeed later.
    pub(super) failed: Option<Error>,
}

/// Identifies an object of an instance.
pub(super) fn id(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    format!("{} {} {}", text("apiVersion"), text("kind"), meta::name(object))
}

pub(super) fn kept_id(kept: &KeptObject) -> String {
    format!("{} {} {}", kept.api_version, kept.kind, kept.name)
}

fn digest(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    hasher.finish()
}

fn watched<'a>(kinds: &'a Kinds, object: &Value) -> Option<&'a Watched> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    kinds.get(&(text("apiVersion"), text("kind")))
}

/// The objects that are not as rendered, by stores and by what was written last.
pub(super) fn pending<'a>(
    world: &World,
    rendered: &'a [Rendered],
    kinds: &'a Kinds,
    memory: &Memory,
) -> Vec<Pending<'a>> {
    let one = |rendered: &'a Rendered| {
        let watched = watched(kinds, &rendered.object)?;
        let key = Key::of(world.plane.clone(), &rendered.object);
        let live = watched.objects.get(&key);
        if let Some((wanted, version)) = memory.get(&id(&rendered.object))
            && *wanted == digest(&rendered.object)
        {
            let is_current = live.as_ref().is_some_and(|live| live.resource_version == *version);
            if is_current || !watched.objects.has_seen(version) {
                return None;
            }
        }
        let live = live.map(|live| live.read());
        let settled = live.as_ref().is_some_and(|live| is_applied(live, &rendered.object));
        (!settled).then_some(Pending { rendered, watched, live })
    };
    rendered.iter().filter_map(one).collect()
}

/// Who applies, and how.
#[derive(Clone, Copy)]
pub(super) struct Applying<'a> {
    /// With the rights of the instance's identity.
    pub(super) client: &'a Client,
    /// With those of the controller, to look at what is there.
    pub(super) own: &'a Client,
    pub(super) manager: &'a str,
    pub(super) force: bool,
}

/// Applies objects.
pub(super) async fn apply(applying: &Applying<'_>, pending: &[Pending<'_>]) -> Outcome {
    let mut outcome = Outcome::default();
    let Applying { client, own, manager, force } = *applying;
    let one = |pending| async move {
        let pending: &Pending<'_> = pending;
        let found = match pending.live {
            Some(_) => Found::Own,
            None => match find(own, pending).await {
                Ok(found) => found,
                Err(error) => return (pending, Found::Nothing, Err(error)),
            },
        };
        let written = match found {
            Found::Foreign if !force => Ok(None),
            _ => write(client, manager, pending, found.outlives(), false)
                .await
                .map(|(_, written)| Some(written)),
        };
        (pending, found, written)
    };
    let writes: Vec<_> = pending.iter().map(|pending| one(pending).boxed()).collect();
    let results: Vec<_> = futures_util::stream::iter(writes).buffer_unordered(WRITES).collect().await;
    for (pending, found, result) in results {
        let object = &pending.rendered.object;
        match result {
            Ok(None) => {
                outcome.refused.get_or_insert(taken(object));
            }
            Ok(Some(_)) if found.outlives() => {
                outcome.adopted.insert(id(object));
            }
            Ok(Some(written)) => {
                outcome
                    .applied
                    .insert(id(object), (digest(object), meta::resource_version(&written).to_owned()));
            }
            Err(error) => outcome.fail(object, error),
        }
    }
    outcome
}

/// What stands under the name of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// An object of the instance.
    Own,
    /// One that the instance took over.
    Adopted,
    /// One of others.
    Foreign,
}

impl Found {
    fn outlives(self) -> bool {
        matches!(self, Self::Adopted | Self::Foreign)
    }
}

/// Looks for an object that the store does not have.
async fn find(own: &Client, pending: &Pending<'_>) -> Result<Found, Error> {
    let object = &pending.rendered.object;
    let resource = &pending.watched.served.resource;
    let live = own.get_opt(resource, Some(meta::namespace(object)), meta::name(object)).await?;
    Ok(match live {
        None => Found::Nothing,
        Some(live) if meta::label(&live, INSTANCE_LABEL) != meta::label(object, INSTANCE_LABEL) => {
            Found::Foreign
        }
        Some(live) if meta::annotation(&live, ADOPTED_ANNOTATION).is_some() => Found::Adopted,
        Some(_) => Found::Own,
    })
}

fn taken(object: &Value) -> RenderError {
    let (kind, name) = (object["kind"].as_str().unwrap_or_default(), meta::name(object));
    let message = format!("{kind} {name} is there and not of this instance; set force to take it over");
    RenderError::new("Exists", message)
}

/// Makes an object outlive its instance.
fn outlive(object: &mut Value) {
    meta::remove(object, "ownerReferences");
    let annotations =
        meta::metadata_mut(object).entry("annotations").or_insert_with(|| serde_json::json!({}));
    annotations[ADOPTED_ANNOTATION] = "true".into();
}

impl Outcome {
    fn fail(&mut self, object: &Value, error: Error) {
        let reason = match error.code() {
            403 => "Forbidden",
            409 => "Conflict",
            400 | 404 | 422 => "Rejected",
            _ => {
                self.failed.get_or_insert(error);
                return;
            }
        };
        let message =
            format!("{} {}: {error}", object["kind"].as_str().unwrap_or_default(), meta::name(object));
        self.refused.get_or_insert(RenderError::new(reason, message));
    }
}

/// One server-side apply. Gives whether the object is new, and what it is now. Fields that others changed are taken back:
/// whether the object itself may be taken was decided before.
async fn write(
    client: &Client,
    manager: &str,
    pending: &Pending<'_>,
    outlives: bool,
    dry_run: bool,
) -> Result<(bool, Value), Error> {
    let mut object = pending.rendered.object.clone();
    if outlives {
        outlive(&mut object);
    }
    let object = &object;
    let resource = &pending.watched.served.resource;
    let path = resource.object_path(Some(meta::namespace(object)), meta::name(object), None);
    let dry = if dry_run { "&dryRun=All" } else { "" };
    let request = RawRequest {
        content_type: "application/apply-patch+yaml",
        ..RawRequest::new(http::Method::PATCH, format!("{path}?fieldManager={manager}&force=true{dry}"))
            .json(object)
    };
    let answer = client.request(&request).await?;
    let written = serde_json::from_slice(&answer.body).map_err(|error| Error::Decode(error.to_string()))?;
    Ok((answer.status.as_u16() == 201, written))
}

/// What applying would change, asked of the server without writing.
pub(super) async fn dry_run(
    applying: &Applying<'_>,
    pending: &[Pending<'_>],
    leaving: &[KeptObject],
) -> Result<Vec<ObjectDiff>, RenderError> {
    let Applying { client, own, manager, force } = *applying;
    let mut diffs = Vec::new();
    for pending in pending {
        let object = &pending.rendered.object;
        if !force && pending.live.is_none() && matches!(find(own, pending).await, Ok(Found::Foreign)) {
            return Err(taken(object));
        }
        match write(client, manager, pending, false, true).await {
            Ok(_) if diffs.len() >= SHOWN => {}
            Ok((created, _)) => {
                let live = pending.live.as_ref();
                diffs.push(ObjectDiff {
                    object: format!("{} {}", object["kind"].as_str().unwrap_or_default(), meta::name(object)),
                    operation: if created { "Create" } else { "Update" }.to_owned(),
                    fields: live.map(|live| differences(live, object)).unwrap_or_default(),
                });
            }
            Err(error) => {
                let mut outcome = Outcome::default();
                outcome.fail(object, error);
                let failed = |error: Error| RenderError::new("Unavailable", error.to_string());
                return Err(outcome
                    .refused
                    .or(outcome.failed.map(failed))
                    .unwrap_or_else(|| RenderError::new("Unavailable", "")));
            }
        }
    }
    let deleted = leaving.iter().filter(|kept| !kept.adopted).map(|kept| ObjectDiff {
        object: format!("{} {}", kept.kind, kept.name),
        operation: "Delete".to_owned(),
        fields: Vec::new(),
    });
    diffs.extend(deleted);
    diffs.truncate(SHOWN);
    Ok(diffs)
}

/// Deletes objects that a template has no more, as far as they are still the instance's.
pub(super) async fn prune(
    world: &World,
    client: &Client,
    leaving: &[KeptObject],
    instance: &Key,
) -> Result<(), super::render::Refusal> {
    for kept in leaving.iter().filter(|kept| !kept.adopted) {
        let Some(watched) =
            world.kind(&kept.api_version, &kept.kind).await.map_err(super::render::Refusal::Again)?
        else {
            continue;
        };
        let resource: &Resource = &watched.served.resource;
        let namespace = Some(kept.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let Some(live) = world.client().get_opt(resource, namespace, &kept.name).await? else { continue };
        let label = instance_label(&instance.namespace, &instance.name, namespace.is_some());
        let is_own = meta::label(&live, INSTANCE_LABEL) == Some(label.as_str());
        let adopted = meta::annotation(&live, ADOPTED_ANNOTATION).is_some();
        if !is_own || adopted || meta::is_deleting(&live) {
            continue;
        }
        match client.delete(resource, namespace, &kept.name, &DeleteOptions::uid(meta::uid(&live))).await {
            Err(error) if error.code() == 403 => {
                return Err(RenderError::new("Forbidden", error.to_string()).into());
            }
            Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Makes objects that existed before the instance outlive it. Gives which they are.
pub(super) fn outlive_adopted(
    world: &World,
    rendered: &mut [Rendered],
    kinds: &Kinds,
    before: &[KeptObject],
) -> BTreeSet<String> {
    let known: BTreeSet<String> = before.iter().filter(|kept| kept.adopted).map(kept_id).collect();
    let mut adopted = BTreeSet::new();
    for rendered in rendered {
        let key = Key::of(world.plane.clone(), &rendered.object);
        let live = watched(kinds, &rendered.object).and_then(|watched| watched.objects.get(&key));
        if known.contains(&id(&rendered.object)) || live.is_some_and(|live| live.adopted) {
            outlive(&mut rendered.object);
            adopted.insert(id(&rendered.object));
        }
    }
    adopted
}

/// The objects that an instance keeps after this: rendered ones, of which some were adopted.
pub(super) fn inventory(rendered: &[Rendered], adopted: &BTreeSet<String>) -> Vec<KeptObject> {
    let mut all: Vec<KeptObject> = rendered
        .iter()
        .map(|rendered| {
            let object = &rendered.object;
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            KeptObject {
                api_version: text("apiVersion"),
                kind: text("kind"),
                namespace: meta::namespace(object).to_owned(),
                name: meta::name(object).to_owned(),
                adopted: adopted.contains(&id(object)),
            }
        })
        .collect();
    all.sort();
    all
}
