//! Services of type LoadBalancer get addresses, through a port: who gives them out is a [`Provider`]. The one that is here
//! gives out addresses of a pool, for nodes that are reached by them without a cloud ([`registry`]).
//!
//! A Service keeps its addresses until it is deleted or has another type
//! (<https://kubernetes.io/docs/concepts/services-networking/service/#loadbalancer>).

mod decide;
mod pool;
mod registry;

use crate::context::Context;
use crate::kinds::SERVICES;
use decide::{FINALIZER, concerns, status};
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_machinery::{Value, meta};
use freehold_runtime::object::finalizer_patch;
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconcile, Reconciled, Recorder,
};
use registry::Registry;
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;

const NAME: &str = "service-lb-controller";
/// How often a Service is tried again that can't be served.
const AGAIN: Duration = Duration::from_secs(60);

/// What becomes of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It may have addresses: it is marked first, so that they are given back whatever happens, and then they are provided.
    Serve,
    /// It gives its addresses back.
    Release,
    /// It can't be served, and is told why.
    Refuse(String),
    /// Nothing: another one serves it, or nobody has to.
    Leave,
}

/// Gives addresses to Services: the port of load balancers. Each method is idempotent.
pub(crate) trait Provider: Send + Sync + 'static {
    /// Says what becomes of a Service, or of what one that is gone has left (`None`). It changes nothing.
    fn judge(&self, key: &Key, service: Option<&Value>) -> Verdict;

    /// Provides a Service that is to be served with addresses, which nobody else has, and returns them.
    fn provide(&self, key: &Key, service: &Value) -> impl Future<Output = Result<Vec<IpAddr>, Error>> + Send;

    /// Takes back every address of a Service but those in `kept`.
    fn release(&self, key: &Key, kept: &[IpAddr]) -> impl Future<Output = Result<(), Error>> + Send;
}

struct Balancer<P> {
    planes: Planes,
    provider: P,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &Context) {
    let queue = Queue::new();
    let interest = Interest::projected(SERVICES, |service| concerns(&service).then_some(()));
    let mut services = Informer::new(&context.planes, interest);
    services.enqueue_into(&queue);
    let known = services.store();
    let registry = Registry::start(context, &queue, &known);
    let services = context.run_informer(services);
    let (leases, pools) = registry.stores();
    let balancer = Balancer {
        planes: context.planes.clone(),
        provider: registry,
        recorder: Recorder::new("service-controller"),
    };
    context.control(NAME, &queue, &[&services, &leases, &pools], balancer);
}

impl<P: Provider> Reconcile for Balancer<P> {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let client = self.planes.client(&key.plane);
        let service = client.get_opt(&SERVICES, key.ns(), &key.name).await?;
        let verdict = self.provider.judge(&key, service.as_ref());
        let Some(service) = service else {
            if verdict == Verdict::Release {
                self.provider.release(&key, &[]).await?;
            }
            return Ok(Outcome::Done);
        };
        match verdict {
            Verdict::Leave => Ok(Outcome::Done),
            Verdict::Refuse(why) => {
                let message = format!("Error syncing load balancer: {why}");
                self.recorder
                    .event(&client, &service, EventType::Warning, "SyncLoadBalancerFailed", &message)
                    .await;
                Ok(Outcome::After(AGAIN))
            }
            Verdict::Release => self.release(&client, &key, service).await,
            Verdict::Serve => self.serve(&client, &key, service).await,
        }
    }
}

impl<P: Provider> Balancer<P> {
    async fn serve(&self, client: &Client, key: &Key, service: Value) -> Reconciled {
        let service = match finalizer_patch(&service, FINALIZER, true) {
            None => service,
            Some(patch) => patched(client, key, &patch, "").await?,
        };
        let addresses = self.provider.provide(key, &service).await?;
        if addresses.is_empty() {
            // The pool changed meanwhile.
            return Ok(Outcome::After(AGAIN));
        }
        let wanted = status(&addresses);
        if service["status"]["loadBalancer"] != wanted {
            set_status(client, key, &service, wanted).await?;
            let message = "Ensured load balancer";
            self.recorder.event(client, &service, EventType::Normal, "EnsuredLoadBalancer", message).await;
        }
        self.provider.release(key, &addresses).await?;
        Ok(Outcome::Done)
    }

    async fn release(&self, client: &Client, key: &Key, service: Value) -> Reconciled {
        let mut service = service;
        if service["status"]["loadBalancer"].as_object().is_some_and(|status| !status.is_empty()) {
            service = set_status(client, key, &service, json!(null)).await?;
        }
        self.provider.release(key, &[]).await?;
        if let Some(patch) = finalizer_patch(&service, FINALIZER, false) {
            patched(client, key, &patch, "").await?;
            let message = "Deleted load balancer";
            self.recorder.event(client, &service, EventType::Normal, "DeletedLoadBalancer", message).await;
        }
        Ok(Outcome::Done)
    }
}

async fn set_status(client: &Client, key: &Key, service: &Value, to: Value) -> Result<Value, Error> {
    let version = meta::resource_version(service);
    let patch = json!({"metadata": {"resourceVersion": version}, "status": {"loadBalancer": to}});
    patched(client, key, &Patch::Merge(patch), "status").await
}

async fn patched(client: &Client, key: &Key, patch: &Patch, subresource: &str) -> Result<Value, Error> {
    let options = PatchOptions { subresource: subresource.to_owned(), ..PatchOptions::default() };
    client.patch(&SERVICES, key.ns(), &key.name, patch, &options).await
}
