//! What the call of an admission webhook adds to a write: a webhook on the same machine that allows everything.

use crate::goals;
use crate::load;
use crate::objects::{self, CONFIG_MAPS};
use crate::options::Options;
use crate::report::{Report, Value};
use crate::subject::{Kind, Subject};
use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_client::{Client, RawRequest};
use freehold_pki::Authority;
use http::Method;
use rustls::{ServerConfig, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const TITLE: &str = "A webhook that allows everything, on the same machine";
const ADDRESS: &str = "127.0.0.1";
const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const VALIDITY: Duration = Duration::from_secs(24 * 3600);
/// How long a configuration may take to count.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a request's head.
const LONGEST_HEAD: usize = 64 * 1024;

/// Measures one server: creates that nobody is asked about, in turns with creates that the webhook is asked about.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let hook = Hook::start().await?;
    let subject = Subject::start_with(kind, options, &["--outbound-networks", "127.0.0.0/8"])?;
    let plane = subject.plane().await?;
    let [alone, asked] = ["alone", "asked"].map(|name| options.namespace(name));
    for namespace in [&alone, &asked] {
        plane.request(&objects::namespace(namespace)).await?;
    }
    plane.request(&RawRequest::new(Method::POST, PATH).json(&hook.configuration(&asked))).await?;
    hook.wait_until_asked(&plane, &asked).await?;

    let creates = |namespace: &str| -> Vec<_> {
        let create = |n| (plane.clone(), CONFIG_MAPS.create(namespace, &format!("one-{n}")));
        (0..options.requests).map(create).collect()
    };
    let [without, with] = load::in_turns(&subject, [creates(&alone), creates(&asked)]).await?;
    let own = hook.take();
    ensure!(own.len() == with.each.len(), "{} calls for {} creates", own.len(), with.each.len());
    let beyond = with.each.without(&own);
    let spreads = [
        ("create of a ConfigMap, median / p99", &without.each),
        ("the same with the webhook, median / p99", &with.each),
        ("the webhook's own time, median / p99", &own.into_iter().collect()),
    ];
    for (row, samples) in spreads {
        report.add(TITLE, row, kind, Value::spread(samples));
    }
    report.add(TITLE, "server CPU of a create", kind, without.cpu);
    report.add(TITLE, "server CPU of a create with the webhook", kind, with.cpu);
    let added = |with: Duration, without: Duration| Value::Time(with.saturating_sub(without));
    let median = added(beyond.median(), without.each.median());
    let p99 = added(beyond.p99(), without.each.p99());
    report.add(TITLE, "added beyond the webhook's own time, to the median", kind, median);
    report.add(TITLE, "added beyond the webhook's own time, to the p99", kind, p99);
    report.reach(&goals::WEBHOOK, kind, p99);
    Ok(())
}

/// The webhook, and how long it took over each call.
struct Hook {
    address: SocketAddr,
    ca: Authority,
    own: Arc<Mutex<Vec<Duration>>>,
}

impl Hook {
    async fn start() -> Result<Self> {
        let ca = Authority::generate("the webhook of a measurement")?;
        let pair = ca.issue_server(&[ADDRESS], VALIDITY)?;
        let chain =
            CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())?;
        let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let listener = TcpListener::bind((ADDRESS, 0)).await?;
        let (address, own) = (listener.local_addr()?, Arc::<Mutex<Vec<Duration>>>::default());
        let (acceptor, times) = (TlsAcceptor::from(Arc::new(tls)), own.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acceptor.clone(), times.clone()));
            }
        });
        Ok(Self { address, ca, own })
    }

    /// A configuration that asks it about the ConfigMaps of a namespace.
    fn configuration(&self, namespace: &str) -> Json {
        let bundle = STANDARD.encode(self.ca.cert_pem());
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [{
                "name": "allows.bench.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://{}/", self.address), "caBundle": bundle},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            }],
        })
    }

    /// Waits until creates come to it, and forgets those.
    async fn wait_until_asked(&self, plane: &Client, namespace: &str) -> Result<()> {
        let begun = Instant::now();
        for n in 0.. {
            plane.request(&CONFIG_MAPS.create(namespace, &format!("first-{n}"))).await?;
            if !self.take().is_empty() {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "the webhook is not asked");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Answers the requests of a connection, one after the other.
async fn serve(stream: TcpStream, acceptor: TlsAcceptor, own: Arc<Mutex<Vec<Duration>>>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let mut read = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            let more = stream.read_buf(&mut read).await?;
            ensure!(more > 0 && read.len() < LONGEST_HEAD, "no request");
        };
        let lines = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
        let length = lines.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.context("a request without its length")?.trim().parse()?;
        while read.len() < head + length {
            ensure!(stream.read_buf(&mut read).await? > 0, "half a request");
        }
        let begun = Instant::now();
        let review: Json = serde_json::from_slice(&read[head..head + length])?;
        read.drain(..head + length);
        let answer = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": true},
        })
        .to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        own.lock().unwrap_or_else(PoisonError::into_inner).push(begun.elapsed());
        stream.write_all((head + &answer).as_bytes()).await?;
        stream.flush().await?;
    }
}
