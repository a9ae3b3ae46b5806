//! Rollouts of an export's schemas: the next stage begins when the one before was observed and is healthy.
//!
//! The server serves the schemas and checks each stage with its write; here is decided when it is tried.

mod decide;

use decide::{Action, Step, after_refusal, decide};
use freehold_api::rollouts::ApiRollout;
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_controllers_context::kinds::{API_EXPORTS, API_ROLLOUTS};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use jiff::Timestamp;
use serde_json::json;

struct Rollouts {
    planes: Planes,
    rollouts: Store<Value>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.planes, Interest::objects(API_ROLLOUTS));
    informer.enqueue_into(&queue);
    let rollouts = context.run_informer(informer);
    context.resync(&rollouts, &queue);
    let controller = Rollouts { planes: context.planes.clone(), rollouts: rollouts.clone() };
    context.control("api-rollout", 4, &queue, &[&rollouts], controller);
}

impl Reconcile for Rollouts {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(object) = self.rollouts.get(&key) else { return Ok(Outcome::Done) };
        let Ok(rollout) = serde_json::from_value::<ApiRollout>(Value::clone(&object)) else {
            return Ok(Outcome::Done);
        };
        let work = Work { client: self.planes.client(&key.plane), object: &object, rollout: &rollout };
        match decide(&rollout, Timestamp::now()) {
            Action::Rest => Ok(Outcome::Done),
            Action::Wait(left) => Ok(Outcome::After(left)),
            Action::Set(step) => work.set(&step).await,
            Action::Advance => work.advance().await,
        }
    }
}

/// One rollout that is worked on.
struct Work<'a> {
    client: Client,
    object: &'a Value,
    rollout: &'a ApiRollout,
}

impl Work<'_> {
    /// Writes a status, unless the object changed meanwhile: then it is looked at again as it is.
    async fn set(&self, step: &Step) -> Reconciled {
        self.write(step).await?;
        Ok(Outcome::Done)
    }

    async fn write(&self, step: &Step) -> Result<(), Error> {
        let before = &self.rollout.status;
        let is_moved =
            before.stage != step.stage || before.phase != step.phase || before.stage_time.is_empty();
        let mut status = json!({
            "phase": step.phase, "stage": step.stage, "reason": step.reason,
            "message": step.message,
            "observedGeneration": self.rollout.metadata.generation,
        });
        if is_moved {
            status["stageTime"] = time::format_seconds(Timestamp::now()).into();
        }
        let patch = json!({
            "metadata": {"resourceVersion": self.object["metadata"]["resourceVersion"]}, "status": status,
        });
        let name = meta::name(self.object);
        self.client.patch(&API_ROLLOUTS, None, name, &Patch::Merge(patch), &PatchOptions::status()).await?;
        Ok(())
    }

    /// Begins the next stage, or gives the export the schemas; what the server refuses is said in the status.
    async fn advance(&self) -> Reconciled {
        let is_last = self.rollout.status.stage as usize >= self.rollout.spec.stages.len();
        let done = match is_last {
            true => self.finish().await,
            false => self.write(&Step::next(self.rollout)).await,
        };
        let why = match done {
            Ok(()) => return Ok(Outcome::Done),
            // Somebody else changed it: that is seen, and looked at.
            Err(error) if error.code() == 409 && !is_last => return Err(error.into()),
            Err(error) if matches!(error.code(), 403 | 404 | 409 | 422) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        match after_refusal(self.rollout, Timestamp::now(), "StageRefused", why) {
            Action::Set(step) => self.set(&step).await,
            Action::Wait(left) => Ok(Outcome::After(left)),
            Action::Rest | Action::Advance => Ok(Outcome::Done),
        }
    }

    async fn finish(&self) -> Result<(), Error> {
        let spec = json!({"spec": {"schemas": self.rollout.spec.schemas}});
        let (export, options) = (&self.rollout.spec.export, PatchOptions::default());
        self.client.patch(&API_EXPORTS, None, export, &Patch::Merge(spec), &options).await?;
        self.write(&Step::complete(self.rollout)).await
    }
}
