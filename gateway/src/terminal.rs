//! Terminals: what runs in a container of a Pod, or is begun there, by `exec` and `attach`.
//!
//! The gateway speaks Kubernetes' WebSocket protocol
//! (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets>) with the
//! apiserver, as the session's user. A browser gets output as events of its stream, and sends input by `POST`, so what holds
//! for other requests holds for these: the cookie alone opens nothing.

use crate::{error::Failure, forward, identity::Caller, streams::event};
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

/// The subresources that are terminals.
const CONNECTS: [&str; 2] = ["exec", "attach"];

const STDIN: u8 = 0;
const OUTPUTS: [u8; 2] = [1, 2];
const ERROR: u8 = 3;
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
    /// The request that opens it.
    pub(crate) fn request(&self) -> Result<RawRequest, Failure> {
        let segments = forward::plain(&self.path)?;
        let of_pod = matches!(segments.as_slice(), [.., pods, _, verb] if pods == "pods" && CONNECTS.contains(&&**verb));
        if !of_pod || self.path.contains('?') || self.command.len() > WORDS {
            return Err(Failure::bad_request("a terminal is the exec or attach of a Pod"));
        }
        let mut path = format!("{}?stdin=true&stdout=true&tty=true", self.path);
        let container = Some(("container", &self.container)).filter(|(_, name)| !name.is_empty());
        for (name, value) in container.into_iter().chain(self.command.iter().map(|word| ("command", word))) {
            path.extend(["&", name, "="]);
            path.extend(utf8_percent_encode(value, VALUE));
        }
        let mut request = RawRequest::get(path);
        let headers = &mut request.headers;
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOLS);
        Ok(request)
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

/// Runs a terminal until what runs in it has ended.
///
/// # Errors
/// The apiserver refuses it, what ran in it failed, or the connection broke.
pub(crate) async fn run(
    caller: &Caller,
    request: &RawRequest,
    name: &str,
    events: &mpsc::Sender<Bytes>,
    mut input: mpsc::Receiver<Input>,
) -> Result<(), Failure> {
    let mut socket = connect(caller, request).await?;
    loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Binary(data))) => match data.split_first() {
                    Some((&ERROR, status)) => return verdict(status),
                    Some((channel, output)) if OUTPUTS.contains(channel) && !output.is_empty() => {
                        let data = json!({"watch": name, "data": STANDARD.encode(output)}).to_string();
                        if events.send(event("output", &data)).await.is_err() {
                            return Ok(());
                        }
                    }
                    _ => {}
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
        let wanted = Wanted { path: path.to_owned(), container: "c".to_owned(), command };
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
