//! Where requests are counted: the plane's owner, what its class allows, its flow schemas.

use crate::backend::LocalBackend;
use freehold_apiserver_cache::{Cache, Entry, ListRequest};
use freehold_apiserver_fairness::{Flows, Limits};
use freehold_apiserver_planes::Target;
use freehold_apiserver_server::Footing;
use freehold_machinery::{PlaneId, PlaneMap, Result, Value};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const RESOURCES: [&str; 2] = ["flowschemas", "prioritylevelconfigurations"];
/// Planes with flow schemas of their own that are kept compiled.
const MOST: usize = 1024;
/// Objects that a project is taken to have of a resource where it is asked over many.
const SOME: usize = 50;

/// The last revisions that changed a plane's schemas and levels.
type AsOf = [u64; 2];

/// Flow schemas, compiled: one for all planes that have what they began with, and those of planes that changed them.
#[derive(Default)]
pub(crate) struct KnownFlows {
    shared: Mutex<HashMap<u64, Arc<Flows>>>,
    own: Mutex<PlaneMap<(AsOf, Arc<Flows>)>>,
}

impl KnownFlows {
    async fn of(&self, cache: &Cache, plane: &PlaneId) -> Result<Arc<Flows>> {
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

impl LocalBackend {
    /// Where a request is counted.
    pub(crate) async fn footing_of(&self, target: &Target) -> Result<Option<Footing>> {
        let (plane, organization) = match target {
            Target::Local(plane) => {
                let owner = self.planes.directory().by_plane(plane);
                (plane.clone(), owner.map_or_else(|| "".into(), |info| info.organization.clone()))
            }
            Target::Provider(scope) => {
                let owner = self.planes.directory().by_plane(&scope.plane);
                (scope.plane.clone(), owner.map_or_else(|| "".into(), |info| info.organization.clone()))
            }
            Target::Organization(scope) if scope.exists => (PlaneId::core(), scope.name.clone()),
            Target::Organization(_) => (PlaneId::core(), "".into()),
            Target::User(_) | Target::AllPlanes => (PlaneId::core(), "".into()),
            Target::Dedicated(_) => return Ok(None),
        };
        let limits = self.registry.ledger().limits(&plane).unwrap_or_default();
        let limits = Limits {
            requests_per_second: limits.requests_per_second,
            in_flight: limits.in_flight_requests,
            watches: limits.watches,
        };
        let flows = self.flows.of(self.registry.cache(), &plane).await?;
        Ok(Some(Footing { plane, organization, limits, flows }))
    }

    /// How many objects a request over them looks at, about.
    pub(crate) fn count_of(
        &self,
        target: &Target,
        (group, resource): (&str, &str),
        namespace: Option<&str>,
    ) -> usize {
        let cache = self.registry.cache();
        let of = |plane: &PlaneId| cache.count(plane, group, resource, namespace).unwrap_or(SOME * 100);
        match target {
            Target::Local(plane) => of(plane),
            Target::Organization(scope) => self.planes.directory().of_organization(&scope.name).len() * SOME,
            Target::AllPlanes => self.planes.directory().len() * SOME,
            Target::Provider(scope) => {
                scope.export.as_ref().map_or(0, |export| self.planes.apis().consumers(export).len() * SOME)
            }
            // Of what belongs to others nothing is told, the size neither.
            Target::User(_) => SOME,
            Target::Dedicated(_) => 0,
        }
    }
}
