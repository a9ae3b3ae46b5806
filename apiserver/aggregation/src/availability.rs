//! Availability of an aggregated server as far as its Service and EndpointSlices tell. Reasons and messages are
//! kube-aggregator's.

use freehold_machinery::Value;

/// Why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Looks at a Service and its EndpointSlices.
pub(crate) fn judge(
    (namespace, name, port): (&str, &str, u16),
    service: Option<&Value>,
    slices: &[Value],
) -> Result<(), Unavailable> {
    let fail = |reason, message| Err(Unavailable { reason, message });
    let Some(service) = service else {
        return fail("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
    };
    if service["spec"]["type"].as_str().unwrap_or("ClusterIP") != "ClusterIP" {
        return Ok(());
    }
    let ports = service["spec"]["ports"].as_array();
    let Some(own) = ports.into_iter().flatten().find(|own| own["port"] == port) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return fail("ServicePortError", message);
    };
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return fail("EndpointsNotFound", message);
    }
    let port_name = own["name"].as_str().unwrap_or_default();
    if !slices.iter().any(|slice| leads(slice, port_name)) {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return fail("MissingEndpoints", message);
    }
    Ok(())
}

/// Whether a slice has a ready endpoint and the port.
fn leads(slice: &Value, port_name: &str) -> bool {
    let items = |field: &str| slice[field].as_array().into_iter().flatten();
    items("endpoints").any(|e| e["conditions"]["ready"] != false)
        && items("ports")
            .any(|p| p["name"].as_str().unwrap_or_default() == port_name && p["port"].is_number())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reasons_are_those_of_kube_aggregator() {
        let at = ("ns", "web", 443);
        let service = json!({"spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 443}]}});
        let other_port = json!({"spec": {"ports": [{"port": 80}]}});
        let external = json!({"spec": {"type": "ExternalName", "externalName": "a.example"}});
        let slice = |ready: bool, port: &str| json!({"endpoints": [{"conditions": {"ready": ready}}], "ports": [{"name": port, "port": 1}]});
        let reason =
            |service: Option<&Value>, slices: &[Value]| judge(at, service, slices).err().map(|u| u.reason);
        assert_eq!(reason(None, &[]), Some("ServiceNotFound"));
        assert_eq!(reason(Some(&other_port), &[]), Some("ServicePortError"));
        assert_eq!(reason(Some(&service), &[]), Some("EndpointsNotFound"));
        assert_eq!(reason(Some(&service), &[slice(false, "https")]), Some("MissingEndpoints"));
        assert_eq!(reason(Some(&service), &[slice(true, "other")]), Some("MissingEndpoints"));
        assert_eq!(reason(Some(&service), &[slice(true, "https")]), None);
        assert_eq!(reason(Some(&external), &[]), None);
        let message = judge(at, Some(&service), &[slice(false, "https")]).unwrap_err().message;
        assert_eq!(
            message,
            "endpointslices for service/web in \"ns\" have no addresses with port name \"https\""
        );
    }
}
