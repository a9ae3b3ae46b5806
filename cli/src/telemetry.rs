//! Export of spans to an OpenTelemetry collector, by OTLP over HTTP with protobuf.
//!
//! It is configured by OpenTelemetry's own variables, or by a file as kube-apiserver has it. Without either nothing is traced.

use crate::store::read;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use freehold_client::{Client, Config, Identity, RawRequest, kubeconfig_as};
use freehold_telemetry::{Finished, Options, Resource, encode, install};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Spans that wait for the exporter at most.
const QUEUE: usize = 8192;
/// Spans of a request to the collector.
const BATCH: usize = 512;
/// How long spans wait for others.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last spans have when the program ends.
const END: Duration = Duration::from_secs(1);
/// Requests of a million, all of which are traced.
const ALL: f64 = 1_000_000.0;

/// The file of `--tracing-config-file`: `apiserver.config.k8s.io`'s `TracingConfiguration`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    /// Here an URL of OTLP over HTTP; `http://` where it has no scheme.
    endpoint: Option<String>,
    sampling_rate_per_million: Option<u32>,
}

/// Where spans go, and which there are.
#[derive(Debug, PartialEq)]
struct Settings {
    /// The whole URL.
    url: String,
    per_million: u32,
    ca_file: Option<String>,
    headers: Vec<(String, String)>,
    attributes: Vec<(String, String)>,
}

/// `KEY=VALUE,KEY=VALUE`, as OpenTelemetry's variables have it.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

/// Requests of a million that OpenTelemetry's sampler takes. Whether a client's own sampling counts is not its to say.
fn per_million(sampler: &str, argument: Option<&str>) -> Result<u32> {
    let ratio = match sampler.strip_prefix("parentbased_").unwrap_or(sampler) {
        "" | "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => {
            let ratio: f64 =
                argument.unwrap_or("1").parse().context("OTEL_TRACES_SAMPLER_ARG is no number")?;
            ensure!((0.0..=1.0).contains(&ratio), "OTEL_TRACES_SAMPLER_ARG is not between 0 and 1");
            ratio
        }
        other => bail!("OTEL_TRACES_SAMPLER {other:?} is not known"),
    };
    // Between 0 and a million.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok((ratio * ALL).round() as u32)
}

impl Settings {
    /// What variables and the file say; `None`: nothing is traced.
    fn read(file: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let mut rate = per_million(
            &variable("OTEL_TRACES_SAMPLER").unwrap_or_default(),
            variable("OTEL_TRACES_SAMPLER_ARG").as_deref(),
        )?;
        let below = |base: &str| format!("{}/v1/traces", base.trim_end_matches('/'));
        let mut url = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| below(&base)));
        if let Some(text) = file {
            let file: File = kubeconfig_as(text)?;
            let known = file.api_version.starts_with("apiserver.config.k8s.io/")
                && file.kind == "TracingConfiguration";
            ensure!(known, "{} {} is no TracingConfiguration", file.api_version, file.kind);
            let endpoint = file.endpoint.unwrap_or_else(|| "localhost:4318".to_owned());
            let endpoint = if endpoint.contains("://") { endpoint } else { format!("http://{endpoint}") };
            url = Some(below(&endpoint));
            rate = file.sampling_rate_per_million.unwrap_or(0);
        }
        let Some(url) = url else { return Ok(None) };
        let mut attributes = vec![("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        attributes.extend(pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()));
        let service = variable("OTEL_SERVICE_NAME");
        if service.is_some() || !attributes.iter().any(|(key, _)| key == "service.name") {
            attributes.retain(|(key, _)| key != "service.name");
            attributes.push(("service.name".to_owned(), service.unwrap_or_else(|| "freehold".to_owned())));
        }
        let headers =
            variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| variable("OTEL_EXPORTER_OTLP_HEADERS"));
        Ok(Some(Self {
            url,
            per_million: rate,
            ca_file: variable("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE")
                .or_else(|| variable("OTEL_EXPORTER_OTLP_CERTIFICATE")),
            headers: pairs(&headers.unwrap_or_default()),
            attributes,
        }))
    }

    fn exporter(self) -> Result<Exporter> {
        let uri: Uri = self.url.parse().with_context(|| format!("the collector's URL {:?}", self.url))?;
        let path = uri.path_and_query().map_or_else(|| "/v1/traces".to_owned(), ToString::to_string);
        let server = format!(
            "{}://{}",
            uri.scheme_str().unwrap_or("http"),
            uri.authority().map(ToString::to_string).unwrap_or_default()
        );
        let ca = self.ca_file.as_deref().map(|file| read(Path::new(file))).transpose()?;
        ensure!(
            ca.is_some() || uri.scheme_str() != Some("https"),
            "a collector by https needs OTEL_EXPORTER_OTLP_CERTIFICATE, the authority of its certificate"
        );
        let mut config = Config::new(server, ca.unwrap_or_default(), Identity::None);
        config.timeout = TIMEOUT;
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name: HeaderName =
                name.parse().with_context(|| format!("header {name:?} of the collector"))?;
            headers.insert(name, HeaderValue::from_str(value).context("a header's value of the collector")?);
        }
        Ok(Exporter {
            client: Client::new(&config)?,
            path,
            headers,
            resource: Resource { attributes: self.attributes },
        })
    }
}

/// Sends spans to a collector.
struct Exporter {
    client: Client,
    path: String,
    headers: HeaderMap,
    resource: Resource,
}

impl Exporter {
    async fn run(self, mut spans: mpsc::Receiver<Finished>, mut end: oneshot::Receiver<()>) {
        let mut batch = Vec::new();
        let mut failing = false;
        let mut is_end = false;
        while !is_end {
            is_end = tokio::select! {
                _ = &mut end => true,
                _ = spans.recv_many(&mut batch, BATCH) => false,
            };
            if !is_end && batch.len() < BATCH {
                is_end = tokio::time::timeout(PAUSE, &mut end).await.is_ok();
            }
            while let Ok(span) = spans.try_recv() {
                batch.push(span);
                if batch.len() >= BATCH {
                    failing = self.send(std::mem::take(&mut batch), failing).await;
                }
            }
            if !batch.is_empty() {
                failing = self.send(std::mem::take(&mut batch), failing).await;
            }
        }
    }

    /// Sends some spans; gives whether that failed. Only the first failure of a row is said.
    async fn send(&self, spans: Vec<Finished>, failing: bool) -> bool {
        let mut request = RawRequest::new(Method::POST, &self.path);
        request.content_type = "application/x-protobuf";
        request.accept = "application/x-protobuf";
        request.headers.clone_from(&self.headers);
        request.body = Bytes::from(encode(&self.resource, spans));
        let why = match self.client.request(&request).await {
            Ok(answer) if answer.status.is_success() => return false,
            Ok(answer) => format!("it answers {}", answer.status),
            Err(error) => error.to_string(),
        };
        if !failing {
            tracing::warn!(error = why, "failed to export spans to the collector; they are dropped");
        }
        true
    }
}

/// OpenTelemetry's variables of dedicated pairs, from those of this program: where spans go, and no rate of their own, so that the
/// core server decides which requests are traced.
pub(crate) fn of_pairs(variable: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    let below = |base: String| format!("{}/v1/traces", base.trim_end_matches('/'));
    let endpoint = given("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        .or_else(|| given("OTEL_EXPORTER_OTLP_ENDPOINT").map(below));
    let Some(endpoint) = endpoint else { return BTreeMap::new() };
    // All of these, since manifests in git name them.
    let rows = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint),
        ("OTEL_RESOURCE_ATTRIBUTES", given("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()),
        ("OTEL_SERVICE_NAME", "freehold-pair".to_owned()),
        ("OTEL_TRACES_SAMPLER", "always_off".to_owned()),
    ];
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The exporter of this program, if there is one.
pub(crate) struct Running(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

/// Starts to export spans, where that is configured.
///
/// # Errors
/// The file or a variable says what can't be used.
pub(crate) fn start(file: Option<&Path>) -> Result<Running> {
    let text = file.map(read).transpose()?;
    let settings = Settings::read(text.as_deref(), |name| std::env::var(name).ok());
    let settings = settings.context("tracing can't be configured")?;
    let Some(settings) = settings else { return Ok(Running(None)) };
    let options = Options { per_million: settings.per_million, queue: QUEUE };
    let exporter = settings.exporter().context("tracing can't be configured")?;
    let Some(spans) = install(options) else { return Ok(Running(None)) };
    let (end, ended) = oneshot::channel();
    Ok(Running(Some((end, tokio::spawn(exporter.run(spans, ended))))))
}

impl Running {
    /// Sends what is left, for a second at most.
    pub(crate) async fn finish(self) {
        let Some((end, task)) = self.0 else { return };
        // An exporter that has ended already has nothing left.
        let _ = end.send(());
        let _ = tokio::time::timeout(END, task).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Settings>> {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Settings::read(file, variable)
    }

    #[test]
    fn nothing_is_traced_without_an_endpoint() {
        assert_eq!(settings(None, &[]).unwrap(), None);
        let disabled = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"), ("OTEL_SDK_DISABLED", "true")];
        assert_eq!(settings(None, &disabled).unwrap(), None);
    }

    #[test]
    fn opentelemetrys_variables_are_understood() {
        let found = settings(
            None,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/"),
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=x, tenant = y"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,zone=1"),
                ("OTEL_SERVICE_NAME", "core"),
            ],
        );
        let found = found.unwrap().unwrap();
        assert_eq!((found.url.as_str(), found.per_million), ("http://a:4318/v1/traces", 250_000));
        assert_eq!(found.headers, [("api-key".into(), "x".into()), ("tenant".into(), "y".into())]);
        assert_eq!(found.attributes.last(), Some(&("service.name".into(), "core".into())));
        assert_eq!(found.attributes.iter().filter(|(key, _)| key == "service.name").count(), 1);
        for (sampler, argument) in [("some", "1"), ("traceidratio", "2"), ("traceidratio", "x")] {
            assert!(
                settings(None, &[("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument)])
                    .is_err()
            );
        }
    }

    #[test]
    fn pairs_export_what_the_core_server_traces() {
        assert_eq!(
            of_pairs(|name| (name == "OTEL_RESOURCE_ATTRIBUTES").then(|| "a=b".to_owned())),
            BTreeMap::new()
        );
        let found = of_pairs(|name| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://a".to_owned()));
        assert_eq!((found.len(), found["OTEL_TRACES_SAMPLER"].as_str()), (4, "always_off"));
        assert_eq!(found["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"], "http://a/v1/traces");
    }

    #[test]
    fn a_file_of_kube_apiserver_is_understood() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
        let found =
            settings(Some(&format!("{head}endpoint: collector:4318\nsamplingRatePerMillion: 100\n")), &[]);
        let found = found.unwrap().unwrap();
        assert_eq!((found.url.as_str(), found.per_million), ("http://collector:4318/v1/traces", 100));
        assert_eq!(settings(Some(head), &[]).unwrap().unwrap().per_million, 0, "as in kube-apiserver");
        for bad in [
            "kind: TracingConfiguration",
            "apiVersion: v1\nkind: TracingConfiguration",
            &format!("{head}rate: 1"),
        ] {
            assert!(settings(Some(bad), &[]).is_err(), "{bad}");
        }
    }
}
