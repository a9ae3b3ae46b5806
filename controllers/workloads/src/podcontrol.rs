//! Creating and deleting the pods of a set, with the events that tell of it, each once.

use crate::claims::Pod;
use freehold_client::{Client, DeleteOptions, Error};
use freehold_controllers_context::expectations::Expectations;
use freehold_controllers_context::kinds::PODS;
use freehold_controllers_context::object::{namespace_terminates, unless_gone};
use freehold_controllers_context::pods::PodView;
use freehold_machinery::{Value, meta};
use freehold_runtime::{EventType, Key, Recorder, Store};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Deleted pods that are remembered.
const MAX_DOOMED: usize = 10_000;

/// Creates and deletes pods for one controller.
pub(crate) struct PodControl {
    recorder: Recorder,
    written: Expectations<Key>,
    /// Uids of pods that were deleted and may still show up as there.
    doomed: Mutex<HashSet<String>>,
}

impl PodControl {
    /// A control whose events name `component`.
    pub(crate) fn new(component: &'static str) -> Self {
        let recorder = Recorder::new(component);
        Self { recorder, written: Expectations::default(), doomed: Mutex::default() }
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// What was written for each set.
    pub(crate) fn written(&self) -> &Expectations<Key> {
        &self.written
    }

    /// Whether a store has seen all that was written for a set.
    pub(crate) fn has_seen(&self, key: &Key, pods: &Store<PodView>) -> bool {
        self.written.are_met(key, pods)
    }

    /// Leaves out what was deleted already, and forgets what shows up as such.
    pub(crate) fn not_doomed(&self, pods: Vec<Pod>) -> Vec<Pod> {
        let mut doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        if doomed.len() > MAX_DOOMED {
            doomed.clear();
        }
        let stays = |(_, pod): &Pod| {
            if pod.deleting {
                doomed.remove(&pod.uid);
            }
            !doomed.contains(&pod.uid)
        };
        pods.into_iter().filter(stays).collect()
    }

    /// Creates a pod of a set.
    pub(crate) async fn create(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
        pod: &Value,
    ) -> Result<(), Error> {
        match client.create(&PODS, pod).await {
            Ok(answer) => {
                self.written.expect(key, &answer);
                let message = format!("Created pod: {}", meta::name(&answer));
                self.recorder.event(client, set, EventType::Normal, "SuccessfulCreate", &message).await;
                Ok(())
            }
            Err(error) if namespace_terminates(&error) => Err(error),
            Err(error) => {
                let message = format!("Error creating: {error}");
                self.recorder.event(client, set, EventType::Warning, "FailedCreate", &message).await;
                Err(error)
            }
        }
    }

    /// Deletes a pod of a set by its uid.
    pub(crate) async fn delete(
        &self,
        client: &Client,
        set: &Value,
        pod: Key,
        uid: String,
    ) -> Result<(), Error> {
        let deleted = match client.delete(&PODS, pod.ns(), &pod.name, &DeleteOptions::uid(&uid)).await {
            Ok(_) => Ok(()),
            Err(error) => unless_gone(client, &PODS, (pod.ns(), &pod.name, &uid), error).await,
        };
        match deleted {
            Err(error) => {
                let message = format!("Error deleting: {error}");
                self.recorder.event(client, set, EventType::Warning, "FailedDelete", &message).await;
                Err(error)
            }
            Ok(()) => {
                self.doomed.lock().unwrap_or_else(PoisonError::into_inner).insert(uid);
                let message = format!("Deleted pod: {}", pod.name);
                self.recorder.event(client, set, EventType::Normal, "SuccessfulDelete", &message).await;
                Ok(())
            }
        }
    }
}
