//! Documents of issuers, fetched.

use async_trait::async_trait;
use freehold_apiserver_authn::Fetch;
use freehold_apiserver_outbound::{Destination, Host, Outbound, Trust};
use freehold_machinery::PlaneId;
use http::Uri;
use std::{sync::Arc, time::Duration};

/// Longest time for a document.
const TIME: Duration = Duration::from_secs(10);
/// Most bytes of one.
const MAX: usize = 1 << 20;

/// Gets documents through [`Outbound`], which says what may be reached.
pub(super) struct Documents {
    outbound: Arc<Outbound>,
    /// On whose behalf, so that the calls of each have places of their own.
    plane: PlaneId,
}

impl Documents {
    pub(super) fn new(outbound: Arc<Outbound>, plane: PlaneId) -> Self {
        Self { outbound, plane }
    }
}

#[async_trait]
impl Fetch for Documents {
    async fn get(&self, url: &str, authorities: &str) -> Result<Vec<u8>, String> {
        let uri: Uri = url.parse().map_err(|_| format!("{url:?} is no URL"))?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
        let host = host.ok_or_else(|| format!("{url:?} is no https URL"))?;
        let destination = Destination {
            plane: self.plane.clone(),
            host: Host::Url {
                host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
                port: uri.port_u16().unwrap_or(443),
            },
            trust: Trust::of_bundle(authorities.trim().as_bytes()),
            identity: None,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        match self.outbound.fetch(&destination, path, TIME, MAX).await {
            Ok(answer) if answer.status == 200 => Ok(answer.body.to_vec()),
            Ok(answer) => Err(format!("Get {url:?}: the server answered {}", answer.status)),
            Err(error) => Err(format!("Get {url:?}: {error}")),
        }
    }
}
