//! Ports of a Pod, forwarded as channels of a WebSocket (`v4.channel.k8s.io`): the client names the ports in its query, and
//! each has a channel for bytes and one for an error, both of which begin with the port's number.

use super::forward;
use super::websocket::{Message, Reader, Writer};
use bytes::{Buf as _, Bytes};
use std::io;
use std::net::IpAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Ports that a client may name: the numbers of channels are bytes.
pub(crate) const MAX_PORTS: usize = 64;
/// Pieces that wait for a slow program, and for a slow client.
const WAITING_PIECES: usize = 64;

/// Forwards to ports of an address until all their connections have ended or the client leaves.
pub(crate) async fn serve(
    connection: impl AsyncRead + AsyncWrite + Send,
    address: IpAddr,
    ports: &[u16],
) -> io::Result<()> {
    let (from, to) = tokio::io::split(connection);
    let (mut reader, mut writer) = (Reader::new(from), Writer(to));
    let (out, mut pieces) = mpsc::channel(WAITING_PIECES);
    let (pings, mut pinged) = mpsc::channel::<Bytes>(1);
    let mut connections = JoinSet::new();
    let mut inputs = Vec::new();
    for (port, data) in ports.iter().zip((0_u8..).step_by(2)) {
        for channel in [data, data + 1] {
            writer.data([&[channel], &port.to_le_bytes()]).await?;
        }
        let (input, waiting) = mpsc::channel(WAITING_PIECES);
        inputs.push(input);
        let streams = (u32::from(data), u32::from(data) + 1);
        connections.spawn(forward::forward((address, *port), streams, waiting, out.clone()));
    }
    drop(out);
    let incoming = async {
        loop {
            match reader.next().await? {
                Message::Data(mut bytes) => {
                    let channel = bytes.try_get_u8().unwrap_or(u8::MAX);
                    let input = inputs.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0);
                    if let Some(to) = input.filter(|_| !bytes.is_empty()) {
                        // The program may have closed the connection.
                        let _ = to.send(bytes).await;
                    }
                }
                Message::Ping(payload) => drop(pings.try_send(payload)),
                Message::Close => return io::Result::Ok(()),
            }
        }
    };
    let outgoing = async {
        loop {
            tokio::select! {
                Some(payload) = pinged.recv() => writer.pong(&payload).await?,
                piece = pieces.recv() => match piece {
                    Some((_, bytes, _)) if bytes.is_empty() => {}
                    Some((stream, bytes, _)) => writer.data([&[stream as u8], &bytes]).await?,
                    None => return writer.close().await,
                },
            }
        }
    };
    tokio::select! {
        ended = incoming => ended,
        ended = outgoing => ended,
    }
}
