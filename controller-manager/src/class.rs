//! Classes: their objects become the layer that their planes stand on.

use crate::plane::{Actions, refusal, set_phase};
use freehold_client::{Client, PatchOptions};
use freehold_controllers_context::kinds::CLASSES;
use freehold_controllers_context::object::{finalizer_patch, items, status_patch};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Map, Value, meta};
use freehold_runtime::{Informer, Interest, Key, Outcome, Queue, Reconciled, Store};

/// Held until planes don't stand on the class' objects any more.
const FINALIZER: &str = "resourcemanager.freehold.dev/class";

struct Classes {
    client: Client,
    actions: Actions,
    classes: Store<Value>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.core, Interest::objects(CLASSES));
    informer.enqueue_into(&queue);
    let classes = context.run_informer(informer);
    context.resync(&classes, &queue);
    let (client, actions) = (context.core.everywhere(), Actions(context.core.root()));
    let waits = classes.clone();
    context.control("class", 2, &queue, &[&waits], Classes { client, actions, classes });
}

impl Reconcile for Classes {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(class) = self.classes.get(&key) else { return Ok(Outcome::Done) };
        let deleting = meta::is_deleting(&class);
        let holds = meta::finalizers(&class).contains(&FINALIZER);
        if deleting && !holds {
            return Ok(Outcome::Done);
        }
        let has = ["/spec/objects", "/spec/bindings"].iter().any(|path| !items(&class, path).is_empty())
            || class["spec"]["objectDeletion"] == "Refused";
        let options = PatchOptions::default();
        if has
            && !deleting
            && let Some(patch) = finalizer_patch(&class, FINALIZER, true)
        {
            // What changed is seen, and the rest done then.
            self.client.patch(&CLASSES, None, &key.name, &patch, &options).await?;
            return Ok(Outcome::Done);
        }
        if !has && !holds {
            return Ok(Outcome::Done);
        }
        let installed = self.actions.install_class(&key.name).await;
        if deleting {
            installed?;
            if let Some(patch) = finalizer_patch(&class, FINALIZER, false) {
                self.client.patch(&CLASSES, None, &key.name, &patch, &options).await?;
            }
            return Ok(Outcome::Done);
        }
        let mut status = class["status"].clone();
        match installed {
            Ok(layer) => {
                status["layer"] = layer.into();
                set_phase(&mut status, &class, "Ready", None);
            }
            Err(error) => set_phase(&mut status, &class, "Failed", Some(&refusal(error)?)),
        }
        status.as_object_mut().map(|status: &mut Map| status.remove("phase"));
        if status != class["status"] {
            self.client
                .patch(&CLASSES, None, &key.name, &status_patch(&status), &PatchOptions::status())
                .await?;
        }
        Ok(Outcome::Done)
    }
}
