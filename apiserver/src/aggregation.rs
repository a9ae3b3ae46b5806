//! What the aggregator needs of the rest: certificates to show, and a way to write what it found out.

use anyhow::Result as AnyResult;
use async_trait::async_trait;
use freehold_api::keys::aggregator_name;
use freehold_apiserver_aggregation::{Identities, Statuses};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_outbound::Identity;
use freehold_apiserver_planes::Directory;
use freehold_apiserver_registry::{Body, Operation, Registry, WriteOptions};
use freehold_machinery::{
    PlaneId, PlaneMap, Result, Status, User,
    api_service::{self, GROUP, RESOURCE},
    meta,
    user::MASTERS,
};
use freehold_pki::{Authority, ClientName, Pair};
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a certificate is valid, and how long it is used.
const VALIDITY: (Duration, Duration) = (DAY.saturating_mul(30), DAY.saturating_mul(20));
/// Planes whose certificates are kept; over it all are made anew.
const MAX_PLANES: usize = 1_024;

/// Who an apiserver is to the aggregated servers of its planes.
#[derive(Clone)]
pub enum AggregatorIdentity {
    /// To each plane's servers somebody else, with certificates of this authority.
    Authority(Arc<Authority>),
    /// The one that the apiserver of one plane was given.
    Pair(Pair),
    /// Nobody: servers can't know its users.
    Nobody,
}

/// Certificates by plane, made when they are first needed.
pub(crate) struct Certificates {
    source: AggregatorIdentity,
    made: Mutex<PlaneMap<(Instant, Arc<Identity>)>>,
}

fn identity(pair: &Pair) -> Arc<Identity> {
    Arc::new(Identity { chain: pair.cert_pem.clone().into_bytes(), key: pair.key_pem.as_bytes().to_vec() })
}

impl Certificates {
    pub(crate) fn new(source: AggregatorIdentity) -> Self {
        Self { source, made: Mutex::default() }
    }

    fn issue(&self, plane: &PlaneId) -> AnyResult<Option<Arc<Identity>>> {
        Ok(match &self.source {
            AggregatorIdentity::Nobody => None,
            AggregatorIdentity::Pair(pair) => Some(identity(pair)),
            AggregatorIdentity::Authority(authority) => {
                let name = ClientName { user: &aggregator_name(plane.as_str()), groups: &[], plane: None };
                Some(identity(&authority.issue_client(&name, VALIDITY.0)?))
            }
        })
    }
}

impl Identities for Certificates {
    fn of(&self, plane: &PlaneId) -> Result<Option<Arc<Identity>>, String> {
        let mut made = self.made.lock();
        if let Some((at, identity)) = made.get(plane).filter(|(at, _)| at.elapsed() < VALIDITY.1) {
            let _ = at;
            return Ok(Some(identity.clone()));
        }
        let issued =
            self.issue(plane).map_err(|error| format!("a client certificate can't be made: {error}"))?;
        if made.len() >= MAX_PLANES {
            made.clear();
        }
        made.extend(issued.clone().map(|identity| (plane.clone(), (Instant::now(), identity))));
        Ok(issued)
    }
}

/// Writes conditions through the registry: of planes that this server serves. What a pair says of its servers is its own.
pub(crate) struct Conditions {
    pub(crate) registry: Arc<Registry>,
    pub(crate) directory: Arc<Directory>,
}

#[async_trait]
impl Statuses for Conditions {
    async fn write(
        &self,
        plane: &PlaneId,
        name: &str,
        uid: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Result<()> {
        if self.directory.by_plane(plane).is_some_and(|info| info.dedicated) {
            return Ok(());
        }
        let types = TypeSet::builtin();
        let ty = types.find(GROUP, "v1", RESOURCE).cloned().ok_or_else(Status::no_such_resource)?;
        let user = User { name: "system:apiserver".into(), groups: vec![MASTERS.into()], ..User::default() };
        let op = Operation {
            plane: plane.clone(),
            types,
            user: Arc::new(user),
            ty,
            namespace: None,
            name: Some(name.to_owned()),
            subresource: Some("status".to_owned()),
            seen: 0,
            narrowed: false,
            annotations: freehold_apiserver_registry::Annotations::default(),
        };
        let mut object = (*self.registry.get(&op, "").await?.value()).clone();
        let now = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
        let condition = api_service::condition(status, reason, message, &now);
        if meta::uid(&object) != uid || !api_service::set_condition(&mut object, condition) {
            return Ok(());
        }
        let body = Body::from(object);
        let options = WriteOptions { field_manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
        self.registry.update(&op, &body, &options).await.map(drop)
    }

    fn changed(&self, plane: &PlaneId) {
        self.directory.tell(plane);
    }
}
