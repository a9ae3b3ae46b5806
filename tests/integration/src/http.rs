//! Requests as no `kubectl` sends them.

use bytes::Bytes;
use freehold_client::{Client, Config, Error, Identity, RawRequest};
use freehold_pki::Pair;
use freehold_tests_harness::Kubectl;
use http::Method;
use serde_json::Value;
use tokio::runtime::Runtime;

/// How long an answer may take: a machine that does much else takes its time for what is hard to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(180);

/// Sends requests and waits for their answers.
pub struct Http {
    client: Client,
    runtime: Runtime,
}

/// What came.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub code: u16,
    /// The body: JSON, or a string where it was something else.
    pub body: Value,
}

impl Http {
    /// Asks as what a `kubectl` has for a kubeconfig says.
    pub fn of(kubectl: &Kubectl) -> Self {
        Self::new(&config(kubectl))
    }

    /// Asks another URL with the credentials of a `kubectl`.
    pub fn of_elsewhere(kubectl: &Kubectl, url: &str) -> Self {
        Self::new(&Config { server: url.to_owned(), ..config(kubectl) })
    }

    /// Asks the server of a `kubectl`, or another URL of it, with a token; an empty one stands for nobody.
    pub fn with_token(kubectl: &Kubectl, url: &str, token: &str) -> Self {
        let identity = if token.is_empty() { Identity::None } else { Identity::Token(token.to_owned()) };
        Self::new(&Config { server: url.to_owned(), identity, ..config(kubectl) })
    }

    /// A client that shows a client certificate.
    pub fn with_certificate(kubectl: &Kubectl, url: &str, pair: &Pair) -> Self {
        let (cert_pem, key_pem) = (pair.cert_pem.clone(), pair.key_pem.clone());
        let identity = Identity::ClientCert { cert_pem, key_pem };
        Self::new(&Config { server: url.to_owned(), identity, ..config(kubectl) })
    }

    /// Asks a server that speaks plain HTTP.
    pub fn plain(url: &str) -> Self {
        Self::new(&Config::new(url, "", Identity::None))
    }

    /// Asks a server whose certificate an authority signed, with a token; an empty one stands for nobody.
    pub fn secured(url: &str, ca_pem: &str, token: &str) -> Self {
        let identity = if token.is_empty() { Identity::None } else { Identity::Token(token.to_owned()) };
        Self::new(&Config::new(url, ca_pem, identity))
    }

    fn new(config: &Config) -> Self {
        let config = Config { timeout: PATIENCE, ..config.clone() };
        let client = Client::new(&config).expect("a configuration that can be used");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self { client, runtime: runtime.expect("a runtime starts") }
    }

    /// A request without a body.
    pub fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "", Bytes::new())
    }

    /// A request for another representation.
    pub fn get_as(&self, path: &str, accept: &'static str) -> Answer {
        let request = RawRequest { accept, ..RawRequest::new(Method::GET, path) };
        self.ask(&request).unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// Sends a GET to which no answer may come: `None` then.
    pub fn try_get(&self, path: &str) -> Option<Answer> {
        self.try_send(Method::GET, path, "", Bytes::new()).ok()
    }

    /// A deletion where no answer may come: `None` then.
    pub fn try_delete(&self, path: &str) -> Option<Answer> {
        self.try_send(Method::DELETE, path, "", Bytes::new()).ok()
    }

    /// A request with a JSON body.
    pub fn json(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.send(method, path, "application/json", body.to_string())
    }

    /// Sends JSON to a server that may be gone: `None` for an answer that never came.
    pub fn try_json(&self, method: Method, path: &str, body: &Value) -> Option<Answer> {
        self.try_send(method, path, "application/json", body.to_string()).ok()
    }

    /// Sends a request of any method, path and body.
    pub fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Answer {
        let answer = self.try_send(method.clone(), path, content_type, body);
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn try_send(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, Error> {
        let mut request = RawRequest::new(method, path);
        request.body = body.into();
        if !content_type.is_empty() {
            request.content_type = content_type;
        }
        self.ask(&request)
    }

    fn ask(&self, request: &RawRequest) -> Result<Answer, Error> {
        match self.runtime.block_on(self.client.request(request)) {
            Ok(response) => {
                let text = || Value::String(String::from_utf8_lossy(&response.body).into_owned());
                let body = serde_json::from_slice(&response.body).unwrap_or_else(|_| text());
                Ok(Answer { code: response.status.as_u16(), body })
            }
            Err(Error::Api(status)) => {
                let mut body = serde_json::to_value(&*status).expect("a Status is JSON");
                if let Some(token) = &status.continue_token {
                    body["metadata"]["continue"] = token.as_str().into();
                }
                Ok(Answer { code: status.code, body })
            }
            Err(error) => Err(error),
        }
    }
}

pub(crate) fn config(kubectl: &Kubectl) -> Config {
    Config::from_kubeconfig(kubectl.kubeconfig()).expect("a kubeconfig that can be read")
}
