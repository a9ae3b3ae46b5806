//! Which planes a controller works in, and how each is reached.

use freehold_client::Client;
use freehold_machinery::{PlaneId, Value, meta};

/// The annotation that tells an object's plane in lists and watches over all planes.
const PLANE_ANNOTATION: &str = "freehold.dev/plane";

/// A client together with the planes that it serves. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Planes {
    client: Client,
    scope: Scope,
}

#[derive(Clone, Debug)]
enum Scope {
    All,
    One { plane: PlaneId, base_path: String },
}

impl Planes {
    /// Every plane that the server serves itself.
    pub fn all(client: Client) -> Self {
        Self { client, scope: Scope::All }
    }

    /// One plane, at a base path of the server (`/planes/infra`; empty for a server with one plane).
    pub fn one(client: Client, plane: PlaneId, base_path: &str) -> Self {
        Self { client, scope: Scope::One { plane, base_path: base_path.to_owned() } }
    }

    /// The one plane, or `None` where there are many.
    pub fn only(&self) -> Option<&PlaneId> {
        match &self.scope {
            Scope::All => None,
            Scope::One { plane, .. } => Some(plane),
        }
    }

    /// A client for lists and watches over everything.
    pub fn everywhere(&self) -> Client {
        match &self.scope {
            Scope::All => self.client.at("/planes/-"),
            Scope::One { base_path, .. } => self.client.at(base_path),
        }
    }

    /// A client for one plane.
    pub fn client(&self, plane: &PlaneId) -> Client {
        match &self.scope {
            Scope::All => self.client.at(&format!("/planes/{plane}")),
            Scope::One { base_path, .. } => self.client.at(base_path),
        }
    }

    /// A client for the server's own paths, below none of its planes.
    pub fn root(&self) -> Client {
        self.client.at("")
    }

    /// The plane of an object from [`Planes::everywhere`]; `None` where the server left it out.
    pub fn plane_of(&self, object: &Value) -> Option<PlaneId> {
        match &self.scope {
            Scope::All => meta::annotation(object, PLANE_ANNOTATION)?.parse().ok(),
            Scope::One { plane, .. } => Some(plane.clone()),
        }
    }
}

/// Takes away what the server added for the reader of several planes, and what no controller reads.
pub(crate) fn strip(object: &mut Value) {
    let metadata = meta::metadata_mut(object);
    metadata.remove("managedFields");
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(PLANE_ANNOTATION);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}
