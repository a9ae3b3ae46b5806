//! Requests about the objects of one bucket.

use crate::connection::{Connector, late};
use crate::sign::{Signer, Unsigned, escape, escape_path, sha256};
use crate::{Config, Error, Result, Upload, xml};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use http::{
    Method, Request, Response, Uri,
    header::{ETAG, HOST},
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often a request is made before its failure counts.
const ATTEMPTS: u32 = 4;
/// How long the second attempt waits; each further one waits twice as long.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of an answer that is no object.
const MOST: usize = 8 << 20;
/// Objects of a list.
const MOST_LISTED: usize = 1_000_000;

/// An object of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was written, in the store's words (RFC 3339); empty where the store says nothing.
    pub modified: String,
}

/// The content of an object, piece by piece.
pub type ObjectStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// A bucket of a store.
#[derive(Clone)]
pub struct Bucket {
    url: String,
    name: String,
    signer: Signer,
    connector: Connector,
    idle: Duration,
}

/// A request before it is signed.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// The object's key; empty: the bucket.
    pub(crate) key: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Bytes,
}

impl Bucket {
    /// A bucket of a store. Nothing is asked yet.
    ///
    /// # Errors
    /// The store's URL or its authority can't be used.
    pub fn new(config: &Config, name: &str) -> Result<Self> {
        let url = config.bucket_url(name)?;
        let uri: Uri = url.parse().map_err(|_| Error::Config(format!("{url:?} is no URL")))?;
        let signer = Signer {
            credentials: config.credentials.clone(),
            region: config.region.clone(),
            service: "s3".to_owned(),
        };
        let connector = Connector::new(config, &uri)?;
        Ok(Self { url, name: name.to_owned(), signer, connector, idle: config.timeout })
    }

    /// Writes an object.
    ///
    /// # Errors
    /// The store refuses it or can't be reached.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<()> {
        self.ask(Ask { method: Method::PUT, key, query: &[], body }).await.map(|_| ())
    }

    /// Begins an object that is written in parts.
    ///
    /// # Errors
    /// The store refuses it or can't be reached.
    pub async fn upload(&self, key: &str) -> Result<Upload> {
        Upload::begin(self.clone(), key).await
    }

    /// Reads an object. Pieces come as the store sends them, and an error where it stops before the end.
    ///
    /// # Errors
    /// [`Error::is_not_found`] where there is none; the store refuses it or can't be reached.
    pub async fn get(&self, key: &str) -> Result<ObjectStream> {
        let operation = self.operation(&Method::GET, key);
        let ask = Ask { method: Method::GET, key, query: &[], body: Bytes::new() };
        let body = self.retried(&ask).await?.into_body();
        let pieces = stream::unfold(Some((body, self.idle)), move |state| {
            let operation = operation.clone();
            async move {
                let (mut body, idle) = state?;
                let failed = |source| Error::Connection { operation: operation.clone(), source };
                match timeout(idle, body.frame()).await {
                    Err(_) => Some((Err(failed(late())), None)),
                    Ok(None) => None,
                    Ok(Some(Err(error))) => Some((Err(failed(std::io::Error::other(error))), None)),
                    Ok(Some(Ok(frame))) => {
                        Some((Ok(frame.into_data().unwrap_or_default()), Some((body, idle))))
                    }
                }
            }
        });
        Ok(pieces.boxed())
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// The store refuses it or can't be reached.
    pub async fn delete(&self, key: &str) -> Result<()> {
        match self.ask(Ask { method: Method::DELETE, key, query: &[], body: Bytes::new() }).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Lists the objects whose keys begin with `prefix`, by their keys; a million at most.
    ///
    /// # Errors
    /// The store refuses it or can't be reached, or there are more.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let mut query = vec![("list-type", "2"), ("prefix", prefix)];
            if !token.is_empty() {
                query.push(("continuation-token", &token));
            }
            let answer =
                self.ask(Ask { method: Method::GET, key: "", query: &query, body: Bytes::new() }).await?;
            let page = String::from_utf8_lossy(&answer);
            found.extend(xml::all(&page, "Contents").into_iter().filter_map(object));
            let bad = |reason: &str| Error::Answer {
                operation: self.operation(&Method::GET, prefix),
                reason: reason.to_owned(),
            };
            if found.len() > MOST_LISTED {
                return Err(bad("it has more than a million objects"));
            }
            match xml::text(&page, "NextContinuationToken").filter(|next| !next.is_empty()) {
                Some(next) if next == token => return Err(bad("its pages repeat")),
                Some(next) => token = next,
                None => return Ok(found),
            }
        }
    }

    /// A URL with which anybody may make one request about an object until it expires.
    ///
    /// # Errors
    /// The key can't stand in a URL.
    pub fn presign(&self, method: &Method, key: &str, expires: Duration) -> Result<String> {
        Ok(self.signer.presign(method, &self.uri(key, &[])?, expires, Timestamp::now()))
    }

    /// Makes a request whose answer is small.
    pub(crate) async fn ask(&self, ask: Ask<'_>) -> Result<Bytes> {
        let answer = self.retried(&ask).await?;
        self.collect(answer, &self.operation(&ask.method, ask.key)).await
    }

    /// Writes a part of an object; gives what the store calls it.
    pub(crate) async fn put_part(&self, key: &str, query: &[(&str, &str)], body: Bytes) -> Result<String> {
        let answer = self.retried(&Ask { method: Method::PUT, key, query, body }).await?;
        let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let operation = self.operation(&Method::PUT, key);
        self.collect(answer, &operation).await?;
        tag.ok_or_else(|| Error::Answer { operation, reason: "a part has no ETag".to_owned() })
    }

    fn operation(&self, method: &Method, key: &str) -> String {
        format!("{method} s3://{}/{key}", self.name)
    }

    fn uri(&self, key: &str, query: &[(&str, &str)]) -> Result<Uri> {
        let pairs: Vec<String> =
            query.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
        let divider = if pairs.is_empty() { "" } else { "?" };
        let url = format!("{}/{}{divider}{}", self.url, escape_path(key), pairs.join("&"));
        url.parse().map_err(|_| Error::Config(format!("{url:?} is no URL")))
    }

    async fn retried(&self, ask: &Ask<'_>) -> Result<Response<Incoming>> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match self.once(ask).await {
                Err(error) if error.is_transient() => sleep(pause).await,
                done => return done,
            }
            pause *= 2;
        }
        self.once(ask).await
    }

    async fn once(&self, ask: &Ask<'_>) -> Result<Response<Incoming>> {
        let operation = self.operation(&ask.method, ask.key);
        let uri = self.uri(ask.key, ask.query)?;
        let payload = sha256(&ask.body);
        let unsigned = Unsigned { method: &ask.method, uri: &uri, headers: Vec::new(), payload };
        let mut request = Request::builder().method(&ask.method).uri(&uri);
        request = request.header(HOST, uri.authority().map(ToString::to_string).unwrap_or_default());
        for (name, value) in self.signer.headers(&unsigned, Timestamp::now()) {
            request = request.header(name, value);
        }
        let bad = |_| Error::Config("the store's keys can't stand in a header".to_owned());
        let request = request.body(Full::new(ask.body.clone())).map_err(bad)?;
        let answer = self.connector.send(request, &operation).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = self.collect(answer, &operation).await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body);
        let say = |name: &str| xml::text(&body, name).unwrap_or_default();
        Err(Error::Refused { operation, status: status.as_u16(), code: say("Code"), message: say("Message") })
    }

    async fn collect(&self, answer: Response<Incoming>, operation: &str) -> Result<Bytes> {
        let failed = |source| Error::Connection { operation: operation.to_owned(), source };
        let (mut body, mut all) = (answer.into_body(), BytesMut::new());
        loop {
            let frame = timeout(self.idle, body.frame()).await.map_err(|_| failed(late()))?;
            let Some(frame) = frame else { return Ok(all.freeze()) };
            let frame = frame.map_err(|error| failed(std::io::Error::other(error)))?;
            all.extend_from_slice(&frame.into_data().unwrap_or_default());
            if all.len() > MOST {
                let reason = format!("it has more than {MOST} bytes");
                return Err(Error::Answer { operation: operation.to_owned(), reason });
            }
        }
    }
}

fn object(xml: &str) -> Option<Object> {
    Some(Object {
        key: xml::text(xml, "Key")?,
        size: xml::text(xml, "Size")?.parse().ok()?,
        modified: xml::text(xml, "LastModified").unwrap_or_default(),
    })
}
