//! Clients for a provider's view.

use http::{Uri, uri::PathAndQuery};
use kube::{Client, Config, client::Body};
use tower::service_fn;

/// The annotation that names the consumer's project on each object of the view.
pub const PROJECT: &str = "resourcemanager.freehold.dev/project";

/// Why a view can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has no address of a server.
    #[error("the address of the server is none")]
    Address(#[source] http::uri::InvalidUriParts),
    /// A name can't be part of a path.
    #[error("{0:?} can't be part of a path")]
    Name(String),
    /// The client can't be made.
    #[error("failed to make the client")]
    Client(#[source] kube::Error),
}

/// The consumers of one export. Clients made of it share connections.
#[derive(Clone)]
pub struct Consumers {
    base: Client,
    view: String,
}

impl Consumers {
    /// The consumers of an export of a project. Of the address in `config` the path is left out.
    ///
    /// # Errors
    /// Names that can't be part of a path, and what is wrong with the configuration.
    pub fn new(mut config: Config, project: &str, export: &str) -> Result<Self, Error> {
        let mut parts = std::mem::take(&mut config.cluster_url).into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        config.cluster_url = Uri::from_parts(parts).map_err(Error::Address)?;
        let view = format!("/services/apiexports/{}/{}", segment(project)?, segment(export)?);
        Ok(Self { base: Client::try_from(config).map_err(Error::Client)?, view })
    }

    /// The client over all consumers, which lists and watches.
    pub fn all(&self) -> Client {
        self.below(self.view.clone())
    }

    /// The client for one consumer, by the name in [`Request::consumer`](crate::Request::consumer).
    ///
    /// # Errors
    /// A name that can't be part of a path.
    pub fn one(&self, consumer: &str) -> Result<Client, Error> {
        Ok(self.below(format!("{}/clusters/{}", self.view, segment(consumer)?)))
    }

    fn below(&self, prefix: String) -> Client {
        let base = self.base.clone();
        let service = service_fn(move |mut request: http::Request<Body>| {
            let (base, uri) = (base.clone(), prefixed(&prefix, request.uri()));
            async move {
                *request.uri_mut() = uri.map_err(kube::Error::HttpError)?;
                base.send(request).await
            }
        });
        Client::new(service, self.base.default_namespace())
    }
}

fn prefixed(prefix: &str, uri: &Uri) -> Result<Uri, http::Error> {
    let rest = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    Uri::builder().path_and_query(format!("{prefix}{rest}")).build()
}

/// A name as part of a path.
fn segment(name: &str) -> Result<&str, Error> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    match !name.is_empty() && name.chars().all(is_plain) && name.chars().any(|c| c != '.') {
        true => Ok(name),
        false => Err(Error::Name(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_below_the_view() {
        let uri = Uri::from_static("/api/v1/secrets?limit=1");
        assert_eq!(prefixed("/services/x", &uri).unwrap(), "/services/x/api/v1/secrets?limit=1");
    }

    #[test]
    fn a_name_stays_one_part_of_the_path() {
        assert!(segment("shop-1.eu").is_ok());
        for name in ["", "..", "a/b", "*", "a?b", "a%2fb"] {
            assert!(segment(name).is_err(), "{name}");
        }
    }
}
