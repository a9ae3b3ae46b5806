//! Webhooks of planes, reached through [`Outbound`].

use crate::credentials::{Credential, WebhookCredentials};
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_outbound::{Destination, Host, Outbound, Trust};
use freehold_apiserver_registry::{At, ClientConfig, Question, Webhooks};
use freehold_machinery::PlaneId;
use http::{HeaderMap, header};
use std::sync::Arc;

/// Characters of an answer that an error repeats.
const SHOWN: usize = 1024;

/// Asks webhooks, in the words of client-go where that fails.
pub(crate) struct Hooks {
    outbound: Arc<Outbound>,
    credentials: WebhookCredentials,
}

impl Hooks {
    /// Reaches webhooks through `outbound`, as who the credentials say.
    pub(crate) fn new(outbound: Arc<Outbound>, credentials: WebhookCredentials) -> Self {
        Self { outbound, credentials }
    }
}

#[async_trait]
impl Webhooks for Hooks {
    async fn ask(&self, plane: &PlaneId, client: &ClientConfig, question: Question) -> Result<Bytes, String> {
        let host = match &client.at {
            At::Service { namespace, name, port } => {
                Host::Service { namespace: namespace.clone(), name: name.clone(), port: *port }
            }
            At::Url { host, port, .. } => Host::Url { host: host.clone(), port: *port },
        };
        let trust = if client.ca.is_empty() { Trust::System } else { Trust::Bundle(client.ca.clone()) };
        let Credential { identity, authorization } = self.credentials.of_webhook(question.plugin, &client.at);
        let destination = Destination { plane: plane.clone(), host, trust, identity };
        let told = match question.told {
            true => format!("?timeout={}s", question.timeout.as_secs()),
            false => String::new(),
        };
        let path = format!("{}{told}", client.path);
        let authorization = authorization.map(|value| (header::AUTHORIZATION, value));
        let headers: HeaderMap = authorization.into_iter().collect();
        let Question { body, timeout, max, .. } = question;
        match self.outbound.call(&destination, &path, body, &headers, timeout, max).await {
            Ok(answer) if (200..300).contains(&answer.status) => Ok(answer.body),
            Ok(answer) => Err(refused(answer.status, &answer.body)),
            Err(error) => Err(format!("Post \"{}{told}\": {error}", client.url())),
        }
    }
}

/// An answer that is none, as client-go puts it.
fn refused(code: u16, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]);
    let body = body.trim();
    let text = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 if !body.is_empty() => body,
        403 => "the server does not allow access to the requested resource",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!("an error on the server ({body:?}) has prevented the request from succeeding");
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_none_is_told_in_the_words_of_client_go() {
        assert_eq!(refused(404, b"x"), "the server could not find the requested resource");
        assert_eq!(
            refused(500, b"boom\n"),
            "an error on the server (\"boom\") has prevented the request from succeeding"
        );
        assert!(refused(302, b"").starts_with("the server responded with the status code 302"));
    }
}
