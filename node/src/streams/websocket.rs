//! WebSockets (RFC 6455) on the side of a server: messages in, frames out.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Buf as _, Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// What a client's key is hashed with (RFC 6455, 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of the longest message that is read.
const MAX_MESSAGE: usize = 1 << 20;
/// Bytes of the longest control frame (RFC 6455, 5.5).
const MAX_CONTROL: usize = 125;
/// Bytes that are read at once.
const READ_AT_ONCE: usize = 32 << 10;
/// The status code of a connection that ends as it should.
const NORMAL: u16 = 1000;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// What a client sent.
#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    /// A message, whether it was text or bytes.
    Data(Bytes),
    /// A ping, which wants its payload back.
    Ping(Bytes),
    /// The end.
    Close,
}

/// The value of `Sec-WebSocket-Accept` for a client's key.
pub(crate) fn accept(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()))
}

/// Messages from a client.
pub(crate) struct Reader<R> {
    from: R,
    bytes: BytesMut,
    /// The fragments of a message that is not complete.
    message: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, bytes: BytesMut::new(), message: BytesMut::new() }
    }

    /// The next message; `Close` at the end of the connection.
    pub(crate) async fn next(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = parse(&mut self.bytes, &mut self.message)? {
                return Ok(message);
            }
            self.bytes.reserve(READ_AT_ONCE);
            if self.from.read_buf(&mut self.bytes).await? == 0 {
                return Ok(Message::Close);
            }
        }
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed WebSocket frame")
}

/// Takes a message out of what was read, if one is complete.
fn parse(bytes: &mut BytesMut, message: &mut BytesMut) -> io::Result<Option<Message>> {
    while let Some(frame) = frame(bytes)? {
        match frame.opcode {
            PING => return Ok(Some(Message::Ping(frame.payload.freeze()))),
            PONG => {}
            CLOSE => return Ok(Some(Message::Close)),
            CONTINUATION | TEXT | BINARY => {
                if message.len() + frame.payload.len() > MAX_MESSAGE {
                    return Err(malformed());
                }
                if frame.is_last && message.is_empty() {
                    return Ok(Some(Message::Data(frame.payload.freeze())));
                }
                message.extend_from_slice(&frame.payload);
                if frame.is_last {
                    return Ok(Some(Message::Data(message.split().freeze())));
                }
            }
            _ => return Err(malformed()),
        }
    }
    Ok(None)
}

struct Frame {
    opcode: u8,
    is_last: bool,
    payload: BytesMut,
}

fn frame(bytes: &mut BytesMut) -> io::Result<Option<Frame>> {
    let &[first, second, ..] = &bytes[..] else { return Ok(None) };
    let (opcode, is_last, is_control) = (first & 0x0f, first & 0x80 != 0, first & 0x08 != 0);
    // No extension was agreed on, clients mask what they send, and control frames come whole.
    if first & 0x70 != 0 || second & 0x80 == 0 || is_control && !is_last {
        return Err(malformed());
    }
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let head = 2 + extended + 4;
    if bytes.len() < head {
        return Ok(None);
    }
    let length = match extended {
        0 => u64::from(second & 0x7f),
        _ => bytes[2..2 + extended].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    let limit = if is_control { MAX_CONTROL } else { MAX_MESSAGE };
    let length = usize::try_from(length).ok().filter(|length| *length <= limit).ok_or_else(malformed)?;
    if bytes.len() < head + length {
        return Ok(None);
    }
    let mask = [bytes[head - 4], bytes[head - 3], bytes[head - 2], bytes[head - 1]];
    bytes.advance(head);
    let mut payload = bytes.split_to(length);
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Ok(Some(Frame { opcode, is_last, payload }))
}

/// Frames to a client.
pub(crate) struct Writer<W>(pub(crate) W);

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Sends a message of bytes, whose parts are sent one after the other.
    pub(crate) async fn data(&mut self, parts: [&[u8]; 2]) -> io::Result<()> {
        self.frame(BINARY, parts).await
    }

    pub(crate) async fn pong(&mut self, payload: &[u8]) -> io::Result<()> {
        self.frame(PONG, [payload, &[]]).await
    }

    /// Says that this is the end, and why there is none to complain about.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.frame(CLOSE, [&NORMAL.to_be_bytes(), &[]]).await?;
        self.0.shutdown().await
    }

    async fn frame(&mut self, opcode: u8, parts: [&[u8]; 2]) -> io::Result<()> {
        let length = parts[0].len() + parts[1].len();
        let mut frame = Vec::with_capacity(length + 10);
        frame.push(0x80 | opcode);
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short @ 0..=125), _) => frame.push(short),
            (_, Ok(middle)) => {
                frame.push(126);
                frame.extend_from_slice(&middle.to_be_bytes());
            }
            _ => {
                frame.push(127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        self.0.write_all(&frame).await?;
        self.0.flush().await
    }
}

/// Carries bytes in messages: what is written to the other end of `inner` is sent, what comes can be read there. Ends with either.
pub(crate) async fn tunnel(
    socket: impl AsyncRead + AsyncWrite,
    inner: impl AsyncRead + AsyncWrite,
) -> io::Result<()> {
    let (from, to) = tokio::io::split(socket);
    let (mut inner_from, mut inner_to) = tokio::io::split(inner);
    let (mut reader, mut writer) = (Reader::new(from), Writer(to));
    let (pings, mut pinged) = mpsc::channel::<Bytes>(1);
    let incoming = async {
        loop {
            match reader.next().await? {
                Message::Data(bytes) => inner_to.write_all(&bytes).await?,
                // A ping that comes before the last was answered is answered with it.
                Message::Ping(payload) => drop(pings.try_send(payload)),
                Message::Close => return io::Result::Ok(()),
            }
        }
    };
    let outgoing = async {
        let mut bytes = vec![0; READ_AT_ONCE];
        loop {
            tokio::select! {
                Some(payload) = pinged.recv() => writer.pong(&payload).await?,
                count = inner_from.read(&mut bytes) => match count? {
                    0 => return writer.close().await,
                    count => writer.data([&bytes[..count], &[]]).await?,
                },
            }
        }
    };
    tokio::select! {
        ended = incoming => ended,
        ended = outgoing => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        let mut bytes = vec![first, 0x80 | length, 1, 2, 3, 4];
        bytes.extend(payload.iter().zip([1, 2, 3, 4].iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    async fn read(bytes: &[u8]) -> Vec<io::Result<Message>> {
        let mut reader = Reader::new(bytes);
        let mut all = Vec::new();
        loop {
            let next = reader.next().await;
            let is_end = !matches!(next, Ok(Message::Data(_) | Message::Ping(_)));
            all.push(next);
            if is_end {
                return all;
            }
        }
    }

    #[tokio::test]
    async fn messages_come_whole_and_pings_between_their_fragments() {
        let bytes = [
            masked(0x82, b"a"),
            masked(0x02, b"b"),
            masked(0x89, b"p"),
            masked(0x8a, b""),
            masked(0x80, b"c"),
            masked(0x88, b""),
        ]
        .concat();
        let all: Vec<Message> = read(&bytes).await.into_iter().map(Result::unwrap).collect();
        let data = |text: &'static [u8]| Message::Data(Bytes::from_static(text));
        assert_eq!(all, [data(b"a"), Message::Ping(Bytes::from_static(b"p")), data(b"bc"), Message::Close]);
        let cut = &bytes[..bytes.len() - 7];
        assert_eq!(read(cut).await.pop().unwrap().unwrap(), Message::Close, "the connection ended");
    }

    #[tokio::test]
    async fn what_is_no_frame_of_a_client_is_refused() {
        let too_long = [0x82, 0xff, 0, 0, 0, 0, 0x7f, 0, 0, 0, 0, 0, 0, 0];
        let long_ping = [0x89, 0xfe, 1, 0, 0, 0, 0, 0];
        for bytes in [
            &[0x82, 0x01, b'a'][..],
            &[0xc2, 0x80],
            &[0x09, 0x80],
            &[0x83, 0x80, 0, 0, 0, 0],
            &too_long,
            &long_ping,
        ] {
            assert!(read(bytes).await[0].is_err(), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_frame_has_the_shortest_length() {
        for (length, head) in [(125, 2), (126, 4), (0xffff, 4), (0x1_0000, 10)] {
            let mut out = Vec::new();
            Writer(&mut out).data([&[1], &vec![0; length - 1]]).await.unwrap();
            assert_eq!((out.len(), out[0], out[head]), (length + head, 0x82, 1), "{length}");
        }
    }

    #[test]
    fn the_handshake_is_that_of_the_rfc() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
