//! WebSockets (RFC 6455), as far as watches need them: the server sends messages, and clients say that they are there or
//! that they leave. What else they send is read and forgotten, without being kept.
//!
//! Browsers and some libraries watch in this way. They can't send headers, so a token may come as a subprotocol.

use crate::respond::{self, Reply};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use bytes::{Buf, Bytes, BytesMut};
use freehold_apiserver_transport::payload::Payload;
use freehold_machinery::Status;
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use std::{io, pin::pin, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    time::timeout,
};

/// What the client's key is hashed with (RFC 6455, 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// What stands before a token that comes as a subprotocol, as Kubernetes has it.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
/// Longest payload of a control frame, in bytes (RFC 6455, 5.5).
const CONTROL: u64 = 125;
/// Messages that are written before the connection is flushed, where that many are ready.
const TOGETHER: usize = 64;
/// How long a client may take to read the last frame.
const CLOSING: Duration = Duration::from_secs(5);

/// All was said, or the client leaves.
const NORMAL: u16 = 1000;
/// The client did not keep to the protocol.
const PROTOCOL_ERROR: u16 = 1002;

/// What a message has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Text in UTF-8.
    Text = 0x1,
    /// Bytes.
    Binary = 0x2,
}

const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    crate::proxy::wants_upgrade(headers) && text(headers, header::UPGRADE).eq_ignore_ascii_case("websocket")
}

fn protocols(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    texts.map(|protocol| protocol.trim().to_owned()).filter(|protocol| !protocol.is_empty()).collect()
}

/// Makes a token that came as a subprotocol the request's authorization, where it has none. 401 for one that can't be
/// read, that comes twice, or that no other subprotocol comes with: one of them has to be answered.
pub(crate) fn take_token(headers: &mut HeaderMap) -> Result<(), Status> {
    if !is_asked(headers) || headers.contains_key(header::AUTHORIZATION) {
        return Ok(());
    }
    let (tokens, others): (Vec<String>, Vec<String>) =
        protocols(headers).into_iter().partition(|protocol| protocol.starts_with(TOKEN));
    let token = match tokens.as_slice() {
        [] => return Ok(()),
        [token] if !others.is_empty() => token.trim_start_matches(TOKEN),
        _ => return Err(Status::unauthorized()),
    };
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| Status::unauthorized())?;
    let value = HeaderValue::from_bytes(&[b"Bearer ", bytes.as_slice()].concat());
    headers.insert(header::AUTHORIZATION, value.map_err(|_| Status::unauthorized())?);
    let others = HeaderValue::from_str(&others.join(",")).map_err(|_| Status::unauthorized())?;
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, others);
    Ok(())
}

/// Answers the opening handshake: 101, or what kube-apiserver refuses it with.
pub(crate) fn handshake(headers: &HeaderMap) -> Reply {
    let key = text(headers, header::SEC_WEBSOCKET_KEY);
    let protocols = protocols(headers);
    if key.is_empty() {
        return respond::text(400, "mismatch challenge/response");
    }
    if text(headers, header::SEC_WEBSOCKET_VERSION) != "13" {
        let mut reply = respond::text(400, "missing or bad WebSocket Version");
        reply.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return reply;
    }
    // Browsers always say where they come from; who doesn't is asked to, as kube-apiserver asks.
    if text(headers, header::ORIGIN).parse::<Uri>().is_err() {
        return respond::text(403, "");
    }
    let protocol = match protocols.as_slice() {
        [] => None,
        [one] => HeaderValue::from_str(one).ok(),
        _ => return respond::text(400, ""),
    };
    let mut reply = Response::new(Payload::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = reply.headers_mut();
    answered.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(&accept(key)) {
        answered.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = protocol {
        answered.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    reply
}

/// What proves that the handshake was understood (RFC 6455, 4.2.2).
fn accept(key: &str) -> String {
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()))
}

/// Sends messages until there are no more or the client leaves, and closes the connection.
pub(crate) async fn send<S>(
    socket: S,
    kind: Kind,
    messages: impl Stream<Item = Bytes> + Send,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send,
{
    let (mut reader, mut writer) = split(socket);
    let mut messages = pin!(messages.ready_chunks(TOGETHER));
    let mut incoming = Incoming::default();
    let code = loop {
        tokio::select! {
            ready = messages.next() => {
                let Some(ready) = ready else { break NORMAL };
                for message in ready {
                    frame(&mut writer, kind as u8, &message).await?;
                }
                writer.flush().await?;
            }
            said = incoming.next(&mut reader) => match said? {
                Said::Ping(payload) => {
                    frame(&mut writer, PONG, &payload).await?;
                    writer.flush().await?;
                }
                Said::Leaves => break NORMAL,
                Said::Nonsense => break PROTOCOL_ERROR,
            },
        }
    };
    let close = async {
        frame(&mut writer, CLOSE, &code.to_be_bytes()).await?;
        writer.shutdown().await
    };
    timeout(CLOSING, close).await.unwrap_or(Ok(()))
}

/// Writes one frame, which is a whole message.
async fn frame(writer: &mut (impl AsyncWrite + Unpin), opcode: u8, payload: &[u8]) -> io::Result<()> {
    let mut head = vec![0x80 | opcode];
    match payload.len() {
        short @ 0..=125 => head.push(short as u8),
        middle @ 126..=0xffff => {
            head.push(126);
            head.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            head.push(127);
            head.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    writer.write_all(&head).await?;
    writer.write_all(payload).await
}

/// What a client says that matters.
#[derive(Debug, PartialEq)]
enum Said {
    Ping(Vec<u8>),
    Leaves,
    Nonsense,
}

/// Frames from a client.
#[derive(Default)]
struct Incoming {
    bytes: BytesMut,
    /// What is still to come of a message that nobody reads.
    skip: u64,
}

impl Incoming {
    /// The next thing that matters. Nothing is lost where this is given up.
    async fn next(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Said> {
        loop {
            if let Some(said) = self.parse() {
                return Ok(said);
            }
            if reader.read_buf(&mut self.bytes).await? == 0 {
                return Ok(Said::Leaves);
            }
        }
    }

    /// Takes frames out of what has come, up to one that matters.
    fn parse(&mut self) -> Option<Said> {
        loop {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(self.bytes.len());
            self.bytes.advance(skipped);
            self.skip -= skipped as u64;
            let &[first, second, ..] = &self.bytes[..] else { return None };
            let (opcode, control) = (first & 0x0f, first & 0x08 != 0);
            // Extensions were not agreed on, clients mask what they send, and control frames come whole.
            let strange = first & 0x70 != 0 || second & 0x80 == 0 || control && first & 0x80 == 0;
            if strange || matches!(opcode, 0x3..=0x7 | 0xb..=0xf) {
                return Some(Said::Nonsense);
            }
            let more = match second & 0x7f {
                126 => 2,
                127 => 8,
                _ => 0,
            };
            let head = 2 + more + 4;
            if self.bytes.len() < head {
                return None;
            }
            let extended = self.bytes[2..2 + more].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
            let length = if more == 0 { u64::from(second & 0x7f) } else { extended };
            if !control {
                self.bytes.advance(head);
                self.skip = length;
                continue;
            }
            let end = head + length.min(CONTROL) as usize;
            if length > CONTROL {
                return Some(Said::Nonsense);
            }
            if self.bytes.len() < end {
                return None;
            }
            let frame = self.bytes.split_to(end);
            let (mask, masked) = frame[2 + more..].split_at(4);
            match opcode {
                CLOSE => return Some(Said::Leaves),
                PING => {
                    let payload = masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
                    return Some(Said::Ping(payload.collect()));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_tests_fuzz::Fuzz;

    fn headers(rows: &[(&str, &str)]) -> HeaderMap {
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        let rows = upgrade.iter().chain(rows);
        rows.map(|(name, value)| (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn the_handshake_is_answered_as_the_rfc_says_and_refused_as_kube_apiserver_does() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let version = ("sec-websocket-version", "13");
        let origin = ("origin", "https://example.com");
        let good = handshake(&headers(&[key, version, origin, ("sec-websocket-protocol", "v1.json")]));
        assert_eq!(good.status(), 101);
        assert_eq!(good.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(good.headers()["sec-websocket-protocol"], "v1.json");
        let refused: [(&[(&str, &str)], u16); 4] = [
            (&[version, origin], 400),
            (&[key, ("sec-websocket-version", "8"), origin], 400),
            (&[key, version], 403),
            (&[key, version, origin, ("sec-websocket-protocol", "a, b")], 400),
        ];
        for (rows, code) in refused {
            assert_eq!(handshake(&headers(rows)).status(), code, "{rows:?}");
        }
        assert!(!is_asked(&HeaderMap::from_iter([(header::UPGRADE, HeaderValue::from_static("websocket"))])));
    }

    #[test]
    fn a_token_may_come_as_a_subprotocol_beside_another() {
        let name = "sec-websocket-protocol";
        let mut given = headers(&[(name, "base64url.bearer.authorization.k8s.io.YWJj, v1.json")]);
        take_token(&mut given).unwrap();
        assert_eq!(
            (&given[header::AUTHORIZATION], &given[name]),
            (&"Bearer abc".parse().unwrap(), &"v1.json".parse().unwrap())
        );
        for wrong in ["YWJj", "YWJj, base64url.bearer.authorization.k8s.io.YWJj, a", "?, a", "Cg, a"] {
            let mut given = headers(&[(name, &format!("{TOKEN}{wrong}"))]);
            assert_eq!(take_token(&mut given).unwrap_err().code, 401, "{wrong}");
        }
    }

    fn said(bytes: &[u8]) -> Vec<Said> {
        let mut incoming = Incoming { bytes: bytes.into(), skip: 0 };
        std::iter::from_fn(|| incoming.parse()).take(8).collect()
    }

    #[test]
    fn pings_and_leaving_are_understood_and_the_rest_is_skipped() {
        let message = [&[0x81, 0xfe, 1, 0, 0, 0, 0, 0][..], &[7; 256]].concat();
        let ping = [0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2];
        let close = [0x88, 0x80, 0, 0, 0, 0];
        let all = [&message[..], &ping, &close].concat();
        assert_eq!(said(&all), [Said::Ping(b"hi".to_vec()), Said::Leaves]);
        assert_eq!(said(&all[..all.len() - 1]), [Said::Ping(b"hi".to_vec())]);
        let nonsense: [&[u8]; 4] =
            [&[0x89, 0x02, 0, 0], &[0xc1, 0x80], &[0x83, 0x80], &[0x89, 0xfe, 1, 0, 0, 0, 0, 0]];
        for bytes in nonsense {
            assert_eq!(said(bytes)[0], Said::Nonsense, "{bytes:?}");
        }
    }

    #[test]
    fn no_frames_break_the_reading_of_them() {
        let seeds = [
            vec![0x89, 0x82, 1, 2, 3, 4, 5, 6, 0x88, 0x80, 0, 0, 0, 0],
            vec![0x81, 0xff, 0, 0, 0, 0, 0, 0, 1, 0],
        ];
        Fuzz::new("frames of WebSockets", seeds, 20_000).run(|bytes| {
            let mut incoming = Incoming { bytes: bytes.as_slice().into(), skip: 0 };
            let mut said = String::new();
            while let Some(next) = incoming.parse() {
                said.push_str(if matches!(next, Said::Ping(_)) { "ping " } else { "end" });
                if next == Said::Nonsense || next == Said::Leaves {
                    break;
                }
            }
            said
        });
    }
}
