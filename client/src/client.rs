//! The verbs.

use crate::request::{self, DeleteOptions, ListOptions, Patch, PatchOptions, RawRequest, WatchOptions};
use crate::transport::{Lane, RawResponse, Streaming, Transport};
use crate::watch::{Download, WatchStream};
use crate::{Config, Error, Identity, Resource, Result};
use bytes::Bytes;
use freehold_machinery::{Status, Value, meta};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;

/// How often a read is tried when connections break, and any request when the server is too busy.
const TRIES: u32 = 4;
/// The longest wait that a busy server can ask of a client.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);
/// Bytes of a refusal that are read where the answer would have been a stream.
const MAX_REFUSAL: usize = 65_536;
/// Items a page of [`Client::list_all`].
const PAGE: u64 = 500;

/// A client of one server, with a base path. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    prefix: Arc<str>,
    /// Headers of each request beside those of the configuration.
    headers: Option<Arc<HeaderMap>>,
}

struct Inner {
    transport: Transport,
    origin: String,
    base: String,
    headers: HeaderMap,
    timeout: Duration,
    max_response_bytes: usize,
}

/// A page of a list, or all of it.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// The objects, each with `apiVersion` and `kind`.
    pub items: Vec<Value>,
    /// When it was read.
    pub resource_version: String,
    /// Where the next page begins; empty after the last.
    pub continue_token: String,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client of {}{}", self.inner.origin, self.prefix)
    }
}

impl Client {
    /// Creates a client. Connections are opened when they are needed.
    ///
    /// # Errors
    /// [`Error::Config`] for a server that is no URL, or certificates and keys that cannot be used.
    pub fn new(config: &Config) -> Result<Self> {
        let target = config.target()?;
        let transport = Transport::new(config)?;
        let inner = Inner {
            origin: transport.origin(),
            transport,
            headers: default_headers(config)?,
            timeout: config.timeout,
            max_response_bytes: config.max_response_bytes,
            base: target.prefix.clone(),
        };
        Ok(Self { inner: Arc::new(inner), prefix: Arc::from(target.prefix), headers: None })
    }

    /// Returns a client on the same connections below another base path (`/planes/infra`), which replaces the one
    /// before and is itself below the path of the configured server URL.
    pub fn at(&self, prefix: &str) -> Self {
        let prefix = format!("{}{}", self.inner.base, prefix.trim_end_matches('/'));
        Self { inner: self.inner.clone(), prefix: Arc::from(prefix), headers: self.headers.clone() }
    }

    /// Returns a client on the same connections that acts as another user
    /// (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>). The server decides
    /// whether the configured identity may. Without groups the server adds those of a service account.
    ///
    /// # Errors
    /// [`Error::Config`] for a name that cannot be a header.
    pub fn acting_as(&self, user: &str, groups: &[String]) -> Result<Self> {
        let header = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| Error::Config(format!("impersonated name {text:?}")))
        };
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", header(user)?);
        for group in groups {
            headers.append("impersonate-group", header(group)?);
        }
        Ok(Self { headers: Some(Arc::new(headers)), ..self.clone() })
    }

    /// Reads an object by namespace and name.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status` (404 for an absent object); [`Error::Transport`] or
    /// [`Error::Timeout`] without an answer.
    pub async fn get(&self, resource: &Resource, namespace: Option<&str>, name: &str) -> Result<Value> {
        self.json(RawRequest::get(resource.object_path(namespace, name, None))).await
    }

    /// Reads an object that may be absent: `None` for the server's 404.
    ///
    /// # Errors
    /// [`Error::Api`] for any other refusal; [`Error::Transport`] or [`Error::Timeout`] without an answer.
    pub async fn get_opt(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>> {
        match self.get(resource, namespace, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a page of objects; without a limit, all of them. `None` as namespace means all namespaces.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status` (410 for an expired continue token); [`Error::Transport`] or
    /// [`Error::Timeout`] without an answer.
    pub async fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<List> {
        to_list(self.json(options.request(resource, namespace)).await?)
    }

    /// Reads all objects, page by page.
    ///
    /// # Errors
    /// Those of [`list`](Self::list); a 410 between two pages is among them.
    pub async fn list_all(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<List> {
        let mut options = ListOptions { limit: PAGE, ..options.clone() };
        let mut all = List::default();
        loop {
            let mut page = self.list(resource, namespace, &options).await?;
            all.items.append(&mut page.items);
            all.resource_version = page.resource_version;
            if page.continue_token.is_empty() {
                return Ok(all);
            }
            options.continue_token = page.continue_token;
            options.resource_version.clear();
            options.resource_version_match.clear();
        }
    }

    /// Creates an object, in the namespace that its metadata names.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status` (409 where the object exists); [`Error::Transport`], whose `sent`
    /// says whether the write may have arrived.
    pub async fn create(&self, resource: &Resource, object: &Value) -> Result<Value> {
        let path = resource.collection_path(Some(meta::namespace(object)));
        self.json(RawRequest::new(Method::POST, path).json(object)).await
    }

    /// Creates a subresource (`token`, `binding`, `eviction`) of an object.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status`; [`Error::Transport`], whose `sent` says whether the write may have
    /// arrived.
    pub async fn create_subresource(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        subresource: &str,
        body: &Value,
    ) -> Result<Value> {
        let path = resource.object_path(namespace, name, Some(subresource));
        self.json(RawRequest::new(Method::POST, path).json(body)).await
    }

    /// Replaces an object. With a `metadata.resourceVersion` it must be the current one.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status` (409 for another resource version); [`Error::Transport`], whose
    /// `sent` says whether the write may have arrived.
    pub async fn update(&self, resource: &Resource, object: &Value) -> Result<Value> {
        self.replace(resource, object, None).await
    }

    /// Replaces an object's status.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status` (409 for another resource version); [`Error::Transport`], whose
    /// `sent` says whether the write may have arrived.
    pub async fn update_status(&self, resource: &Resource, object: &Value) -> Result<Value> {
        self.replace(resource, object, Some("status")).await
    }

    /// Replaces a subresource (`finalize`, `approval`, `scale`) of an object.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status` (409 for another resource version); [`Error::Transport`], whose
    /// `sent` says whether the write may have arrived.
    pub async fn update_subresource(
        &self,
        resource: &Resource,
        subresource: &str,
        object: &Value,
    ) -> Result<Value> {
        self.replace(resource, object, Some(subresource)).await
    }

    async fn replace(&self, resource: &Resource, object: &Value, subresource: Option<&str>) -> Result<Value> {
        let path = resource.object_path(Some(meta::namespace(object)), meta::name(object), subresource);
        self.json(RawRequest::new(Method::PUT, path).json(object)).await
    }

    /// Patches an object, or a subresource that the options name.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status`; [`Error::Transport`], whose `sent` says whether the write may have
    /// arrived.
    pub async fn patch(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        patch: &Patch,
        options: &PatchOptions,
    ) -> Result<Value> {
        let subresource = Some(options.subresource.as_str()).filter(|s| !s.is_empty());
        let path = resource.object_path(namespace, name, subresource);
        self.json(options.request(path, patch)).await
    }

    /// Server-side applies an object by its own name and namespace, taking the fields that it sets.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status` (409 where another manager owns a field); [`Error::Transport`],
    /// whose `sent` says whether the write may have arrived.
    pub async fn apply(&self, resource: &Resource, field_manager: &str, object: &Value) -> Result<Value> {
        let (namespace, name) = (meta::namespace(object), meta::name(object));
        let options = PatchOptions::apply(field_manager);
        self.patch(resource, Some(namespace), name, &Patch::Apply(object.clone()), &options).await
    }

    /// Deletes an object. Returns its last state, or a `Status`.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status` (404 for an absent object); [`Error::Transport`], whose `sent` says
    /// whether the deletion may have arrived.
    pub async fn delete(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Value> {
        self.json(options.request(resource.object_path(namespace, name, None))).await
    }

    /// Deletes the objects that a list with the same options would return.
    ///
    /// # Errors
    /// [`Error::Api`] with the server's `Status`; [`Error::Transport`], whose `sent` says whether the deletion may
    /// have arrived.
    pub async fn delete_collection(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        options: &DeleteOptions,
        which: &ListOptions,
    ) -> Result<Value> {
        self.json(options.collection(resource.collection_path(namespace), which)).await
    }

    /// Opens a watch and returns its stream of events.
    ///
    /// # Errors
    /// [`Error::Api`] where the server refuses the watch (410 for a compacted revision); [`Error::Transport`] or
    /// [`Error::Timeout`] without an answer. Later failures are items of the stream.
    pub async fn watch(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        options: &WatchOptions,
    ) -> Result<WatchStream> {
        let request = options.request(resource, namespace);
        Ok(WatchStream::new(self.open(&request).await?))
    }

    /// Sends a request whose answer is read as it comes, however long it is.
    ///
    /// # Errors
    /// [`Error::Api`] where the server refuses; [`Error::Transport`] or [`Error::Timeout`] where no answer begins.
    pub async fn download(&self, request: &RawRequest) -> Result<Download> {
        Ok(Download::new(self.open(request).await?))
    }

    /// Sends a request once and returns the answer whatever its status, with a body that is read as it comes.
    ///
    /// # Errors
    /// [`Error::Transport`] or [`Error::Timeout`] where no answer begins.
    pub async fn forward(&self, request: &RawRequest) -> Result<(StatusCode, HeaderMap, Download)> {
        let sending = self.inner.transport.send(Lane::Watches, self.build(request)?);
        let answer = self.within(sending).await?;
        Ok((answer.status, answer.headers.clone(), Download::new(answer)))
    }

    /// Sends a request whose headers ask for another protocol, as `exec` and `port-forward` do, on an HTTP/1.1 connection of
    /// its own, and returns the answer's headers and the connection, over which that protocol is spoken from now on.
    ///
    /// # Errors
    /// [`Error::Api`] where the server refuses or does not change the protocol; [`Error::Transport`] or [`Error::Timeout`]
    /// without an answer.
    pub async fn upgrade(&self, request: &RawRequest) -> Result<(HeaderMap, TokioIo<Upgraded>)> {
        let answer = self.within(self.inner.transport.upgrade(self.build(request)?)).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let body = self.within(async { Ok(Limited::new(answer, MAX_REFUSAL).collect().await) }).await?;
            return Err(failure(status, &body.map(|body| body.to_bytes()).unwrap_or_default()));
        }
        let reason = |e: hyper::Error| Error::Transport {
            server: self.inner.origin.clone(),
            reason: e.to_string(),
            sent: true,
        };
        Ok((headers, TokioIo::new(hyper::upgrade::on(answer).await.map_err(reason)?)))
    }

    /// Waits for the head of a successful answer.
    async fn open(&self, request: &RawRequest) -> Result<Streaming> {
        let sending = self.inner.transport.send(Lane::Watches, self.build(request)?);
        let mut answer = self.within(sending).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let mut body = Vec::new();
        while let Some(Ok(chunk)) = answer.chunk().await {
            body.extend_from_slice(&chunk[..chunk.len().min(MAX_REFUSAL)]);
            if body.len() > MAX_REFUSAL {
                break;
            }
        }
        Err(failure(answer.status, &body))
    }

    /// Reads any JSON document below the base path, for instance discovery.
    ///
    /// # Errors
    /// Those of [`json`](Self::json).
    pub async fn get_path(&self, path: &str) -> Result<Value> {
        self.json(RawRequest::get(path)).await
    }

    /// Sends a request and parses the JSON of a successful answer.
    ///
    /// # Errors
    /// Those of [`request`](Self::request), and [`Error::Decode`] for an answer that is not JSON.
    pub async fn json(&self, request: RawRequest) -> Result<Value> {
        let answer = self.request(&request).await?;
        serde_json::from_slice(&answer.body).map_err(|e| Error::Decode(e.to_string()))
    }

    /// Sends a request and returns a successful answer as it is. Reads are retried when the connection breaks, every
    /// request when it could not have arrived or the server is too busy.
    ///
    /// # Errors
    /// [`Error::Api`] for an answer that is no success; [`Error::Transport`], [`Error::Timeout`] or
    /// [`Error::TooLarge`] from the last attempt.
    pub async fn request(&self, request: &RawRequest) -> Result<RawResponse> {
        let mut tried = 0;
        loop {
            tried += 1;
            let (error, wait) = match self.once(request).await {
                Ok(answer) if answer.status.is_success() => return Ok(answer),
                Ok(answer) => (failure(answer.status, &answer.body), busy(&answer, tried)),
                Err(error) => {
                    let again = retriable(&error, &request.method);
                    (error, again.then(|| backoff(tried)))
                }
            };
            match wait {
                Some(wait) if tried < TRIES => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
        }
    }

    /// Sends a request once and returns the answer as it is, whatever its status.
    ///
    /// # Errors
    /// [`Error::Transport`], [`Error::Timeout`], or [`Error::TooLarge`] for an answer over the configured limit.
    pub async fn once(&self, request: &RawRequest) -> Result<RawResponse> {
        let limit = self.inner.max_response_bytes;
        self.within(self.inner.transport.roundtrip(self.build(request)?, limit)).await
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let timeout = self.inner.timeout;
        tokio::time::timeout(timeout, work).await.unwrap_or(Err(Error::Timeout(timeout.as_secs())))
    }

    fn build(&self, request: &RawRequest) -> Result<Request<Full<Bytes>>> {
        let uri = format!("{}{}", self.inner.origin, request::full_path(&self.prefix, &request.path));
        let mut built = Request::builder()
            .method(request.method.clone())
            .uri(uri)
            .body(Full::new(request.body.clone()))
            .map_err(|e| Error::Config(format!("request: {e}")))?;
        let headers = built.headers_mut();
        headers.clone_from(&self.inner.headers);
        headers.insert(ACCEPT, HeaderValue::from_static(request.accept));
        if !request.body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(request.content_type));
        }
        for (name, value) in self.headers.iter().flat_map(|headers| headers.iter()) {
            headers.append(name, value.clone());
        }
        for name in request.headers.keys() {
            headers.remove(name);
        }
        for (name, value) in &request.headers {
            headers.append(name, value.clone());
        }
        Ok(built)
    }
}

fn default_headers(config: &Config) -> Result<HeaderMap> {
    let header = |text: &str| HeaderValue::from_str(text).map_err(|e| Error::Config(format!("header: {e}")));
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, header(&config.user_agent)?);
    if let Identity::Token(token) = &config.identity {
        let mut value = header(&format!("Bearer {token}"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Whether trying again can't do anything twice.
fn retriable(error: &Error, method: &Method) -> bool {
    match error {
        Error::Transport { sent, .. } => !sent || *method == Method::GET,
        _ => false,
    }
}

fn backoff(tried: u32) -> Duration {
    Duration::from_millis(50 << (2 * tried.min(5)).saturating_sub(2))
}

/// How long to wait before a busy server is asked again.
fn busy(answer: &RawResponse, tried: u32) -> Option<Duration> {
    if answer.status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let asked = answer.headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|s| s.parse().ok());
    Some(asked.map_or_else(|| backoff(tried), Duration::from_secs).min(MAX_RETRY_AFTER))
}

/// The failure that an answer tells of; made up from the HTTP status where it is not a Kubernetes `Status`.
fn failure(status: StatusCode, body: &[u8]) -> Error {
    if let Ok(told) = serde_json::from_slice::<Status>(body) {
        return Error::api(Status { code: status.as_u16(), ..told });
    }
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    let reason = if status == StatusCode::NOT_FOUND { "NotFound" } else { "" };
    Error::api(Status::new(status.as_u16(), reason, format!("{status}: {}", text.trim())))
}

fn to_list(mut list: Value) -> Result<List> {
    let text = |list: &Value, field: &str| meta::text(list, field).to_owned();
    let (resource_version, continue_token) = (text(&list, "resourceVersion"), text(&list, "continue"));
    let api_version = list["apiVersion"].take();
    let kind: Option<String> = list["kind"].as_str().and_then(|k| k.strip_suffix("List")).map(str::to_owned);
    let Value::Array(mut items) = list["items"].take() else {
        return if list.get("items").is_some() && kind.is_some() {
            Ok(List { items: Vec::new(), resource_version, continue_token })
        } else {
            Err(Error::Decode("not a list".into()))
        };
    };
    // Servers leave the type out of a built-in list's items.
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(kind) = &kind {
            item.entry("kind").or_insert_with(|| kind.clone().into());
            item.entry("apiVersion").or_insert_with(|| api_version.clone());
        }
    }
    Ok(List { items, resource_version, continue_token })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_of_a_list_get_their_kind() {
        let list = json!({
            "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "5", "continue": "c"},
            "items": [{"metadata": {"name": "a"}}],
        });
        let list = to_list(list).unwrap();
        assert_eq!(list.items[0]["kind"], "Pod");
        assert_eq!(list.items[0]["apiVersion"], "v1");
        assert_eq!((list.resource_version.as_str(), list.continue_token.as_str()), ("5", "c"));
        assert!(to_list(json!({"kind": "PodList", "items": null})).unwrap().items.is_empty());
        assert!(to_list(json!({"kind": "Status"})).is_err());
    }

    #[test]
    fn a_failure_keeps_the_servers_status_or_makes_one_up() {
        let body = Status::expired("too old").to_json().to_string();
        assert!(failure(StatusCode::GONE, body.as_bytes()).is_gone());
        let made_up = failure(StatusCode::NOT_FOUND, b"404 page not found\n");
        assert!(made_up.is_not_found() && made_up.is_unserved());
        assert_eq!(made_up.to_string(), "404 Not Found: 404 page not found (NotFound)");
    }

    #[test]
    fn only_what_cannot_happen_twice_is_retried() {
        let error = |sent| Error::Transport { server: String::new(), reason: String::new(), sent };
        assert!(retriable(&error(false), &Method::POST));
        assert!(retriable(&error(true), &Method::GET));
        assert!(!retriable(&error(true), &Method::POST));
        assert_eq!(backoff(1), Duration::from_millis(50));
        assert_eq!(backoff(3), Duration::from_millis(800));
    }
}
