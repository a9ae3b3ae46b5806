//! The authorities of planes' clients, as planes publish them.

use freehold_apiserver_planes::ClientsOf;
use freehold_machinery::PlaneId;
use freehold_pki::Authority;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Planes whose authority is kept: it is made anew for others. Over it the table starts anew.
const KEPT: usize = 256;

/// Who vouches for the clients of planes.
#[derive(Clone)]
pub enum ClientAuthority {
    /// Authorities that follow from the platform's, one for each plane.
    Platform(Arc<Authority>),
    /// The authority of the one plane of this server, PEM.
    Plane(String),
}

impl ClientAuthority {
    /// The certificates of planes' authorities.
    pub(crate) fn published(&self) -> ClientsOf {
        match self.clone() {
            Self::Plane(pem) => Arc::new(move |_| pem.clone()),
            Self::Platform(platform) => {
                // A certificate made anew is as good, but reads of one object should give the same text.
                let kept: Mutex<HashMap<PlaneId, String>> = Mutex::default();
                Arc::new(move |plane| {
                    if let Some(known) = kept.lock().get(plane) {
                        return known.clone();
                    }
                    let made = platform.root_for_plane(plane.as_str());
                    let pem = made.unwrap_or_else(|error| {
                        tracing::error!(%plane, %error, "failed to derive the authority of a plane's clients");
                        String::new()
                    });
                    let mut kept = kept.lock();
                    if kept.len() >= KEPT {
                        kept.clear();
                    }
                    kept.entry(plane.clone()).or_insert(pem).clone()
                })
            }
        }
    }
}
