//! A request of the aggregator itself to a server.

use crate::Server;
use bytes::Bytes;
use freehold_apiserver_outbound::{Body, Identity, Outbound};
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Empty, Limited};
use std::{sync::Arc, time::Duration};

/// Longest time for an answer (kube-aggregator's number).
const TIME: Duration = Duration::from_secs(5);
/// Who asks: a server that asks back whether this is allowed is told yes.
const USER: &str = "system:kube-aggregator";

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// A header's text.
    pub(crate) fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Gets a path. Answers of more than `max` bytes, and those that take too long, are errors.
pub(crate) async fn get(
    outbound: &Outbound,
    identity: Option<Arc<Identity>>,
    server: &Server,
    path: &str,
    headers: &[(header::HeaderName, &str)],
    max: usize,
) -> Result<Answer, String> {
    let mut request =
        Request::get(path).header("x-remote-user", USER).header("x-remote-group", "system:masters");
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let body: Body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = request.body(body).map_err(|error| error.to_string())?;
    let destination = server.destination(identity);
    let asked = async {
        let answer = outbound.send(&destination, request).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, max).collect().await.map_err(|error| error.to_string())?;
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
    };
    match tokio::time::timeout(TIME, asked).await {
        Ok(answer) => answer,
        Err(_) => {
            Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned())
        }
    }
}
