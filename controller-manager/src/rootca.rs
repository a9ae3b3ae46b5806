//! Each namespace has a ConfigMap `kube-root-ca.crt` with the certificates that vouch for the server.

use freehold_client::{Patch, PatchOptions};
use freehold_controllers_context::kinds::CONFIG_MAPS;
use freehold_controllers_context::object::{NamespaceView, enqueue_namespaces_of_deleted, stays, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::Value;
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use serde_json::json;

const NAME: &str = "kube-root-ca.crt";
const ABOUT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such \
                     as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                     distributions of Kubernetes clusters.";

/// What to do about a namespace's ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Create,
    Correct,
}

/// `found`: whether the ConfigMap has the right content; `None` where it is absent.
fn decide(namespace: Option<&NamespaceView>, found: Option<bool>) -> Option<Action> {
    match found {
        Some(true) => None,
        _ if namespace.is_some_and(|n| n.deleting) => None,
        Some(false) => Some(Action::Correct),
        None => Some(Action::Create),
    }
}

struct RootCa {
    planes: Planes,
    namespaces: Store<NamespaceView>,
    /// Whether each has the right content.
    config_maps: Store<bool>,
    ca_pem: String,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.namespaces().enqueue_into(&queue);
    let ca_pem = context.config.ca_pem.clone();
    let wanted = ca_pem.clone();
    let right = move |object: Value| Some(text(&object, "/data/ca.crt") == wanted);
    let interest = Interest::projected(CONFIG_MAPS, right).fields(format!("metadata.name={NAME}"));
    let mut informer = Informer::new(&context.planes, interest);
    let on_config_maps = queue.clone();
    informer.on_change(move |change| {
        if change.new.as_deref() != Some(&true) {
            on_config_maps.add(Key::new(change.key.plane.clone(), "", &change.key.namespace));
        }
    });
    enqueue_namespaces_of_deleted(&mut informer, &queue);
    let config_maps = context.run_informer(informer);
    let namespaces = context.namespaces().store();
    context.resync(&namespaces, &queue);
    let (planes, waits, more) = (context.planes.clone(), namespaces.clone(), config_maps.clone());
    let controller = RootCa { planes, namespaces, config_maps, ca_pem };
    context.control("root-ca", 4, &queue, &[&waits, &more], controller);
}

impl Reconcile for RootCa {
    type Key = Key;

    /// The key is the namespace's.
    async fn reconcile(&self, key: Key) -> Reconciled {
        let found = self.config_maps.get(&Key::new(key.plane.clone(), &key.name, NAME)).map(|right| *right);
        let namespace = self.namespaces.get(&key);
        let Some(action) = decide(namespace.as_deref(), found) else {
            return Ok(Outcome::Done);
        };
        let client = self.planes.client(&key.plane);
        let data = json!({"ca.crt": self.ca_pem});
        let done = match action {
            Action::Create => {
                let object = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                    "metadata": {
                        "name": NAME, "namespace": key.name, "annotations": {"kubernetes.io/description": ABOUT},
                    },
                });
                client.create(&CONFIG_MAPS, &object).await
            }
            Action::Correct => {
                let patch = Patch::Json(json!([{"op": "add", "path": "/data", "value": data}]));
                client.patch(&CONFIG_MAPS, Some(&key.name), NAME, &patch, &PatchOptions::default()).await
            }
        };
        match done {
            // It is there already.
            Err(error) if action == Action::Create && error.code() == 409 => Ok(Outcome::Done),
            // Its namespace (its plane) is gone or going, as far as is known.
            Err(error) if matches!(error.code(), 403 | 404) && !stays(namespace.as_deref()) => {
                Ok(Outcome::Done)
            }
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Outcome::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_or_wrong_bundle_is_put_right_while_the_namespace_stays() {
        let (stays, goes) = (NamespaceView { deleting: false }, NamespaceView { deleting: true });
        let rows = [
            (Some(&stays), None, Some(Action::Create)),
            (Some(&stays), Some(false), Some(Action::Correct)),
            (Some(&stays), Some(true), None),
            (Some(&goes), None, None),
            (None, None, Some(Action::Create)),
        ];
        for (namespace, found, action) in rows {
            assert_eq!(decide(namespace, found), action, "{namespace:?} {found:?}");
        }
    }
}
