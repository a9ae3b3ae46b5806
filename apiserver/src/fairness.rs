//! Where requests are counted: the plane's owner, what its class allows, its flow schemas.

use freehold_apiserver_cache::{Cache, Entry, ListRequest};
use freehold_apiserver_fairness::Flows;
use freehold_machinery::{PlaneId, PlaneMap, Result, Value};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const RESOURCES: [&str; 2] = ["flowschemas", "prioritylevelconfigurations"];
/// Planes with flow schemas of their own that are kept compiled.
const MOST: usize = 1024;
/// The last revisions that changed a plane's schemas and levels.
type AsOf = [u64; 2];

/// Flow schemas, compiled: one for all planes that have what they began with, and those of planes that changed them.
#[derive(Default)]
pub(crate) struct KnownFlows {
    shared: Mutex<HashMap<u64, Arc<Flows>>>,
    own: Mutex<PlaneMap<(AsOf, Arc<Flows>)>>,
}

impl KnownFlows {
    pub(crate) async fn of(&self, cache: &Cache, plane: &PlaneId) -> Result<Arc<Flows>> {
        let (at, stack) = cache.changes(plane, GROUP, RESOURCES).await?;
        let known = match at {
            None => self.shared.lock().get(&stack.content()).cloned(),
            Some(at) => {
                self.own.lock().get(plane).filter(|(known, _)| *known == at).map(|(_, flows)| flows.clone())
            }
        };
        if let Some(flows) = known {
            return Ok(flows);
        }
        let Some(at) = at else {
            let flows = compile(RESOURCES.map(|resource| stack.objects(plane, GROUP, resource)));
            let mut shared = self.shared.lock();
            if shared.len() >= MOST {
                shared.clear();
            }
            shared.insert(stack.content(), flows.clone());
            return Ok(flows);
        };
        let flows = compile(Box::pin(read(cache, plane)).await?);
        let mut own = self.own.lock();
        if own.len() >= MOST {
            own.clear();
        }
        own.insert(plane.clone(), (at, flows.clone()));
        Ok(flows)
    }
}

/// What a plane has.
async fn read(cache: &Cache, plane: &PlaneId) -> Result<[Vec<Arc<Entry>>; 2]> {
    let mut objects: [Vec<Arc<Entry>>; 2] = Default::default();
    for (objects, resource) in objects.iter_mut().zip(RESOURCES) {
        let request = ListRequest { plane, group: GROUP, resource, namespace: None };
        *objects = cache.list(request).await?.objects;
    }
    Ok(objects)
}

fn compile(objects: [Vec<Arc<Entry>>; 2]) -> Arc<Flows> {
    let [schemas, levels] = objects.map(|of| of.iter().map(|entry| entry.value()).collect::<Vec<Value>>());
    Arc::new(Flows::of(&schemas, &levels))
}
