//! Terminals, which are what runs in a container of a Pod or is begun there, by `exec` and `attach`; and ports of Pods,
//! by `portforward`.
//!
//! The gateway speaks Kubernetes' WebSocket protocol
//! (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets>) with the
//! apiserver, as the session's user. A browser gets output as events of its stream, and sends input by `POST`, so what holds
//! for other requests holds for these: the cookie alone opens nothing.

use crate::{
    error::Failure,
    forward,
    identity::Caller,
    streams::{Events, event},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{BufMut as _, Bytes, BytesMut};
use freehold_client::{Error, RawRequest};
use freehold_machinery::Status;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

/// Pieces of input that wait for a terminal.
pub(crate) const QUEUE: usize = 64;
/// Words of a command.
const WORDS: usize = 64;
/// Longest message of the apiserver.
const LONGEST: usize = 1 << 20;
/// What is escaped in a value of a query.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The protocols that are spoken: channels by the first byte of a message, and a `Status` at the end.
const PROTOCOLS: HeaderValue = HeaderValue::from_static("v5.channel.k8s.io, v4.channel.k8s.io");
/// What is spoken with a port: a channel of bytes and one of errors, each of which begins with the port's number.
const PORT_PROTOCOL: HeaderValue = HeaderValue::from_static("v4.channel.k8s.io");

/// The subresources that are terminals or ports.
const CONNECTS: [&str; 3] = ["exec", "attach", PORT_FORWARD];
const PORT_FORWARD: &str = "portforward";

const STDIN: u8 = 0;
const RESIZE: u8 = 4;

/// A terminal that a client wants.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wanted {
    /// The path of a Pod's `exec` or `attach`.
    path: String,
    /// The container; the Pod's first one where it is empty.
    #[serde(default)]
    container: String,
    /// What is run; `attach` has none.
    #[serde(default)]
    command: Vec<String>,
    /// The port that is forwarded.
    #[serde(default)]
    port: u16,
}

/// What a person types, or how large their terminal is.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, untagged)]
pub(crate) enum Input {
    /// Text for standard input.
    Typed {
        /// The text.
        text: String,
    },
    /// Another size, in characters.
    Size {
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
}

impl Wanted {
    /// What is spoken on the connection.
    pub(crate) fn channels(&self) -> Channels {
        match self.path.ends_with(PORT_FORWARD) {
            true => Channels::of_port(),
            false => Channels::of_terminal(),
        }
    }

    /// The request that opens it.
    pub(crate) fn request(&self) -> Result<RawRequest, Failure> {
        let segments = forward::plain(&self.path)?;
        let of_pod = matches!(segments.as_slice(), [.., pods, _, verb] if pods == "pods" && CONNECTS.contains(&&**verb));
        if !of_pod || self.path.contains('?') || self.command.len() > WORDS {
            return Err(Failure::bad_request("a terminal is the exec, attach or portforward of a Pod"));
        }
        if self.path.ends_with(PORT_FORWARD) {
            return match self.port {
                0 => Err(Failure::bad_request("a port is wanted")),
                port => Ok(upgrade(format!("{}?ports={port}", self.path), PORT_PROTOCOL)),
            };
        }
        let mut path = format!("{}?stdin=true&stdout=true&tty=true", self.path);
        let container = Some(("container", &self.container)).filter(|(_, name)| !name.is_empty());
        for (name, value) in container.into_iter().chain(self.command.iter().map(|word| ("command", word))) {
            path.extend(["&", name, "="]);
            path.extend(utf8_percent_encode(value, VALUE));
        }
        Ok(upgrade(path, PROTOCOLS))
    }
}

/// A request that makes its connection a WebSocket.
fn upgrade(path: String, protocols: HeaderValue) -> RawRequest {
    let mut request = RawRequest::get(path);
    let headers = &mut request.headers;
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocols);
    request
}

/// Which channels of a connection mean what, by the first byte of a message.
pub(crate) struct Channels {
    outputs: &'static [u8],
    error: u8,
    /// Bytes with which each channel begins, and which are no data.
    prefix: usize,
    begun: [bool; 4],
}

/// What a message of the apiserver says.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Output(Bytes),
    /// Why a port can't be reached.
    Refused(String),
    /// How a command ended.
    Ended(Bytes),
    Nothing,
}

impl Channels {
    fn of_terminal() -> Self {
        Self { outputs: &[1, 2], error: 3, prefix: 0, begun: [true; 4] }
    }

    fn of_port() -> Self {
        Self { outputs: &[0], error: 1, prefix: 2, begun: [false; 4] }
    }

    fn read(&mut self, message: &Bytes) -> Event {
        let Some(channel) = message.first().copied() else { return Event::Nothing };
        let Some(begun) = self.begun.get_mut(usize::from(channel)) else { return Event::Nothing };
        let skipped = if *begun { 0 } else { self.prefix };
        *begun = true;
        let data = message.slice((1 + skipped).min(message.len())..);
        match channel {
            _ if data.is_empty() => Event::Nothing,
            _ if channel == self.error && self.prefix > 0 => {
                Event::Refused(String::from_utf8_lossy(&data).into_owned())
            }
            _ if channel == self.error => Event::Ended(data),
            _ if self.outputs.contains(&channel) => Event::Output(data),
            _ => Event::Nothing,
        }
    }
}

impl Input {
    /// The message of the protocol.
    fn message(&self) -> Message {
        let (channel, data) = match self {
            Self::Typed { text } => (STDIN, text.clone()),
            Self::Size { width, height } => (RESIZE, json!({"Width": width, "Height": height}).to_string()),
        };
        let mut message = BytesMut::with_capacity(data.len() + 1);
        message.put_u8(channel);
        message.put_slice(data.as_bytes());
        Message::Binary(message.freeze())
    }
}

/// Runs a terminal until what runs in it has ended, or forwards a port until its connection ends.
///
/// # Errors
/// The apiserver refuses it, what ran in it failed, or the connection broke.
pub(crate) async fn run(
    caller: &Caller,
    (request, mut channels): (&RawRequest, Channels),
    name: &str,
    events: &Events,
    mut input: mpsc::Receiver<Input>,
) -> Result<(), Failure> {
    let mut socket = connect(caller, request).await?;
    loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Binary(data))) => match channels.read(&data) {
                    Event::Ended(status) => return verdict(&status),
                    Event::Refused(why) => return Err(Failure::new(502, "BadGateway", why)),
                    Event::Output(output) => {
                        let data = json!({"watch": name, "data": STANDARD.encode(&output)}).to_string();
                        if !events.send(event("output", &data)).await? {
                            return Ok(());
                        }
                    }
                    Event::Nothing => {}
                },
                Some(Ok(Message::Close(_))) | None => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error)),
            },
            Some(typed) = input.recv() => socket.send(typed.message()).await.map_err(broken)?,
        }
    }
}

async fn connect(
    caller: &Caller,
    request: &RawRequest,
) -> Result<WebSocketStream<impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + use<>>, Failure> {
    let mut request = request.clone();
    let key = generate_key();
    let value = HeaderValue::from_str(&key).map_err(broken)?;
    request.headers.insert(header::SEC_WEBSOCKET_KEY, value);
    let (headers, io) = caller.upgrade(request).await?;
    if headers
        .get(header::SEC_WEBSOCKET_ACCEPT)
        .is_none_or(|accept| accept != &derive_accept_key(key.as_bytes()))
    {
        return Err(broken("the answer is to another request"));
    }
    let limits = WebSocketConfig::default().max_message_size(Some(LONGEST)).max_frame_size(Some(LONGEST));
    Ok(WebSocketStream::from_raw_socket(io, Role::Client, Some(limits)).await)
}

/// What the last message says of what ran.
fn verdict(status: &[u8]) -> Result<(), Failure> {
    let status: serde_json::Value = serde_json::from_slice(status).map_err(broken)?;
    match status["status"].as_str() {
        Some("Success") => Ok(()),
        _ => {
            let reason = status["reason"].as_str().unwrap_or("InternalError");
            let message = status["message"].as_str().unwrap_or("it failed");
            Err(Failure::Refused(Box::new(Status::new(500, reason, message))))
        }
    }
}

fn broken(reason: impl std::fmt::Display) -> Failure {
    Failure::Upstream(Error::Decode(format!("the terminal's connection: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str, command: &[&str]) -> Option<String> {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        let wanted = Wanted { path: path.to_owned(), container: "c".to_owned(), command, port: 0 };
        wanted.request().ok().map(|request| request.path)
    }

    #[test]
    fn a_terminal_is_of_a_pod_and_its_command_stays_one() {
        let exec = "/projects/web/api/v1/namespaces/x/pods/y/exec";
        assert_eq!(
            path(exec, &["sh", "-c", "a&container=b c"]).as_deref(),
            Some(
                "/projects/web/api/v1/namespaces/x/pods/y/exec?stdin=true&stdout=true&tty=true\
                 &container=c&command=sh&command=-c&command=a%26container%3Db%20c"
            )
        );
        for bad in [
            "/projects/web/api/v1/namespaces/x/pods/y/log",
            "/projects/web/api/v1/namespaces/x/services/y/exec",
            "/projects/web/api/v1/namespaces/x/pods/../exec",
            "/projects/web/api/v1/namespaces/x/pods/y/exec?command=sh",
            "/console/api/v1/namespaces/x/pods/y/exec",
            "/projects/web/api/v1/namespaces/x/pods/y/portforward",
        ] {
            assert_eq!(path(bad, &[]), None, "{bad}");
        }
    }

    #[test]
    fn a_port_is_forwarded_by_two_channels_that_begin_with_its_number() {
        let path = "/projects/web/api/v1/namespaces/x/pods/y/portforward".to_owned();
        let wanted = Wanted { path, container: String::new(), command: Vec::new(), port: 8080 };
        let request = wanted.request().ok().unwrap();
        assert_eq!(request.path, "/projects/web/api/v1/namespaces/x/pods/y/portforward?ports=8080");
        let mut channels = wanted.channels();
        let mut read = |bytes: &'static [u8]| channels.read(&Bytes::from_static(bytes));
        assert_eq!(read(b"\0\x90\x1f"), Event::Nothing);
        assert_eq!(read(b"\x01\x90\x1f"), Event::Nothing);
        assert_eq!(read(b"\0HTTP/1.0 200"), Event::Output(Bytes::from_static(b"HTTP/1.0 200")));
        assert_eq!(read(b"\x01refused"), Event::Refused("refused".to_owned()));
        assert_eq!((read(b""), read(b"\x09x")), (Event::Nothing, Event::Nothing));
    }

    #[test]
    fn input_is_text_or_a_size() {
        let read = |text: &str| serde_json::from_str::<Input>(text).ok().map(|input| input.message());
        assert_eq!(read(r#"{"text": "ls\n"}"#), Some(Message::Binary(Bytes::from_static(b"\0ls\n"))));
        let size = br#"{"Height":24,"Width":80}"#;
        let message = Bytes::from([&[RESIZE][..], size].concat());
        assert_eq!(read(r#"{"width": 80, "height": 24}"#), Some(Message::Binary(message)));
        assert_eq!(read(r#"{"width": 80}"#), None);
    }

    #[test]
    fn the_last_message_says_how_it_ended() {
        assert!(verdict(br#"{"status": "Success"}"#).is_ok());
        let failed =
            verdict(br#"{"status": "Failure", "reason": "NonZeroExitCode", "message": "exit code 3"}"#);
        assert_eq!(failed.err().map(|failure| failure.status().message), Some("exit code 3".to_owned()));
    }
}
