//! One question and its answer, within limits.

use crate::{Body, Destination, Outbound, pool};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How many calls may be under way at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// To one destination; more wait, as long as their time lasts.
    pub per_destination: usize,
    /// Calls of one plane, pending ones included. Further calls fail at once, so that one plane's hanging servers do
    /// not take the permits of other planes' requests.
    pub per_plane: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_destination: 64, per_plane: 128 }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

/// Why there is none, in the words of Go's HTTP client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It took too long.
    #[error("context deadline exceeded")]
    Deadline,
    /// The answer is larger than allowed: bytes.
    #[error("response body is larger than the limit of {0} bytes")]
    TooLarge(usize),
    /// The plane has too many calls under way.
    #[error("too many calls of this control plane are in flight")]
    TooMany,
    /// No connection, or one that broke.
    #[error("{0}")]
    Failed(String),
}

impl Outbound {
    /// Posts a JSON body to a path (with its query) and gives the whole answer, within a time and a size. `extra` are
    /// further headers (`authorization`).
    ///
    /// # Errors
    /// No answer in that time and size; any status code is an answer.
    pub async fn call(
        &self,
        destination: &Destination,
        path: &str,
        body: Bytes,
        extra: &HeaderMap,
        time: Duration,
        max: usize,
    ) -> Result<Answer, CallError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Body::new(Full::new(body).map_err(|never| match never {})))
            .map_err(|error| CallError::Failed(error.to_string()))?;
        request.headers_mut().extend(extra.clone());
        self.bounded(destination, request, time, max).await
    }

    /// Gets a path and gives the whole answer, within a time and a size.
    ///
    /// # Errors
    /// No answer in that time and size; any status code is an answer.
    pub async fn fetch(
        &self,
        destination: &Destination,
        path: &str,
        time: Duration,
        max: usize,
    ) -> Result<Answer, CallError> {
        let request = Request::builder()
            .uri(path)
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "freehold-apiserver")
            .body(Body::new(Full::new(Bytes::new()).map_err(|never| match never {})))
            .map_err(|error| CallError::Failed(error.to_string()))?;
        self.bounded(destination, request, time, max).await
    }

    async fn bounded(
        &self,
        destination: &Destination,
        request: Request<Body>,
        time: Duration,
        max: usize,
    ) -> Result<Answer, CallError> {
        let plane = self.plane(&destination.plane);
        let _place = plane.try_acquire().map_err(|_| CallError::TooMany)?;
        let answered = timeout_at(Instant::now() + time, self.ask(destination, request, max));
        answered.await.unwrap_or(Err(CallError::Deadline))
    }

    async fn ask(
        &self,
        destination: &Destination,
        request: Request<Body>,
        max: usize,
    ) -> Result<Answer, CallError> {
        let (client, places) = self.line(destination).await.map_err(CallError::Failed)?;
        let _place = places.acquire().await.map_err(|error| CallError::Failed(error.to_string()))?;
        let answer = pool::send(&client, destination, request).await;
        let (head, body) = answer.map_err(|error| CallError::Failed(error.0))?.into_parts();
        let body =
            Limited::new(body, max).collect().await.map_err(|error| match error
                .downcast_ref::<http_body_util::LengthLimitError>(
            ) {
                Some(_) => CallError::TooLarge(max),
                None => CallError::Failed("unexpected EOF".to_owned()),
            })?;
        Ok(Answer { status: head.status.as_u16(), body: body.to_bytes() })
    }
}
