//! Documents about a server's process, for administrators: `/debug/server` and `/debug/planes`.
//!
//! They hold no secret: of certificates the names and the dates, of planes how much memory they take. What they cost is
//! paid by whoever reads them. When certificates expire is also at `/metrics`.

use freehold_apiserver_cache::{Cache, Resident};
use freehold_apiserver_planes::Planes;
use freehold_apiserver_server::DebugDocuments;
use freehold_machinery::{Value, time::format_seconds};
use freehold_pki::{CertificateInfo, certificates_der};
use jiff::Timestamp;
use parking_lot::RwLock;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};
use serde_json::json;
use std::{collections::BTreeMap, fmt, fs, sync::Arc};

/// Planes that are listed: those that take most memory.
const MOST_PLANES: usize = 200;
/// Certificates that are listed of one use.
const MOST_CERTIFICATES: usize = 32;

/// The certificates of one use.
struct Used {
    shown: Vec<Value>,
    /// When the use ends, in seconds since 1970.
    expires: Option<i64>,
}

/// The certificates that a process works with, by what for.
#[derive(Clone, Default)]
pub(crate) struct KnownCertificates(Arc<RwLock<BTreeMap<&'static str, Used>>>);

impl KnownCertificates {
    /// Takes the certificates of a PEM text in place of those that had the use before.
    pub(crate) fn set(&self, what: &'static str, pem: &str) {
        let ders = certificates_der(pem).unwrap_or_default();
        let infos: Vec<_> = ders.iter().filter_map(|der| CertificateInfo::parse(der).ok()).collect();
        let date = |seconds| Timestamp::from_second(seconds).map(format_seconds).ok();
        let shown = infos.iter().take(MOST_CERTIFICATES).map(|info| {
            json!({
                "use": what,
                "name": info.common_name,
                "authority": info.is_ca,
                "notBefore": date(info.not_before),
                "notAfter": date(info.not_after),
            })
        });
        let used = Used { shown: shown.collect(), expires: end_of_use(&infos) };
        self.0.write().insert(what, used);
    }

    /// Shows when each use ends at `/metrics`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    fn all(&self) -> Vec<Value> {
        self.0.read().values().flat_map(|used| used.shown.iter().cloned()).collect()
    }
}

/// When the certificates of one use no longer serve: with the first of a chain, and with the last authority of a bundle, in
/// which former ones stay for a while.
fn end_of_use(infos: &[CertificateInfo]) -> Option<i64> {
    let expiry = |of_authorities: bool| {
        infos.iter().filter(move |info| info.is_ca == of_authorities).map(|info| info.not_after)
    };
    expiry(false).min().or_else(|| expiry(true).max())
}

impl fmt::Debug for KnownCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("certificates of the server")
    }
}

impl Collector for KnownCertificates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "When the certificates of each use expire, in seconds since 1970.";
        let name = "freehold_certificate_expiration_timestamp_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (what, used) in self.0.read().iter() {
            let Some(expires) = used.expires else { continue };
            ConstGauge::<i64>::new(expires).encode(metric.encode_family(&[("use", *what)])?)?;
        }
        Ok(())
    }
}

/// What is told of a process.
pub(crate) struct Process {
    pub(crate) cache: Arc<Cache>,
    pub(crate) planes: Arc<Planes>,
    pub(crate) certificates: KnownCertificates,
    pub(crate) version: String,
    pub(crate) store: &'static str,
    pub(crate) started: Timestamp,
}

impl Process {
    /// The documents by their names.
    pub(crate) fn documents(self) -> DebugDocuments {
        Arc::new(move |name| match name {
            "server" => Some(self.server()),
            "planes" => Some(self.resident()),
            _ => None,
        })
    }

    fn server(&self) -> Value {
        let state = self.cache.state();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        json!({
            "host": host.trim(),
            "process": std::process::id(),
            "processors": std::thread::available_parallelism().map_or(1, usize::from),
            "version": self.version,
            "store": self.store,
            "startTime": format_seconds(self.started),
            "certificates": self.certificates.all(),
            "cache": {
                "planes": state.planes,
                "bytes": state.bytes,
                "budgetBytes": state.budget,
                "censusBytes": state.census,
                "loads": state.loads,
                "evictions": state.evictions,
            },
        })
    }

    fn resident(&self) -> Value {
        let (all, largest) = self.cache.residents(MOST_PLANES);
        let shown = |Resident { plane, bytes, idle, is_pinned }: Resident| {
            json!({
                "plane": plane.as_str(),
                "project": self.planes.directory().by_plane(&plane).map(|project| project.name.to_string()),
                "bytes": bytes,
                "idleSeconds": idle.as_secs(),
                "inUse": is_pinned,
            })
        };
        json!({"planes": all, "items": largest.into_iter().map(shown).collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_tell_when_a_use_ends() {
        let info = |is_ca, not_after| CertificateInfo { is_ca, not_after, ..CertificateInfo::default() };
        let rows = [
            (vec![info(false, 5), info(true, 3)], Some(5)),
            (vec![info(true, 3), info(true, 9)], Some(9)),
            (vec![info(false, 8), info(false, 7)], Some(7)),
            (vec![], None),
        ];
        for (infos, expected) in rows {
            assert_eq!(end_of_use(&infos), expected, "{infos:?}");
        }
        let (known, mut registry) = (KnownCertificates::default(), Registry::default());
        known.register(&mut registry);
        known.set("serving", freehold_pki::Authority::generate("example").unwrap().cert_pem());
        known.set("nothing", "no certificate");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = "freehold_certificate_expiration_timestamp_seconds{use=\"serving\"} 2";
        assert!(text.contains(line) && !text.contains("nothing"), "{text}");
    }

    #[test]
    fn a_certificate_that_is_replaced_is_listed_once_and_without_its_key() {
        let known = KnownCertificates::default();
        let authority = freehold_pki::Authority::generate("example").unwrap();
        for _ in 0..2 {
            known.set("authority", authority.cert_pem());
        }
        known.set("nothing", "no certificate");
        let all = known.all();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!((&all[0]["name"], &all[0]["authority"]), (&json!("example"), &json!(true)));
        assert!(all[0]["notAfter"].as_str().is_some_and(|date| date.ends_with('Z')));
    }
}
