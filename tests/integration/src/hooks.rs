//! A webhook server of a test: real TLS on a port of this machine, and answers as good or as bad as the test wants them.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use freehold_pki::Authority;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_rustls::TlsAcceptor;

/// Where it listens: an address that EndpointSlices may have.
pub const ADDRESS: &str = "127.64.0.1";

/// What a webhook server does with a request.
pub enum Reply {
    /// Answers with JSON.
    Json(Value),
    /// Answers with a status code and a text.
    Text(u16, String),
    /// Never answers.
    Hang,
    /// Answers without end.
    Endless,
    /// Answers without end, a byte now and then.
    Slow,
    /// Closes the connection.
    HangUp,
}

/// How often a slow server sends a byte.
const DRIP: Duration = Duration::from_millis(100);

type Handler = dyn Fn(&str, &Value) -> Reply + Send + Sync;

/// A webhook server. Dropping it stops it.
pub struct HookServer {
    address: SocketAddr,
    ca: Authority,
    seen: Arc<Mutex<Vec<Value>>>,
    _runtime: Runtime,
}

impl HookServer {
    /// Starts one that answers as `handler` says of a path and a body. Its certificate is for [`ADDRESS`] and the Service
    /// `hooks` in the namespace `default`.
    pub fn start(handler: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_for(None, handler)
    }

    /// Starts a webhook server; with an authority (PEM), for clients alone that show a certificate of it.
    pub fn start_for(
        clients: Option<&str>,
        handler: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let ca = Authority::generate("webhooks of a test").expect("an authority");
        let names = [ADDRESS, "hooks.default.svc"];
        let pair = ca.issue_server(&names, Duration::from_secs(3600)).expect("a certificate");
        let chain = CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).expect("a key");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = clients.map_or_else(WebPkiClientVerifier::no_client_auth, |pem| {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
            roots.add(root).expect("an authority");
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            builder.build().expect("a verifier")
        });
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.expect("a chain"), key)
            .expect("a key of the certificate");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let listener = runtime.block_on(TcpListener::bind((ADDRESS, 0))).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        runtime.spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), Arc::new(handler), seen.clone()));
        Self { address, ca, seen, _runtime: runtime }
    }

    /// One for admission: what a handler says of an `AdmissionRequest` becomes the `AdmissionReview` of its answer.
    pub fn admission(decide: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::start(move |_, review| {
            let mut response = decide(&review["request"]);
            response["uid"] = review["request"]["uid"].clone();
            Reply::Json(
                json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}),
            )
        })
    }

    /// The `clientConfig` of a path by URL.
    pub fn by_url(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.ca_bundle()})
    }

    /// The `clientConfig` of a path by the Service `hooks` in the namespace `default`.
    pub fn by_service(&self, path: &str) -> Value {
        let service = json!({"name": "hooks", "namespace": "default", "path": path});
        json!({"service": service, "caBundle": self.ca_bundle()})
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// The authority of its certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        self.ca.cert_pem()
    }

    /// A kubeconfig whose server is a path.
    pub fn kubeconfig(&self, path: &str) -> String {
        let cluster = json!({"server": self.url(path), "certificate-authority-data": self.ca_bundle()});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {}}],
        })
        .to_string()
    }

    /// The port that the webhook server listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The bodies that were received, oldest first.
    pub fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(self.ca.cert_pem())
    }
}

/// The answer that lets everything through, changed by some JSON patch operations.
pub fn patching(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(operations.to_string())})
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handler: Arc<Handler>,
    seen: Arc<Mutex<Vec<Value>>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, handler, seen) = (acceptor.clone(), handler.clone(), seen.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request| answer(request, &handler, &seen));
            // A client that goes away is none of the server's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// A body as JSON; as text where it is something else, such as a form.
fn received(body: &Bytes) -> Value {
    let text = || Value::String(String::from_utf8_lossy(body).into_owned());
    if body.is_empty() { Value::Null } else { serde_json::from_slice(body).unwrap_or_else(|_| text()) }
}

async fn answer(
    request: Request<Incoming>,
    handler: &Arc<Handler>,
    seen: &Arc<Mutex<Vec<Value>>>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let body = received(&body);
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(body.clone());
    let whole = |text: String| http_body_util::Full::new(Bytes::from(text)).boxed();
    let (code, body) = match handler(&path, &body) {
        Reply::Json(value) => (200, whole(value.to_string())),
        Reply::Text(code, text) => (code, whole(text)),
        Reply::Hang => std::future::pending().await,
        Reply::HangUp => return Err(std::io::Error::other("hangs up")),
        Reply::Slow => {
            let drips = |()| async {
                tokio::time::sleep(DRIP).await;
                Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
            };
            (200, StreamBody::new(futures_util::stream::unfold((), drips)).boxed())
        }
        Reply::Endless => {
            let spaces = || Some((Ok(Frame::data(Bytes::from_static(&[b' '; 4096]))), ()));
            let stream = futures_util::stream::unfold((), move |()| std::future::ready(spaces()));
            (200, StreamBody::new(stream).boxed())
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(response)
}
