//! Where requests are counted, and how large what they look at is.

use crate::local::LocalBackend;
use freehold_apiserver_fairness::Limits;
use freehold_apiserver_planes::Target;
use freehold_apiserver_server::Footing;
use freehold_machinery::{PlaneId, Result};

/// Objects that a project is taken to have of a resource where it is asked over many.
const SOME: usize = 50;

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
