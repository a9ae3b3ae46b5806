//! Calls to real servers over TLS: well-behaved ones, and those that hang, lie, talk too much or hang up.

#![allow(clippy::unwrap_used, reason = "tests may fail")]

use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_outbound::{
    CallError, Destination, Host, Limits, Networks, Outbound, Route, Services, Trust,
};
use freehold_machinery::PlaneId;
use freehold_pki::{Authority, Pair};
use http::HeaderMap;
use rustls::{ServerConfig, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

const LONG: Duration = Duration::from_secs(60);
const MAX: usize = 1 << 16;

struct One(SocketAddr);

#[async_trait]
impl Services for One {
    async fn route(&self, _: &PlaneId, _: &str, name: &str, _: u16) -> Result<Route, String> {
        match name {
            "hooks" => Ok(Route::Endpoint(self.0)),
            _ => Err(format!("service {name:?} not found")),
        }
    }
}

/// How a server behaves.
#[derive(Clone, Copy)]
enum Way {
    Answers,
    Hangs,
    IsHuge,
    HangsUp,
    BreaksOff,
}

struct World {
    ca: Authority,
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

async fn world(way: Way, pair: impl FnOnce(&Authority) -> Pair) -> World {
    let ca = Authority::generate("test").unwrap();
    let pair = pair(&ca);
    let chain = CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut read = vec![0; 64 << 10];
                while matches!(stream.read(&mut read).await, Ok(n) if n > 0) {
                    let answer: &[u8] = match way {
                        Way::Answers => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
                        Way::Hangs => continue,
                        Way::IsHuge => b"HTTP/1.1 200 OK\r\n\r\n",
                        Way::HangsUp => return,
                        Way::BreaksOff => b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
                    };
                    if stream.write_all(answer).await.is_err() || matches!(way, Way::BreaksOff) {
                        return;
                    }
                    while matches!(way, Way::IsHuge) && stream.write_all(&[b' '; 4096]).await.is_ok() {}
                }
            });
        }
    });
    World { ca, address, connections }
}

fn for_service(ca: &Authority) -> Pair {
    ca.issue_server(&["hooks.shop.svc"], LONG * 60).unwrap()
}

impl World {
    fn outbound(&self, networks: &str, limits: Limits) -> Outbound {
        Outbound::new(networks.parse().unwrap(), Arc::new(One(self.address)), limits)
    }

    fn service(&self, name: &str) -> Destination {
        Destination {
            plane: PlaneId::core(),
            host: Host::Service { namespace: "shop".into(), name: name.into(), port: 443 },
            trust: Trust::of_bundle(self.ca.cert_pem().as_bytes()),
            identity: None,
        }
    }
}

async fn call(outbound: &Outbound, to: &Destination, time: Duration) -> Result<String, CallError> {
    let none = HeaderMap::new();
    let answer = outbound.call(to, "/check?timeout=10s", Bytes::from_static(b"{}"), &none, time, MAX);
    answer.await.map(|answer| format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body)))
}

#[tokio::test]
async fn a_service_answers_and_its_connection_is_used_again() {
    let world = world(Way::Answers, for_service).await;
    let outbound = world.outbound("127.0.0.0/8", Limits::default());
    for _ in 0..5 {
        assert_eq!(call(&outbound, &world.service("hooks"), LONG).await.unwrap(), "200 ok");
    }
    assert_eq!(world.connections.load(Ordering::SeqCst), 1);
    let missing = call(&outbound, &world.service("other"), LONG).await.unwrap_err();
    assert_eq!(missing.to_string(), "service \"other\" not found");
}

#[tokio::test]
async fn what_is_not_public_is_not_connected_to_whatever_a_service_or_a_name_says() {
    let world = world(Way::Answers, for_service).await;
    let outbound = world.outbound("public", Limits::default());
    let mut to = world.service("hooks");
    let refused = call(&outbound, &to, LONG).await.unwrap_err().to_string();
    assert!(refused.contains("in none of the networks"), "{refused}");
    to.host = Host::Url { host: "localhost".into(), port: world.address.port() };
    let refused = call(&outbound, &to, LONG).await.unwrap_err().to_string();
    assert!(refused.contains("in none of the networks"), "{refused}");
    assert_eq!(world.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_certificate_must_be_for_the_name_and_of_the_bundle() {
    let world = world(Way::Answers, |ca| ca.issue_server(&["other.shop.svc"], LONG * 60).unwrap()).await;
    let outbound = world.outbound("any", Limits::default());
    let mut to = world.service("hooks");
    let wrong_name = call(&outbound, &to, LONG).await.unwrap_err().to_string();
    let words = "tls: failed to verify certificate: x509: certificate is valid for other.shop.svc, not hooks.shop.svc";
    assert_eq!(wrong_name, words);
    to.trust = Trust::of_bundle(Authority::generate("another").unwrap().cert_pem().as_bytes());
    let unknown = call(&outbound, &to, LONG).await.unwrap_err().to_string();
    assert_eq!(unknown, "tls: failed to verify certificate: x509: certificate signed by unknown authority");
    to.trust = Trust::Anything;
    assert_eq!(call(&outbound, &to, LONG).await.unwrap(), "200 ok");
}

#[tokio::test]
async fn a_server_that_hangs_costs_its_own_time_and_its_own_places() {
    let hanging = world(Way::Hangs, for_service).await;
    let limits = Limits { per_destination: 1, per_plane: 2 };
    let outbound = Arc::new(hanging.outbound("any", limits));
    let brief = Duration::from_millis(50);
    assert_eq!(call(&outbound, &hanging.service("hooks"), brief).await.unwrap_err(), CallError::Deadline);
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (outbound, to) = (outbound.clone(), hanging.service("hooks"));
            tokio::spawn(async move {
                while call(&outbound, &to, LONG).await == Err(CallError::TooMany) {
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    // Two hold the places of the plane: whoever comes next is refused at once.
    while call(&outbound, &hanging.service("hooks"), brief).await != Err(CallError::TooMany) {
        tokio::task::yield_now().await;
    }
    // Another plane has its own.
    let mut other = hanging.service("hooks");
    other.plane = PlaneId::infra();
    assert_eq!(call(&outbound, &other, brief).await.unwrap_err(), CallError::Deadline);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_answer_without_end_or_without_a_whole_body_is_none() {
    let huge = world(Way::IsHuge, for_service).await;
    let outbound = huge.outbound("any", Limits::default());
    assert_eq!(call(&outbound, &huge.service("hooks"), LONG).await.unwrap_err(), CallError::TooLarge(MAX));
    for (way, words) in [(Way::HangsUp, "EOF"), (Way::BreaksOff, "unexpected EOF")] {
        let world = world(way, for_service).await;
        let outbound = world.outbound("any", Limits::default());
        let failed = call(&outbound, &world.service("hooks"), LONG).await.unwrap_err();
        assert_eq!(failed.to_string(), words);
    }
}

#[tokio::test]
async fn default_networks_are_public_ones() {
    assert_eq!(Networks::default(), "public".parse().unwrap());
}
