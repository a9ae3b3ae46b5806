//! Ports of a Pod, forwarded over SPDY: for each connection a client opens a stream for bytes and one for an error.
//!
//! Only the Pod's own address is dialled. What a program listens to at the machine's 127.0.0.1 can be another's.

use super::spdy::{Frame, Reader, Writer};
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Pieces of a connection that wait for a slow program, and of all connections for a slow client.
const WAITING_PIECES: usize = 64;
/// Bytes that are read from a program at once.
const READ_AT_ONCE: usize = 32 << 10;
/// Streams that a client may have open.
const MAX_STREAMS: usize = 1024;

/// What is sent on a stream, and whether it is the last.
pub(super) type Piece = (u32, Bytes, bool);

/// The streams of one forwarded connection, as far as they are open.
#[derive(Default)]
struct Pair {
    port: Option<u16>,
    error: Option<u32>,
    data: Option<(u32, mpsc::Receiver<Bytes>)>,
}

struct Forwarder {
    address: IpAddr,
    /// By the number that a client gives to a connection.
    pairs: HashMap<String, Pair>,
    /// Where the bytes of a stream go.
    inputs: HashMap<u32, mpsc::Sender<Bytes>>,
    out: mpsc::Sender<Piece>,
    connections: JoinSet<()>,
}

/// Forwards to ports of an address until the client leaves.
pub(crate) async fn serve(connection: impl AsyncRead + AsyncWrite + Send, address: IpAddr) -> io::Result<()> {
    let (from, to) = tokio::io::split(connection);
    let (mut reader, mut writer) = (Reader::new(from), Writer::new(to));
    let (out, mut pieces) = mpsc::channel(WAITING_PIECES);
    let (replies, mut replying) = mpsc::channel(WAITING_PIECES);
    let mut forwarder = Forwarder {
        address,
        pairs: HashMap::new(),
        inputs: HashMap::new(),
        out,
        connections: JoinSet::new(),
    };
    let incoming = async {
        loop {
            let frame = reader.next().await?;
            if let Frame::Close = frame {
                return io::Result::Ok(());
            }
            if let Frame::Open { stream, .. } | Frame::Ping(stream) = frame {
                let is_ping = matches!(frame, Frame::Ping(_));
                replies.send((stream, is_ping)).await.map_err(io::Error::other)?;
            }
            forwarder.take(frame).await?;
        }
    };
    let outgoing = async {
        loop {
            tokio::select! {
                biased;
                Some((number, is_ping)) = replying.recv() => match is_ping {
                    true => writer.ping(number).await?,
                    false => writer.accept(number).await?,
                },
                Some((stream, bytes, fin)) = pieces.recv() => writer.data(stream, &bytes, fin).await?,
                else => return io::Result::Ok(()),
            }
        }
    };
    tokio::select! {
        ended = incoming => ended,
        ended = outgoing => ended,
    }
}

impl Forwarder {
    async fn take(&mut self, frame: Frame) -> io::Result<()> {
        match frame {
            Frame::Open { stream, headers, .. } => self.open(stream, &headers)?,
            Frame::Data { stream, bytes, fin } => {
                if let Some(to) = self.inputs.get(&stream).filter(|_| !bytes.is_empty()) {
                    // The program may have closed the connection.
                    let _ = to.send(bytes).await;
                }
                if fin {
                    self.inputs.remove(&stream);
                }
            }
            Frame::Reset { stream } => drop(self.inputs.remove(&stream)),
            Frame::Ping(_) | Frame::Close => {}
        }
        while self.connections.try_join_next().is_some() {}
        Ok(())
    }

    fn open(&mut self, stream: u32, headers: &[(String, String)]) -> io::Result<()> {
        if self.connections.len() + self.pairs.len() >= MAX_STREAMS {
            return Err(io::Error::other("too many connections are forwarded"));
        }
        let header =
            |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        // Old clients number no connections; a port has one at a time then.
        let number = header("requestid").or_else(|| header("port")).unwrap_or_default().to_owned();
        let pair = self.pairs.entry(number.clone()).or_default();
        pair.port = header("port").and_then(|port| port.parse().ok());
        match header("streamtype") {
            Some("error") => pair.error = Some(stream),
            Some("data") => {
                let (to, input) = mpsc::channel(WAITING_PIECES);
                self.inputs.insert(stream, to);
                pair.data = Some((stream, input));
            }
            _ => return Err(io::Error::other("a stream of an unknown type was opened")),
        }
        if let (Some(port), Some(error), true) = (pair.port, pair.error, pair.data.is_some())
            && let Some((data, input)) = self.pairs.remove(&number).and_then(|pair| pair.data)
        {
            let out = self.out.clone();
            self.connections.spawn(forward((self.address, port), (data, error), input, out));
        }
        Ok(())
    }
}

/// Forwards one connection to its end.
pub(super) async fn forward(
    to: (IpAddr, u16),
    (data, error): (u32, u32),
    input: mpsc::Receiver<Bytes>,
    out: mpsc::Sender<Piece>,
) {
    let why = match TcpStream::connect(to).await {
        Ok(connection) => copy(connection, data, input, &out).await.err(),
        Err(error) => Some(error),
    };
    let text = why.map(|why| format!("error forwarding port {} to {}: {why}", to.1, to.0));
    // The client may have left.
    let _ = out.send((data, Bytes::new(), true)).await;
    let _ = out.send((error, text.map(Bytes::from).unwrap_or_default(), true)).await;
}

async fn copy(
    connection: TcpStream,
    data: u32,
    mut input: mpsc::Receiver<Bytes>,
    out: &mpsc::Sender<Piece>,
) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let (mut from, mut to) = connection.into_split();
    let sending = async {
        while let Some(bytes) = input.recv().await {
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    let receiving = async {
        loop {
            let mut bytes = bytes::BytesMut::with_capacity(READ_AT_ONCE);
            if from.read_buf(&mut bytes).await? == 0 || out.send((data, bytes.freeze(), false)).await.is_err()
            {
                return io::Result::Ok(());
            }
        }
    };
    tokio::pin!(sending);
    tokio::pin!(receiving);
    // A program that has said all may have closed its end of what comes, too.
    tokio::select! {
        received = &mut receiving => received,
        // What could not be sent shows in what is received.
        _ = &mut sending => receiving.await,
    }
}
