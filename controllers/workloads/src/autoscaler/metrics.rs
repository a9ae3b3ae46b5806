//! What metrics APIs say: `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`, whoever serves them.

use super::replicas::{Sample, Samples};
use freehold_client::{Client, ListOptions, Resource};
use freehold_controllers_context::discovery::group_version;
use freehold_controllers_context::object::{int, items, text};
use freehold_machinery::{Value, quantity::Quantity, selector::Labels, time};
use jiff::{SignedDuration, Timestamp};
use std::fmt::Write as _;

const POD_METRICS: Resource = Resource::namespaced("metrics.k8s.io", "v1beta1", "pods");
const CUSTOM: &str = "custom.metrics.k8s.io";
/// The window of a custom metric that does not tell one.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// Reads metrics in one namespace.
pub(super) struct Metrics<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

impl Metrics<'_> {
    /// What pods use of a resource, all of their containers or one of them.
    pub(super) async fn resource(
        &self,
        selector: &str,
        resource: &str,
        container: &str,
    ) -> Result<Samples, String> {
        let options = ListOptions { label_selector: selector.to_owned(), ..ListOptions::default() };
        let list = self.client.list_all(&POD_METRICS, Some(self.namespace), &options).await;
        let list = list.map_err(|e| format!("unable to fetch metrics from resource metrics API: {e}"))?.items;
        if list.is_empty() {
            return Err("no metrics returned from resource metrics API".to_owned());
        }
        Ok(list.iter().filter_map(|pod| of_pod(pod, resource, container)).collect())
    }

    /// A custom metric of pods.
    pub(super) async fn pods(
        &self,
        selector: &str,
        metric: &str,
        metric_selector: &str,
    ) -> Result<Samples, String> {
        let list = self.custom(&format!("pods/*/{}", escape(metric)), selector, metric_selector).await?;
        let one = |item: &Value| {
            let window = int(item, "/windowSeconds").map_or(WINDOW, SignedDuration::from_secs);
            let at = time::parse(text(item, "/timestamp")).unwrap_or(Timestamp::UNIX_EPOCH);
            let sample = Sample { value: milli(&item["value"])?, at, window };
            Some((text(item, "/describedObject/name").to_owned(), sample))
        };
        Ok(list.iter().filter_map(one).collect())
    }

    /// A custom metric of one object, in thousandths.
    pub(super) async fn object(
        &self,
        object: &Value,
        metric: &str,
        metric_selector: &str,
    ) -> Result<i64, String> {
        let path = match (text(object, "/kind"), text(object, "/apiVersion")) {
            ("Namespace", "v1") => format!("metrics/{}", escape(metric)),
            (kind, version) => {
                let known = group_version(self.client, version).await;
                let known = known.map_err(|e| format!("unable to find the resource of {kind}: {e}"))?;
                let found = known.into_iter().find(|one| one.kind == kind);
                let resource =
                    found.ok_or_else(|| format!("no resource of {version} is of kind {kind}"))?.resource;
                let group =
                    if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
                format!("{}{group}/{}/{}", resource.plural, escape(text(object, "/name")), escape(metric))
            }
        };
        let list = self.custom(&path, "", metric_selector).await?;
        let value = list.first().and_then(|item| milli(&item["value"]));
        value.ok_or_else(|| "no metrics returned from custom metrics API".to_owned())
    }

    /// The sum of an external metric's values, in thousandths.
    pub(super) async fn external(&self, metric: &str, metric_selector: &str) -> Result<i64, String> {
        let (namespace, metric) = (escape(self.namespace), escape(metric));
        let selector = escape(metric_selector);
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}?labelSelector={selector}"
        );
        let list = self.client.get_path(&path).await;
        let list = list.map_err(|e| format!("unable to fetch metrics from external metrics API: {e}"))?;
        let values = items(&list, "/items").iter().filter_map(|item| milli(&item["value"]));
        let sum = values.reduce(i64::saturating_add);
        sum.ok_or_else(|| "no metrics returned from external metrics API".to_owned())
    }

    async fn custom(&self, path: &str, selector: &str, metric_selector: &str) -> Result<Vec<Value>, String> {
        let failed =
            |e: freehold_client::Error| format!("unable to fetch metrics from custom metrics API: {e}");
        let group = self.client.get_path(&format!("/apis/{CUSTOM}")).await.map_err(failed)?;
        let version = escape(text(&group, "/preferredVersion/version"));
        let (namespace, selector) = (escape(self.namespace), escape(selector));
        let metric_selector = escape(metric_selector);
        let path = format!(
            "/apis/{CUSTOM}/{version}/namespaces/{namespace}/{path}?labelSelector={selector}&metricLabelSelector={metric_selector}"
        );
        let list = self.client.get_path(&path).await.map_err(failed)?;
        match items(&list, "/items") {
            [] => Err("no metrics returned from custom metrics API".to_owned()),
            found => Ok(found.to_vec()),
        }
    }
}

/// The sample of a pod's metrics; `None` where one of its containers has none.
fn of_pod(pod: &Value, resource: &str, container: &str) -> Option<(String, Sample)> {
    let containers = items(pod, "/containers").iter();
    let counted: Vec<&Value> =
        containers.filter(|c| container.is_empty() || text(c, "/name") == container).collect();
    let used: Option<Vec<i64>> = counted.iter().map(|c| milli(&c["usage"][resource])).collect();
    let used = used.filter(|used| !used.is_empty())?;
    let window = text(pod, "/window").parse().unwrap_or(WINDOW);
    let at = time::parse(text(pod, "/timestamp")).unwrap_or(Timestamp::UNIX_EPOCH);
    Some((text(pod, "/metadata/name").to_owned(), Sample { value: used.iter().sum(), at, window }))
}

/// A quantity in thousandths.
pub(super) fn milli(value: &Value) -> Option<i64> {
    let number = value.as_i64().map(|n| n.to_string());
    Some(number.as_deref().or(value.as_str())?.parse::<Quantity>().ok()?.milli())
}

/// A label selector in the words of a query; empty for none.
pub(super) fn selector(value: &Value) -> Result<String, String> {
    if value.is_null() {
        return Ok(String::new());
    }
    Labels::from_value(value).map(|labels| labels.to_string()).map_err(|e| format!("invalid selector: {e:?}"))
}

/// A part of a path or query with everything escaped that could mean something there.
fn escape(part: &str) -> String {
    let mut escaped = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(byte as char);
        } else {
            // Writing to a String can't fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_has_a_sample_when_all_its_containers_have() {
        let pod = |usage: Value| {
            json!({
                "metadata": {"name": "a"}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s",
                "containers": [{"name": "x", "usage": {"cpu": "250m"}}, {"name": "y", "usage": usage}],
            })
        };
        let both = of_pod(&pod(json!({"cpu": "1"})), "cpu", "").unwrap();
        assert_eq!((both.1.value, both.1.window), (1250, SignedDuration::from_secs(30)));
        assert_eq!(of_pod(&pod(json!({})), "cpu", ""), None);
        assert_eq!(of_pod(&pod(json!({})), "cpu", "x").unwrap().1.value, 250);
        assert_eq!(of_pod(&pod(json!({})), "cpu", "other"), None);
    }

    #[test]
    fn selectors_are_escaped() {
        assert_eq!(escape("a=b,c in (d)"), "a%3Db%2Cc%20in%20%28d%29");
        assert_eq!(selector(&json!({"matchLabels": {"a": "b"}})).unwrap(), "a=b");
        assert_eq!(selector(&Value::Null).unwrap(), "");
    }
}
