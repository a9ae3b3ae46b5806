//! Namespaces that are being deleted: empties them, then lets them go.
//!
//! What a namespace can hold is asked of its plane, so custom types are found as well. Until nothing is left the
//! conditions of the namespace say what is and whose finalizers hold it, in kube-controller-manager's words.

use freehold_client::{Client, DeleteOptions, Error, ListOptions, PatchOptions, Propagation};
use freehold_controllers_context::discovery::{Discovered, discover};
use freehold_controllers_context::kinds::NAMESPACES;
use freehold_controllers_context::object::{NamespaceView, items, status_patch};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{
    Key, Outcome, Planes, Queue, Reconciled, Store,
    conditions::{self, Set},
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The finalizer in `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";
/// Requests for one namespace at once.
const CONCURRENT: usize = 8;

/// What was found in a namespace.
#[derive(Debug, Default)]
struct Contents {
    /// Objects left, by type.
    remaining: BTreeMap<String, usize>,
    /// Finalizers on them, with the number of objects that have each.
    finalizers: BTreeMap<String, usize>,
    /// Types that could not be read.
    undiscovered: Vec<String>,
    /// What could not be deleted, and why.
    failures: Vec<String>,
}

/// What follows from the contents of a namespace.
#[derive(Debug, PartialEq)]
enum Next {
    /// Nothing is left: the finalizer goes.
    Finalize,
    /// Something is left: its conditions (`None`: as they are), and when to look again.
    Wait(Option<Value>, Duration),
}

fn decide(namespace: &Value, contents: &Contents, now: Timestamp) -> Next {
    let clear =
        contents.remaining.is_empty() && contents.failures.is_empty() && contents.undiscovered.is_empty();
    if clear {
        return Next::Finalize;
    }
    let mut status = namespace["status"].clone();
    for condition in describe(contents) {
        let (type_, bad, (reason, good_reason), message, good_message) = condition;
        let (status_text, reason, message) =
            if bad { ("True", reason, message.as_str()) } else { ("False", good_reason, good_message) };
        let set = Set { type_, status: status_text, reason, message, generation: None };
        conditions::set(&mut status["conditions"], set, now);
    }
    let since = freehold_machinery::time::parse(meta::text(namespace, "deletionTimestamp")).unwrap_or(now);
    let wait = (now.duration_since(since).unsigned_abs() / 4)
        .clamp(Duration::from_millis(100), Duration::from_secs(15));
    Next::Wait((status != namespace["status"]).then_some(status), wait)
}

type Described = (&'static str, bool, (&'static str, &'static str), String, &'static str);

/// The conditions: type, whether it is bad news, reasons and messages for both cases.
fn describe(contents: &Contents) -> [Described; 4] {
    let count = |map: &BTreeMap<String, usize>, what: &str| {
        let each: Vec<String> = map.iter().map(|(name, n)| format!("{name} {what} {n}")).collect();
        each.join(", ")
    };
    let remaining = count(&contents.remaining, "has").replace(", ", " resource instances, ");
    [
        (
            "NamespaceDeletionDiscoveryFailure",
            !contents.undiscovered.is_empty(),
            ("DiscoveryFailed", "ResourcesDiscovered"),
            format!("Discovery failed for some groups: {}", contents.undiscovered.join(", ")),
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionContentFailure",
            !contents.failures.is_empty(),
            ("ContentDeletionFailed", "ContentDeleted"),
            format!(
                "Failed to delete all resource types, {} remaining: {}",
                contents.failures.len(),
                contents.failures.join(", ")
            ),
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            !contents.remaining.is_empty(),
            ("SomeResourcesRemain", "ContentRemoved"),
            format!("Some resources are remaining: {remaining} resource instances"),
            "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            !contents.finalizers.is_empty(),
            ("SomeFinalizersRemain", "ContentHasNoFinalizers"),
            format!(
                "Some content in the namespace has finalizers remaining: {}",
                count(&contents.finalizers, "in").replace(", ", " resource instances, ")
                    + " resource instances"
            ),
            "All content-preserving finalizers finished",
        ),
    ]
}

struct Namespaces {
    planes: Planes,
    namespaces: Store<NamespaceView>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let on_namespaces = queue.clone();
    context.namespaces().on_change(move |change| {
        if change.new.as_ref().is_some_and(|n| n.deleting) {
            on_namespaces.add(change.key.clone());
        }
    });
    let namespaces = context.namespaces().store();
    let (planes, waits) = (context.planes.clone(), namespaces.clone());
    context.control("namespace", 10, &queue, &[&waits], Namespaces { planes, namespaces });
}

impl Reconcile for Namespaces {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.namespaces.get(&key).is_some_and(|n| n.deleting) {
            return Ok(Outcome::Done);
        }
        let client = self.planes.client(&key.plane);
        let Some(namespace) = client.get_opt(&NAMESPACES, None, &key.name).await? else {
            return Ok(Outcome::Done);
        };
        let ours = items(&namespace, "/spec/finalizers").iter().any(|f| f == FINALIZER);
        if !meta::is_deleting(&namespace) || !ours {
            return Ok(Outcome::Done);
        }
        let contents = empty(&client, &key.name).await?;
        match decide(&namespace, &contents, Timestamp::now()) {
            Next::Finalize => finalize(&client, namespace).await,
            Next::Wait(status, delay) => {
                if let Some(status) = status {
                    let options = PatchOptions::status();
                    client.patch(&NAMESPACES, None, &key.name, &status_patch(&status), &options).await?;
                }
                Ok(Outcome::After(delay))
            }
        }
    }
}

async fn finalize(client: &Client, mut namespace: Value) -> Reconciled {
    if let Some(list) = namespace.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
        list.retain(|f| f != FINALIZER);
    }
    match client.update_subresource(&NAMESPACES, "finalize", &namespace).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(Outcome::Done),
    }
}

/// Deletes everything in a namespace and tells what is left.
async fn empty(client: &Client, namespace: &str) -> Result<Contents, Error> {
    let discovery = discover(client).await?;
    let types = discovery.types.into_iter().filter(|ty| ty.resource.namespaced && ty.is_deletable());
    let emptied: Vec<_> = stream::iter(types)
        .map(|ty| async move {
            let left = empty_type(client, namespace, &ty).await;
            (ty, left)
        })
        .buffer_unordered(CONCURRENT)
        .collect()
        .await;
    let mut contents = Contents { undiscovered: discovery.failed, ..Contents::default() };
    for (ty, left) in emptied {
        match left {
            Ok(left) => contents.add(&ty, &left),
            Err(error) => contents.failures.push(format!("{}: {error}", ty.resource)),
        }
    }
    Ok(contents)
}

impl Contents {
    fn add(&mut self, ty: &Discovered, left: &[Value]) {
        if left.is_empty() {
            return;
        }
        self.remaining.insert(format!("{}.", ty.resource), left.len());
        for finalizer in left.iter().flat_map(meta::finalizers) {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
}

/// Deletes the objects of a type and gives the metadata of those that are left afterwards.
async fn empty_type(client: &Client, namespace: &str, ty: &Discovered) -> Result<Vec<Value>, Error> {
    let which = ListOptions { metadata_only: true, ..ListOptions::default() };
    let found = list(client, namespace, ty, &which).await?;
    if found.is_empty() {
        return Ok(found);
    }
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    if ty.has("deletecollection") {
        client.delete_collection(&ty.resource, Some(namespace), &options, &ListOptions::default()).await?;
    } else {
        for object in found.iter().filter(|o| !meta::is_deleting(o)) {
            match client.delete(&ty.resource, Some(namespace), meta::name(object), &options).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
    }
    list(client, namespace, ty, &which).await
}

async fn list(
    client: &Client,
    namespace: &str,
    ty: &Discovered,
    which: &ListOptions,
) -> Result<Vec<Value>, Error> {
    match client.list_all(&ty.resource, Some(namespace), which).await {
        Ok(list) => Ok(list.items),
        // A type can go while its objects are deleted, and some can't be listed although they say so.
        Err(error) if matches!(error.code(), 404 | 405) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::Resource;
    use serde_json::json;

    fn deleted_at_zero() -> Value {
        json!({"metadata": {"name": "a", "deletionTimestamp": "1970-01-01T00:00:00Z"}, "status": {"phase": "Terminating"}})
    }

    #[test]
    fn an_empty_namespace_is_finalized() {
        assert_eq!(decide(&deleted_at_zero(), &Contents::default(), Timestamp::UNIX_EPOCH), Next::Finalize);
    }

    #[test]
    fn what_is_left_is_told_by_type_and_finalizer() {
        let mut contents = Contents::default();
        let left = [json!({"metadata": {"finalizers": ["a/b"]}}), json!({"metadata": {}})];
        contents.add(&Discovered::with_all_verbs(Resource::namespaced("", "v1", "pods")), &left);
        let Next::Wait(Some(status), wait) = decide(&deleted_at_zero(), &contents, Timestamp::UNIX_EPOCH)
        else {
            panic!("it must wait")
        };
        assert_eq!(status["phase"], "Terminating");
        let message =
            |type_: &str| conditions::find(&status["conditions"], type_).unwrap()["message"].clone();
        assert_eq!(
            message("NamespaceContentRemaining"),
            "Some resources are remaining: pods. has 2 resource instances"
        );
        assert_eq!(
            message("NamespaceFinalizersRemaining"),
            "Some content in the namespace has finalizers remaining: a/b in 1 resource instances"
        );
        assert!(!conditions::is_true(&status["conditions"], "NamespaceDeletionContentFailure"));
        assert_eq!(wait, Duration::from_millis(100));
    }

    #[test]
    fn a_type_that_cannot_be_read_holds_the_namespace() {
        let contents = Contents { undiscovered: vec!["x/v1".into()], ..Contents::default() };
        let now = Timestamp::from_second(400).unwrap();
        let Next::Wait(Some(status), wait) = decide(&deleted_at_zero(), &contents, now) else {
            panic!("it must wait")
        };
        assert!(conditions::is_true(&status["conditions"], "NamespaceDeletionDiscoveryFailure"));
        assert_eq!(wait, Duration::from_secs(15));
    }
}
