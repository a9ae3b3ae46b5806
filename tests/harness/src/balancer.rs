//! A load balancer: each connection goes to the next server that takes it.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Balances over servers until the test ends.
pub(crate) struct Balancer {
    address: SocketAddr,
}

impl Balancer {
    /// A balancer on a free port; it asks for the servers when it needs them.
    pub(crate) fn start(servers: impl Fn() -> Vec<SocketAddr> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let (servers, next) = (Arc::new(servers), AtomicUsize::new(0));
        // It ends with the process: nobody connects after the test.
        std::thread::spawn(move || {
            for client in listener.incoming().filter_map(Result::ok) {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                let servers = servers.clone();
                std::thread::spawn(move || drop(pass(&client, &servers(), nth)));
            }
        });
        Self { address }
    }

    /// `https://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

fn pass(client: &TcpStream, servers: &[SocketAddr], nth: usize) -> io::Result<()> {
    let order = (0..servers.len()).map(|step| servers[(nth + step) % servers.len()]);
    let connect = |address: SocketAddr| TcpStream::connect_timeout(&address, CONNECT).ok();
    let server = order.into_iter().find_map(connect).ok_or(io::ErrorKind::ConnectionRefused)?;
    for stream in [client, &server] {
        stream.set_nodelay(true)?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| copy(client, &server));
        copy(&server, client);
    });
    Ok(())
}

/// Copies until the end, and then ends both: a connection to a server that died is over for its client, too.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
