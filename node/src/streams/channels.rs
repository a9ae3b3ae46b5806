//! The streams of `exec` and `attach` on a connection: channels of a WebSocket (`v5.channel.k8s.io`), or streams of SPDY.

use super::remote::{Channel, Client, Remote};
use super::{spdy, websocket};
use bytes::{Buf as _, Bytes};
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use websocket::Message;

/// Pieces that wait on either side.
const WAITING_PIECES: usize = 16;
/// How long a client may take to open its streams.
const OPENING: Duration = Duration::from_secs(30);
/// The channel on which a client of `v5.channel.k8s.io` closes another.
const CLOSE: u8 = 255;

/// The ends of a client's streams, for those who carry them.
struct Ends {
    input: Option<mpsc::Sender<Bytes>>,
    sizes: mpsc::Sender<(u16, u16)>,
    output: mpsc::Receiver<(Channel, Bytes)>,
}

fn streams() -> (Client, Ends) {
    let (type_in, input) = mpsc::channel(WAITING_PIECES);
    let (resize, sizes) = mpsc::channel(1);
    let (show, output) = mpsc::channel(WAITING_PIECES);
    (Client { input, sizes, output: show }, Ends { input: Some(type_in), sizes: resize, output })
}

impl Ends {
    /// Gives on what the client sent.
    async fn take(
        input: &mut Option<mpsc::Sender<Bytes>>,
        sizes: &mpsc::Sender<(u16, u16)>,
        channel: u8,
        bytes: Bytes,
    ) {
        if channel == Channel::Input as u8 {
            if let Some(to) = input.as_ref().filter(|_| !bytes.is_empty())
                && to.send(bytes).await.is_err()
            {
                // Nobody reads it.
                *input = None;
            }
        } else if channel == Channel::Size as u8
            && let Some(size) = size(&bytes)
        {
            // Without a terminal there is nothing to resize.
            let _ = sizes.send(size).await;
        }
    }
}

/// The size of a window: `{"Width":80,"Height":24}`.
fn size(bytes: &[u8]) -> Option<(u16, u16)> {
    let size: Value = serde_json::from_slice(bytes).ok()?;
    let number = |name: &str| u16::try_from(size[name].as_u64()?).ok();
    Some((number("Width")?, number("Height")?))
}

/// Serves a client whose streams are channels of a WebSocket.
pub(crate) async fn serve_websocket(
    connection: impl AsyncRead + AsyncWrite + Send,
    remote: Remote,
) -> io::Result<()> {
    let (from, to) = tokio::io::split(connection);
    let (mut reader, mut writer) = (websocket::Reader::new(from), websocket::Writer(to));
    let (client, Ends { mut input, sizes, mut output }) = streams();
    // A client knows from an empty message that it is connected.
    writer.data([&[if remote.wanted.output { Channel::Output } else { Channel::Status } as u8], &[]]).await?;
    let (pings, mut pinged) = mpsc::channel::<Bytes>(1);
    let incoming = async {
        loop {
            match reader.next().await? {
                Message::Data(mut bytes) => match bytes.try_get_u8() {
                    Ok(CLOSE) if bytes[..] == [Channel::Input as u8] => input = None,
                    Ok(channel) => Ends::take(&mut input, &sizes, channel, bytes).await,
                    Err(_) => {}
                },
                // A ping that comes before the last was answered is answered with it.
                Message::Ping(payload) => drop(pings.try_send(payload)),
                Message::Close => return io::Result::Ok(()),
            }
        }
    };
    let outgoing = async {
        loop {
            tokio::select! {
                Some(payload) = pinged.recv() => writer.pong(&payload).await?,
                shown = output.recv() => match shown {
                    Some((channel, bytes)) => writer.data([&[channel as u8], &bytes]).await?,
                    None => return writer.close().await,
                },
            }
        }
    };
    carry(incoming, outgoing, remote.run(client)).await
}

/// Carries streams until either side ends, and sees the process to its end.
async fn carry(
    incoming: impl Future<Output = io::Result<()>>,
    outgoing: impl Future<Output = io::Result<()>>,
    process: impl Future<Output = ()>,
) -> io::Result<()> {
    let carried = async {
        tokio::select! {
            ended = incoming => ended,
            ended = outgoing => ended,
        }
    };
    // The process learns that the client has left when `carried` has dropped its ends.
    let (ended, ()) = tokio::join!(carried, process);
    ended
}

/// Serves a client whose streams are those of SPDY.
pub(crate) async fn serve_spdy(
    connection: impl AsyncRead + AsyncWrite + Send,
    remote: Remote,
) -> io::Result<()> {
    let (from, to) = tokio::io::split(connection);
    let (mut reader, mut writer) = (spdy::Reader::new(from), spdy::Writer::new(to));
    let wanted = remote.wanted.channels();
    let opening = open(&mut reader, &mut writer, &wanted);
    let opened = tokio::time::timeout(OPENING, opening)
        .await
        .map_err(|_| io::Error::other("no streams were opened"))??;
    let channels: HashMap<u32, Channel> =
        opened.iter().map(|(channel, stream)| (*stream, *channel)).collect();
    let stream = |channel: Channel| opened.iter().find(|(c, _)| *c == channel).map(|(_, stream)| *stream);
    let (client, Ends { mut input, sizes, mut output }) = streams();
    let (pings, mut pinged) = mpsc::channel::<u32>(1);
    let incoming = async {
        loop {
            match reader.next().await? {
                spdy::Frame::Data { stream, bytes, fin } => {
                    let Some(channel) = channels.get(&stream).copied() else { continue };
                    Ends::take(&mut input, &sizes, channel as u8, bytes).await;
                    if fin && channel == Channel::Input {
                        input = None;
                    }
                }
                spdy::Frame::Reset { stream } if channels.get(&stream) == Some(&Channel::Input) => {
                    input = None
                }
                spdy::Frame::Ping(number) => drop(pings.try_send(number)),
                spdy::Frame::Close => return io::Result::Ok(()),
                spdy::Frame::Open { .. } | spdy::Frame::Reset { .. } => {}
            }
        }
    };
    let outgoing = async {
        loop {
            tokio::select! {
                Some(number) = pinged.recv() => writer.ping(number).await?,
                shown = output.recv() => match shown {
                    Some((channel, bytes)) => if let Some(stream) = stream(channel) {
                        writer.data(stream, &bytes, channel == Channel::Status).await?;
                    },
                    None => break,
                },
            }
        }
        for (channel, stream) in &opened {
            if matches!(channel, Channel::Output | Channel::Errors) {
                writer.data(*stream, &[], true).await?;
            }
        }
        writer.close().await
    };
    carry(incoming, outgoing, remote.run(client)).await
}

/// Accepts the streams that a client wants, until all are open.
async fn open<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut spdy::Reader<R>,
    writer: &mut spdy::Writer<W>,
    wanted: &[Channel],
) -> io::Result<Vec<(Channel, u32)>> {
    let mut opened: Vec<(Channel, u32)> = Vec::new();
    while opened.len() < wanted.len() {
        match reader.next().await? {
            spdy::Frame::Open { stream, headers, .. } => {
                let kind =
                    headers.iter().find(|(name, _)| name == "streamtype").map(|(_, value)| value.as_str());
                let channel = match kind {
                    Some("stdin") => Channel::Input,
                    Some("stdout") => Channel::Output,
                    Some("stderr") => Channel::Errors,
                    Some("error") => Channel::Status,
                    Some("resize") => Channel::Size,
                    _ => return Err(io::Error::other("a stream of an unknown type was opened")),
                };
                if !wanted.contains(&channel) || opened.iter().any(|(c, _)| *c == channel) {
                    return Err(io::Error::other("a stream was opened that was not asked for"));
                }
                writer.accept(stream).await?;
                opened.push((channel, stream));
            }
            spdy::Frame::Ping(number) => writer.ping(number).await?,
            spdy::Frame::Close => {
                return Err(io::Error::other("the client left before its streams were open"));
            }
            spdy::Frame::Data { .. } | spdy::Frame::Reset { .. } => {}
        }
    }
    Ok(opened)
}
