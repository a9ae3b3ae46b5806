//! What the cache tells of itself at `/metrics`.

use crate::measured::StoreMetrics;
use freehold_apiserver_cache::Cache;
use freehold_apiserver_registry::AdmissionMetrics;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use std::{
    fmt,
    sync::{Arc, Weak},
};

/// The cache, asked when somebody reads the metrics.
struct Planes(Weak<Cache>);

impl fmt::Debug for Planes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cache")
    }
}

impl Collector for Planes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(state) = self.0.upgrade().map(|cache| cache.state()) else { return Ok(()) };
        let gauges = [
            ("freehold_cache_planes", "Control planes in memory.", state.planes),
            ("freehold_cache_bytes", "Bytes that control planes in memory take, about.", state.bytes),
            ("freehold_cache_budget_bytes", "Bytes that they may take (--cache-memory).", state.budget),
            (
                "freehold_cache_census_bytes",
                "Bytes for knowing which control planes have what, about.",
                state.census,
            ),
        ];
        for (name, help, value) in gauges {
            let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::<i64>::new(value as i64).encode(descriptor)?;
        }
        let counters = [
            ("freehold_cache_loads", "Control planes loaded into memory.", state.loads),
            ("freehold_cache_evictions", "Control planes dropped from memory.", state.evictions),
        ];
        for (name, help, value) in counters {
            let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::<u64>::new(value).encode(descriptor)?;
        }
        Ok(())
    }
}

/// The metrics of what lies behind the edge.
pub(crate) fn registry(cache: &Arc<Cache>, stored: &StoreMetrics, admission: &AdmissionMetrics) -> Registry {
    let mut registry = Registry::default();
    stored.register(&mut registry);
    admission.register(&mut registry);
    registry.register_collector(Box::new(Planes(Arc::downgrade(cache))));
    registry
}
