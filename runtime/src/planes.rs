//! Which planes a controller works in, and how each is reached.

use crate::parts::{PartGuard, Parts};
use freehold_client::Client;
use freehold_machinery::{PlaneId, Value, meta};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::broadcast;

/// The annotation with an object's plane in lists and watches over all planes.
const PLANE_ANNOTATION: &str = "freehold.dev/plane";

/// A client together with the planes that it serves. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Planes {
    client: Client,
    scope: Scope,
}

#[derive(Clone, Debug)]
enum Scope {
    All(Arc<Moves>),
    One { plane: PlaneId, base_path: String, moves: Option<Arc<Moves>> },
    View { base_path: String },
}

/// How long an arriving plane is waited for.
const ARRIVAL: Duration = Duration::from_secs(10);
/// Moves that an informer can be behind; more make it list everything again.
const BEHIND: usize = 64;

/// Whether controllers over all planes work in a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// They do.
    Here,
    /// They will when stores have its objects.
    Arriving,
    /// Other controllers do.
    Away,
}

/// Who controls in a plane, from little that others do to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// These controllers alone.
    #[default]
    Ours,
    /// A cluster that runs the plane's Pods binds their claims and gives addresses to Services; these controllers do the rest.
    Cluster,
    /// Other controllers.
    Others,
}

/// Planes that came and went.
#[derive(Debug)]
struct Moves {
    sender: broadcast::Sender<Move>,
    /// When arriving planes began to; `None` for those away.
    absent: Mutex<HashMap<PlaneId, Option<Instant>>>,
    /// Planes in which others control, at least in part.
    control: Mutex<HashMap<PlaneId, Control>>,
    /// Where several instances divide the planes between them.
    parts: Option<Parts>,
}

/// A plane or part that arrived or left.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Moved {
    /// A plane, to or from the server.
    Plane(PlaneId),
    /// A part of all planes, to or from this instance.
    Part(u32),
}

/// A plane, or a part of all, that came or went.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) what: Moved,
    /// Held by each informer until it has the objects; `None` if they went.
    pub(crate) arrival: Option<Arc<Arrival>>,
}

/// Marks a plane or part as present when the last informer has read it.
#[derive(Debug)]
pub(crate) struct Arrival {
    what: Moved,
    moves: Weak<Moves>,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let Some(moves) = self.moves.upgrade() else { return };
        match &self.what {
            Moved::Plane(plane) => {
                let mut absent = moves.absent.lock();
                // It may have gone again meanwhile.
                if absent.get(plane).is_some_and(Option::is_some) {
                    absent.remove(plane);
                }
            }
            Moved::Part(part) => moves.parts.iter().for_each(|parts| parts.arrived(*part)),
        }
    }
}

impl Moves {
    fn tell(self: &Arc<Self>, what: Moved, arrives: bool) {
        let arrival = arrives.then(|| Arc::new(Arrival { what: what.clone(), moves: Arc::downgrade(self) }));
        // Without informers there is nobody to tell.
        let _ = self.sender.send(Move { what, arrival });
    }
}

impl Planes {
    /// Every plane that the server serves itself.
    pub fn all(client: Client) -> Self {
        Self::divided(client, None)
    }

    /// Every plane that the server serves itself, divided into `count` parts, of which this instance begins with
    /// none.
    pub fn in_parts(client: Client, count: u32) -> Self {
        Self::divided(client, Some(Parts::new(count)))
    }

    fn divided(client: Client, parts: Option<Parts>) -> Self {
        let moves = Moves {
            sender: broadcast::Sender::new(BEHIND),
            absent: Mutex::default(),
            control: Mutex::default(),
            parts,
        };
        Self { client, scope: Scope::All(Arc::new(moves)) }
    }

    /// One plane of the same server, which informers read again when this instance gets its part.
    pub fn beside(&self, plane: PlaneId, base_path: &str) -> Self {
        let moves = match &self.scope {
            Scope::All(moves) => moves.parts.is_some().then(|| moves.clone()),
            Scope::One { .. } | Scope::View { .. } => None,
        };
        let scope = Scope::One { plane, base_path: base_path.to_owned(), moves };
        Self { client: self.client.clone(), scope }
    }

    /// One plane, at a base path of the server (`/planes/infra`; empty for a server with one plane).
    pub fn one(client: Client, plane: PlaneId, base_path: &str) -> Self {
        Self { client, scope: Scope::One { plane, base_path: base_path.to_owned(), moves: None } }
    }

    /// The planes that consume an export, through the provider's view at a base path of the server
    /// (`/services/apiexports/PROJECT/EXPORT`).
    pub fn view(client: Client, base_path: &str) -> Self {
        Self { client, scope: Scope::View { base_path: base_path.trim_end_matches('/').to_owned() } }
    }

    /// The only plane, or `None` for several.
    pub fn only(&self) -> Option<&PlaneId> {
        match &self.scope {
            Scope::All(_) | Scope::View { .. } => None,
            Scope::One { plane, .. } => Some(plane),
        }
    }

    /// A client for lists and watches over everything.
    pub fn everywhere(&self) -> Client {
        match &self.scope {
            Scope::All(_) => self.client.at("/planes/-"),
            Scope::One { base_path, .. } => self.client.at(base_path),
            Scope::View { base_path } => self.client.at(base_path),
        }
    }

    /// A client for one plane.
    pub fn client(&self, plane: &PlaneId) -> Client {
        match &self.scope {
            Scope::All(_) => self.client.at(&format!("/planes/{plane}")),
            Scope::One { base_path, .. } => self.client.at(base_path),
            Scope::View { base_path } => self.client.at(&format!("{base_path}/planes/{plane}")),
        }
    }

    /// One of these planes, by itself.
    pub fn within(&self, plane: &PlaneId) -> Self {
        let base = match &self.scope {
            Scope::All(_) => format!("/planes/{plane}"),
            Scope::One { base_path, .. } => base_path.clone(),
            Scope::View { base_path } => format!("{base_path}/planes/{plane}"),
        };
        Self::one(self.client.clone(), plane.clone(), &base)
    }

    /// A client for the server's own paths, below none of its planes.
    pub fn root(&self) -> Client {
        self.client.at("")
    }

    /// Reports that the server began to serve a plane that has objects already. Watches do not report those: informers
    /// read them now.
    pub fn arrive(&self, plane: &PlaneId) {
        let Scope::All(moves) = &self.scope else { return };
        moves.absent.lock().insert(plane.clone(), Some(Instant::now()));
        moves.tell(Moved::Plane(plane.clone()), true);
    }

    /// Reports that the server no longer serves a plane: informers forget its objects, which still exist.
    pub fn leave(&self, plane: &PlaneId) {
        let Scope::All(moves) = &self.scope else { return };
        moves.absent.lock().insert(plane.clone(), None);
        moves.tell(Moved::Plane(plane.clone()), false);
    }

    fn parts(&self) -> Option<&Parts> {
        match &self.scope {
            Scope::All(moves) => moves.parts.as_ref(),
            Scope::One { .. } | Scope::View { .. } => None,
        }
    }

    /// Takes a part of the planes: they are worked on when all informers have their objects.
    pub(crate) fn take(&self, part: u32) {
        let (Scope::All(moves), Some(parts)) = (&self.scope, self.parts()) else { return };
        parts.take(part);
        moves.tell(Moved::Part(part), true);
    }

    /// Gives a part back: when this has ended, nothing of this instance works on it.
    pub(crate) async fn give_back(&self, part: u32) {
        let (Scope::All(moves), Some(parts)) = (&self.scope, self.parts()) else { return };
        parts.give_back(part).await;
        moves.tell(Moved::Part(part), false);
    }

    /// Whether a plane is this instance's, as far as planes are divided.
    pub fn is_ours(&self, plane: &PlaneId) -> bool {
        self.parts().is_none_or(|parts| parts.arriving(parts.of(&[plane.as_str()])).is_some())
    }

    /// Whether a plane belongs to a part.
    pub(crate) fn is_in_part(&self, plane: &PlaneId, part: u32) -> bool {
        let moves = match &self.scope {
            Scope::All(moves) => Some(moves),
            Scope::One { moves, .. } => moves.as_ref(),
            Scope::View { .. } => None,
        };
        moves.and_then(|moves| moves.parts.as_ref()).is_some_and(|parts| parts.of(&[plane.as_str()]) == part)
    }

    /// Works in a plane, if and as long as it is this instance's; `None` otherwise.
    pub async fn work<T>(&self, plane: &PlaneId, work: impl Future<Output = T>) -> Option<T> {
        match self.parts() {
            None => Some(work.await),
            Some(parts) => {
                let turn: PartGuard = parts.begin(parts.of(&[plane.as_str()]))?;
                turn.during(work).await
            }
        }
    }

    /// Reports who controls in a plane that the server serves. When more of it becomes ours, informers read the plane again, so
    /// that each of its objects is reconciled.
    pub fn hand_over(&self, plane: &PlaneId, to: Control) {
        let Scope::All(moves) = &self.scope else { return };
        let before = match to {
            Control::Ours => moves.control.lock().remove(plane),
            other => moves.control.lock().insert(plane.clone(), other),
        };
        if before.is_some_and(|before| before > to) && !moves.absent.lock().contains_key(plane) {
            self.leave(plane);
            self.arrive(plane);
        }
    }

    /// Who controls in a plane.
    pub fn control(&self, plane: &PlaneId) -> Control {
        match &self.scope {
            Scope::All(moves) => moves.control.lock().get(plane).copied().unwrap_or_default(),
            _ => Control::Ours,
        }
    }

    /// Whether others do all that controls in a plane.
    pub fn is_handed_over(&self, plane: &PlaneId) -> bool {
        self.control(plane) == Control::Others
    }

    /// Whether controllers are to work in a plane.
    pub fn presence(&self, plane: &PlaneId) -> Presence {
        let Scope::All(moves) = &self.scope else { return Presence::Here };
        match self.parts().map(|parts| parts.arriving(parts.of(&[plane.as_str()]))) {
            Some(None) => return Presence::Away,
            Some(Some(true)) => return Presence::Arriving,
            _ => {}
        }
        match moves.absent.lock().get(plane) {
            None => Presence::Here,
            Some(None) => Presence::Away,
            Some(Some(since)) if since.elapsed() > ARRIVAL => Presence::Here,
            Some(Some(_)) => Presence::Arriving,
        }
    }

    /// Forgets an absent plane after its deletion.
    pub fn forget(&self, plane: &PlaneId) {
        if let Scope::All(moves) = &self.scope {
            moves.absent.lock().remove(plane);
            moves.control.lock().remove(plane);
        }
    }

    /// Moves from now on; `None` where planes don't move.
    pub(crate) fn moves(&self) -> Option<broadcast::Receiver<Move>> {
        match &self.scope {
            Scope::All(moves) => Some(moves.sender.subscribe()),
            Scope::One { moves, .. } => moves.as_ref().map(|moves| moves.sender.subscribe()),
            Scope::View { .. } => None,
        }
    }

    /// The plane of an object from [`Planes::everywhere`]; `None` where the server left it out.
    pub fn plane_of(&self, object: &Value) -> Option<PlaneId> {
        match &self.scope {
            Scope::All(_) | Scope::View { .. } => meta::annotation(object, PLANE_ANNOTATION)?.parse().ok(),
            Scope::One { plane, .. } => Some(plane.clone()),
        }
    }
}

/// Removes the annotations that the server added for readers of several planes, and fields that no controller reads.
pub(crate) fn strip(object: &mut Value) {
    let metadata = meta::metadata_mut(object);
    metadata.remove("managedFields");
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(PLANE_ANNOTATION);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::{Config, Identity};

    #[test]
    fn a_providers_view_is_read_as_one_and_written_in_each_plane() {
        let client = Client::new(&Config::new("http://127.0.0.1:1", "", Identity::None)).unwrap();
        let planes = Planes::view(client, "/services/apiexports/db/postgres/");
        let plane: PlaneId = "p".parse().unwrap();
        let base = "client of http://127.0.0.1:1/services/apiexports/db/postgres";
        assert_eq!(format!("{:?}", planes.everywhere()), base);
        assert_eq!(format!("{:?}", planes.client(&plane)), format!("{base}/planes/p"));
        assert_eq!(planes.presence(&plane), Presence::Here);
        let object = serde_json::json!({"metadata": {"annotations": {PLANE_ANNOTATION: "p"}}});
        assert_eq!(planes.plane_of(&object), Some(plane));
    }

    #[test]
    fn a_plane_that_is_taken_back_from_others_is_read_again() {
        let planes =
            Planes::all(Client::new(&Config::new("http://127.0.0.1:1", "", Identity::None)).unwrap());
        let plane: PlaneId = "p".parse().unwrap();
        let mut informer = planes.moves().unwrap();
        planes.hand_over(&plane, Control::Ours);
        assert!(informer.try_recv().is_err(), "it was not handed over");
        planes.hand_over(&plane, Control::Cluster);
        planes.hand_over(&plane, Control::Others);
        assert_eq!(planes.control(&plane), Control::Others);
        assert!(informer.try_recv().is_err(), "nothing became ours");
        planes.hand_over(&plane, Control::Ours);
        assert_eq!(planes.control(&plane), Control::Ours);
        assert!(informer.try_recv().unwrap().arrival.is_none());
        assert!(informer.try_recv().unwrap().arrival.is_some());
    }

    #[test]
    fn a_plane_that_arrives_is_present_when_every_informer_has_it() {
        let planes =
            Planes::all(Client::new(&Config::new("http://127.0.0.1:1", "", Identity::None)).unwrap());
        let plane: PlaneId = "p".parse().unwrap();
        let mut informers = [planes.moves().unwrap(), planes.moves().unwrap()];
        planes.leave(&plane);
        assert_eq!(planes.presence(&plane), Presence::Away);
        planes.arrive(&plane);
        for informer in &mut informers {
            assert_eq!(planes.presence(&plane), Presence::Arriving);
            assert!(informer.try_recv().unwrap().arrival.is_none());
            assert!(informer.try_recv().unwrap().arrival.is_some());
        }
        assert_eq!(planes.presence(&plane), Presence::Here);
    }
}
