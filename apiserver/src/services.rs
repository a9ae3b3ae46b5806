//! Services of planes, resolved from what is in memory.

use async_trait::async_trait;
use freehold_apiserver_cache::{Cache, ListRequest};
use freehold_apiserver_outbound::{Route, Services, route};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{PlaneId, Value};
use std::sync::Arc;

/// The label by which an EndpointSlice belongs to a Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// The cache as Services are looked up in it.
pub(crate) struct CachedServices(pub(crate) Arc<Cache>);

#[async_trait]
impl Services for CachedServices {
    async fn route(&self, plane: &PlaneId, namespace: &str, name: &str, port: u16) -> Result<Route, String> {
        let path = ObjectPath {
            group: String::new(),
            resource: "services".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        };
        let said = |status: freehold_machinery::Status| status.message;
        let service = self.0.get_cached(plane, &path).await.map_err(said)?;
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        let request = ListRequest {
            plane,
            group: "discovery.k8s.io",
            resource: "endpointslices",
            namespace: Some(namespace),
        };
        let slices = self.0.list(request).await.map_err(said)?.objects;
        let own: Vec<Value> = slices
            .iter()
            .filter(|slice| slice.label(SERVICE) == Some(name))
            .map(|slice| slice.value())
            .collect();
        route(&service.value(), &own, port)
    }
}
