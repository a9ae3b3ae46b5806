//! From a Service to one of its endpoints.

use async_trait::async_trait;
use freehold_machinery::{PlaneId, Value};
use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Where a Service leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To one of its endpoints.
    Endpoint(SocketAddr),
    /// To a name outside of the plane (`ExternalName`).
    External(String, u16),
}

/// Resolves the Services of planes.
#[async_trait]
pub trait Services: Send + Sync + 'static {
    /// An endpoint of a Service's port. Errors are in Kubernetes' words.
    async fn route(&self, plane: &PlaneId, namespace: &str, name: &str, port: u16) -> Result<Route, String>;
}

/// The endpoint of a Service's port, with its EndpointSlices as they are: ready ones take turns. Pods are reached
/// themselves, since nothing of a plane answers at a ClusterIP.
///
/// # Errors
/// In Kubernetes' words: an unknown port, a type that leads nowhere, no endpoint that is ready.
pub fn route(service: &Value, slices: &[Value], port: u16) -> Result<Route, String> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let spec = &service["spec"];
    match spec["type"].as_str().unwrap_or("ClusterIP") {
        "ClusterIP" | "NodePort" | "LoadBalancer" => {}
        "ExternalName" => {
            return Ok(Route::External(spec["externalName"].as_str().unwrap_or_default().to_owned(), port));
        }
        other => return Err(format!("unsupported service type {other:?}")),
    }
    let list = |value: &'_ Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let ports = list(spec, "ports");
    let own = ports.iter().find(|own| own["port"] == port);
    let own = own.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let wanted = own["name"].as_str().unwrap_or_default();
    let mut endpoints = Vec::new();
    for slice in slices {
        let ports = list(slice, "ports");
        let port = ports.iter().find(|port| port["name"].as_str().unwrap_or_default() == wanted);
        let Some(port) = port.and_then(|port| u16::try_from(port["port"].as_u64()?).ok()) else { continue };
        for endpoint in list(slice, "endpoints") {
            let ready = endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
            let address = endpoint["addresses"][0].as_str().and_then(|a| a.parse::<IpAddr>().ok());
            endpoints.extend(address.filter(|_| ready).map(|address| SocketAddr::new(address, port)));
        }
    }
    if endpoints.is_empty() {
        return Err(format!("no endpoints available for service {name:?}"));
    }
    let turn = TURN.fetch_add(1, Ordering::Relaxed) % endpoints.len();
    Ok(Route::Endpoint(endpoints[turn]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_leads_to_a_ready_endpoint_of_the_named_port() {
        let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [
            {"name": "https", "port": 443, "targetPort": 8443}, {"name": "metrics", "port": 9090}]}});
        let slice = json!({
            "ports": [{"name": "metrics", "port": 9999}, {"name": "https", "port": 8443}],
            "endpoints": [
                {"addresses": ["127.64.0.2"], "conditions": {"ready": false}},
                {"addresses": ["127.64.0.3"], "conditions": {"ready": true}},
            ],
        });
        let found = route(&service, std::slice::from_ref(&slice), 443);
        assert_eq!(found, Ok(Route::Endpoint("127.64.0.3:8443".parse().unwrap())));
        assert_eq!(route(&service, &[], 443).unwrap_err(), "no endpoints available for service \"web\"");
        assert_eq!(
            route(&service, &[slice], 80).unwrap_err(),
            "no service port 80 found for service \"web\""
        );
        let external = json!({"metadata": {"name": "web"}, "spec": {"type": "ExternalName", "externalName": "a.example"}});
        assert_eq!(route(&external, &[], 443), Ok(Route::External("a.example".into(), 443)));
    }
}
