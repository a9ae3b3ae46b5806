//! Each namespace has a service account named `default`.

use freehold_controllers_context::kinds::SERVICE_ACCOUNTS;
use freehold_controllers_context::object::{NamespaceView, enqueue_namespaces_of_deleted, stays};
use freehold_controllers_context::{Context, Reconcile};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use serde_json::json;

const NAME: &str = "default";

/// Whether a namespace lacks its service account.
fn decide(namespace: Option<&NamespaceView>, present: bool) -> bool {
    !present && namespace.is_none_or(|n| !n.deleting)
}

struct ServiceAccounts {
    planes: Planes,
    namespaces: Store<NamespaceView>,
    accounts: Store<()>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.namespaces().enqueue_into(&queue);
    let interest =
        Interest::projected(SERVICE_ACCOUNTS, |_| Some(())).fields(format!("metadata.name={NAME}"));
    let mut informer = Informer::new(&context.planes, interest.metadata_only());
    let on_accounts = queue.clone();
    informer.on_change(move |change| {
        if change.new.is_none() {
            on_accounts.add(Key::new(change.key.plane.clone(), "", &change.key.namespace));
        }
    });
    enqueue_namespaces_of_deleted(&mut informer, &queue);
    let accounts = context.run_informer(informer);
    let namespaces = context.namespaces().store();
    context.resync(&namespaces, &queue);
    let (planes, waits, more) = (context.planes.clone(), namespaces.clone(), accounts.clone());
    context.control(
        "service-account",
        4,
        &queue,
        &[&waits, &more],
        ServiceAccounts { planes, namespaces, accounts },
    );
}

impl Reconcile for ServiceAccounts {
    type Key = Key;

    /// The key is the namespace's.
    async fn reconcile(&self, key: Key) -> Reconciled {
        let present = self.accounts.get(&Key::new(key.plane.clone(), &key.name, NAME)).is_some();
        let namespace = self.namespaces.get(&key);
        if !decide(namespace.as_deref(), present) {
            return Ok(Outcome::Done);
        }
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": key.name},
        });
        match self.planes.client(&key.plane).create(&SERVICE_ACCOUNTS, &account).await {
            // It is there already.
            Err(error) if error.code() == 409 => Ok(Outcome::Done),
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
    fn an_account_is_made_where_it_lacks_and_the_namespace_stays() {
        let (stays, goes) = (NamespaceView { deleting: false }, NamespaceView { deleting: true });
        let rows = [
            (Some(&stays), false, true),
            (Some(&stays), true, false),
            (Some(&goes), false, false),
            // A namespace of a plane's base is not in the store.
            (None, false, true),
        ];
        for (namespace, present, wanted) in rows {
            assert_eq!(decide(namespace, present), wanted, "{namespace:?} {present}");
        }
    }
}
