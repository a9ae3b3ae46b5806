//! A server that stands behind the edge: it echoes requests, speaks upgraded protocols, and has the logs of a node.

use crate::client::Pki;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::json;
use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Starts one that admits clients with a certificate of the front proxies' authority.
pub(crate) async fn start(pki: &Pki) -> SocketAddr {
    let pair =
        pki.servers.issue_server(&["127.0.0.1", crate::client::NAME], Duration::from_secs(3600)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.proxies.cert_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let chain =
        CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades().await;
            });
        }
    });
    address
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.headers().contains_key(header::UPGRADE) {
        return Ok(upgrade(request));
    }
    let target = request.uri().to_string();
    if let Some(path) = target.strip_prefix("/containerLogs/") {
        return Ok(logs(path));
    }
    let (parts, body) = request.into_parts();
    let headers: Vec<String> = parts
        .headers
        .iter()
        .map(|(k, v)| format!("{k}: {}", String::from_utf8_lossy(v.as_bytes())))
        .collect();
    let body = String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes()).into_owned();
    let echo = json!({"method": parts.method.as_str(), "target": target, "headers": headers, "body": body});
    Ok(Response::new(Full::from(echo.to_string())))
}

fn logs(path: &str) -> Response<Full<Bytes>> {
    let (code, text) = match path {
        p if p.contains("/waiting") => {
            (400, "container \"c\" in pod \"waiting\" is waiting to start".to_owned())
        }
        p => (200, format!("log of {p}\n")),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// Agrees to any protocol and then echoes bytes.
fn upgrade(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let protocol = request.headers()[header::UPGRADE].clone();
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgraded.await.unwrap());
        let (mut read, mut write) = tokio::io::split(&mut io);
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::UPGRADE, protocol);
    response.headers_mut().insert(header::CONNECTION, "Upgrade".parse().unwrap());
    response
}
