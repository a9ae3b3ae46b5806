//! What stands in for DNS: a proxy that leads each host name to the server under test.
//!
//! Kubernetes' tests hand the server's URL to `kubectl` as a flag, so a project has to be at the root of a real host name.
//! Clients ask the proxy for a connection to it (`CONNECT`, RFC 9110, 9.3.6) where others would ask DNS.

use std::io::{BufRead as _, BufReader, Read as _, Result, Write as _, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::spawn;

/// The longest request head that is read, in bytes.
const HEAD: u64 = 16 * 1024;

/// Starts the proxy; gives its URL. It runs as long as the program.
pub(crate) fn lead_to(server: SocketAddr) -> Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let url = format!("http://{}", listener.local_addr()?);
    spawn(move || {
        for client in listener.incoming().flatten() {
            // A connection that fails is one that its client sees fail.
            spawn(move || relay(client, server));
        }
    });
    Ok(url)
}

fn relay(mut client: TcpStream, server: SocketAddr) -> Result<()> {
    let mut head = BufReader::new(client.try_clone()?.take(HEAD));
    let mut line = String::new();
    while head.read_line(&mut line)? > 0 && line.trim() != "" {
        line.clear();
    }
    let upstream = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut from, mut to) = (client.try_clone()?, upstream.try_clone()?);
    spawn(move || {
        let copied = copy(&mut from, &mut to);
        to.shutdown(Shutdown::Write).and(copied)
    });
    let (mut from, mut to) = (upstream, client);
    let copied = copy(&mut from, &mut to);
    to.shutdown(Shutdown::Write).and(copied.map(drop))
}
