//! What a call costs beyond the called server's own time: `cargo run --release -p freehold-apiserver-outbound --example
//! call_cost`. The server is in the same process and answers at once, so that its side is part of the figures.

use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_outbound::{Destination, Host, Limits, Outbound, Route, Services, Trust};
use freehold_machinery::PlaneId;
use freehold_pki::Authority;
use http::HeaderMap;
use rustls::{ServerConfig, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    error::Error,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

const CALLS: usize = 5_000;
const TIME: Duration = Duration::from_secs(10);

struct One(SocketAddr);

#[async_trait]
impl Services for One {
    async fn route(&self, _: &PlaneId, _: &str, _: &str, _: u16) -> Result<Route, String> {
        Ok(Route::Endpoint(self.0))
    }
}

/// CPU time of this process, user and system, in clock ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    field(11) + field(12)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let ca = Authority::generate("cost")?;
    let pair = ca.issue_server(&["hooks.shop.svc"], Duration::from_secs(3600))?;
    let chain = CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut read = vec![0; 64 << 10];
                while matches!(stream.read(&mut read).await, Ok(n) if n > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let outbound = Outbound::new("any".parse()?, Arc::new(One(address)), Limits::default());
    let to = Destination {
        plane: PlaneId::core(),
        host: Host::Service { namespace: "shop".into(), name: "hooks".into(), port: 443 },
        trust: Trust::of_bundle(ca.cert_pem().as_bytes()),
        identity: None,
    };
    let (body, none) = (Bytes::from(vec![b' '; 3000]), HeaderMap::new());
    outbound.call(&to, "/", body.clone(), &none, TIME, 1 << 20).await?;
    let before = ticks();
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begun = Instant::now();
        outbound.call(&to, "/", body.clone(), &none, TIME, 1 << 20).await?;
        times.push(begun.elapsed().as_micros());
    }
    let cpu = (ticks() - before) as f64 * 10_000.0 / CALLS as f64;
    times.sort_unstable();
    let (median, most) = (times[CALLS / 2], times[CALLS * 99 / 100]);
    println!(
        "{cpu:.0} us of CPU a call, both sides; {median} us at the median, {most} us at the 99th percentile"
    );
    Ok(())
}
