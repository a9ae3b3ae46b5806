use super::*;
use crate::tls;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use std::{future::poll_fn, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

/// Both ends of a connection whose pipe holds so many bytes.
async fn pair(holds: usize) -> (TlsStream<DuplexStream>, client::TlsStream<DuplexStream>) {
    let authority = freehold_pki::Authority::generate("test").unwrap();
    let leaf = authority.issue_server(&["localhost"], Duration::from_secs(3600)).unwrap();
    let certificate = tls::Certificate::from_pem(leaf.cert_pem.as_bytes(), leaf.key_pem.as_bytes()).unwrap();
    let config = tls::server_config(certificate, &[authority.cert_pem()], false).unwrap();
    let mut roots = RootCertStore::empty();
    for der in freehold_pki::certificates_der(authority.cert_pem()).unwrap() {
        roots.add(CertificateDer::from(der)).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let (near, far) = duplex(holds);
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(client));
    let (near, far) =
        tokio::join!(TlsAcceptor::from(Arc::new(config)).accept(near), connector.connect(name, far));
    (near.unwrap(), far.unwrap())
}

/// Polls as a connection's task does: the work, then the end of the turn.
async fn driven<T>(turns: &mut Turns<DuplexStream>, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    poll_fn(|cx| {
        turns.begin();
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => match turns.poll_end(cx) {
                Poll::Ready(failed) => panic!("{failed:?}"),
                Poll::Pending => Poll::Pending,
            },
        }
    })
    .await
}

/// Sends everything that was gathered, in turns without work.
async fn rest(turns: &mut Turns<DuplexStream>) {
    while !is_empty(turns) {
        driven(turns, tokio::task::yield_now()).await;
    }
}

fn is_empty(turns: &Turns<DuplexStream>) -> bool {
    let gathered = turns.0.lock();
    gathered.plain.is_empty() && gathered.sealed == 0
}

#[tokio::test]
async fn what_is_written_arrives_in_order_and_whole() {
    let (near, mut far) = pair(1000).await;
    let sent: Vec<u8> = (0..300_000).map(|i| (i % 251) as u8).collect();
    let expected = sent.clone();
    let write = tokio::spawn(async move {
        let (mut stream, mut turns) = gather(near);
        let write = async {
            // Parts smaller and larger than a record, one by one and together.
            for (index, part) in sent.chunks(47_001).enumerate() {
                let (small, large) = part.split_at(part.len().min(1 + index * 1_003));
                let mut slices = [IoSlice::new(small), IoSlice::new(large)];
                let mut slices = &mut slices[..];
                while slices.iter().any(|slice| !slice.is_empty()) {
                    let written = stream.write_vectored(slices).await.unwrap();
                    IoSlice::advance_slices(&mut slices, written);
                }
                stream.flush().await.unwrap();
            }
            stream.shutdown().await.unwrap();
        };
        driven(&mut turns, write).await;
        assert!(is_empty(&turns) && turns.0.lock().plain.capacity() == 0);
    });
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    write.await.unwrap();
    assert!(got == expected);
}

#[tokio::test]
async fn what_was_written_goes_out_after_those_who_are_ready_ran() {
    let (near, mut far) = pair(1000).await;
    let (mut stream, mut turns) = gather(near);
    let ran = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let other = ran.clone();
    stream.write_all(b"first").await.unwrap();
    stream.flush().await.unwrap();
    assert!(!is_empty(&turns), "a flush alone sends nothing");
    tokio::spawn(async move { other.store(true, std::sync::atomic::Ordering::SeqCst) });
    rest(&mut turns).await;
    assert!(ran.load(std::sync::atomic::Ordering::SeqCst));
    let mut got = [0; 5];
    far.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"first");
}

#[tokio::test]
async fn without_turns_a_flush_sends() {
    let (near, mut far) = pair(1000).await;
    let (mut stream, turns) = gather(near);
    drop(turns);
    stream.write_all(b"first").await.unwrap();
    stream.flush().await.unwrap();
    let mut got = [0; 5];
    far.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"first");
}

#[tokio::test]
async fn a_turn_takes_no_more_than_its_share_and_goes_on_by_itself() {
    let (near, mut far) = pair(8 * TURN).await;
    let (mut stream, mut turns) = gather(near);
    let sent = vec![7; 3 * TURN];
    let most = sent.len();
    let mut taken = Vec::new();
    let write = async {
        let mut left = &sent[..];
        poll_fn(|cx| {
            let before = left.len();
            while !left.is_empty() {
                match Pin::new(&mut stream).poll_write(cx, left) {
                    Poll::Ready(written) => left = &left[written.unwrap()..],
                    Poll::Pending => break,
                }
            }
            taken.push(before - left.len());
            if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await.unwrap();
    };
    driven(&mut turns, write).await;
    assert!(taken.len() >= 3 && taken.iter().all(|n| *n < TURN + FULL), "{taken:?}");
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got.len(), most);
}
