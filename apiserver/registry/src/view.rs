//! How objects of several planes are shown.

use async_trait::async_trait;
use freehold_apiserver_operation::Object;
use freehold_machinery::{PlaneId, PlaneMap, ResourceType, Result};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Shows an object of one plane; `None` leaves it out.
pub type ShowObject = Box<dyn Fn(Object) -> Option<Object> + Send + Sync>;

/// Decides what of a plane is shown to whoever looks at several planes; `None` leaves the plane out.
type ShowPlane = dyn Fn(&PlaneId) -> Option<ShowObject> + Send + Sync;

/// Knows what each of several planes serves by itself.
#[async_trait]
pub trait OwnTypes: Send + Sync + 'static {
    /// A plane's own type under the group, version and resource of another; `None` where it serves none.
    async fn own(&self, plane: &PlaneId, like: &ResourceType) -> Result<Option<Arc<ResourceType>>>;

    /// What a plane is called in messages.
    fn called(&self, plane: &PlaneId) -> String;
}

/// How objects are shown.
#[derive(Clone)]
pub struct View {
    of_plane: Arc<ShowPlane>,
    /// Equal for views that show an object the same way; 0 for the one that adds nothing.
    pub(crate) key: u64,
    pub(crate) name: Box<str>,
}

impl View {
    /// A view, by what it shows of each plane. `name` tells it from those that show the same object otherwise.
    pub fn new(
        name: &str,
        of_plane: impl Fn(&PlaneId) -> Option<ShowObject> + Send + Sync + 'static,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { of_plane: Arc::new(of_plane), key: hasher.finish() | 1, name: name.into() }
    }

    /// Objects as they are.
    fn plain() -> Self {
        let of_plane = |_: &PlaneId| -> Option<ShowObject> { Some(Box::new(Some)) };
        Self { of_plane: Arc::new(of_plane), key: 0, name: Box::default() }
    }

    /// An object as it is shown now.
    pub(crate) fn show(&self, plane: &PlaneId, object: Object) -> Option<Object> {
        (self.of_plane)(plane)?(object)
    }

    /// Whether objects of a plane may be shown now.
    pub(crate) fn shows(&self, plane: &PlaneId) -> bool {
        (self.of_plane)(plane).is_some()
    }

    /// Decides once for each plane, for objects that are shown together.
    pub(crate) fn together(&self) -> Together<'_> {
        Together { view: self, planes: PlaneMap::default() }
    }
}

/// What a view shows of planes, as it was decided for each of them first.
pub(crate) struct Together<'a> {
    view: &'a View,
    planes: PlaneMap<Option<ShowObject>>,
}

impl Together<'_> {
    fn of(&mut self, plane: &PlaneId) -> Option<&ShowObject> {
        if !self.planes.contains_key(plane) {
            self.planes.insert(plane.clone(), (self.view.of_plane)(plane));
        }
        self.planes.get(plane)?.as_ref()
    }

    /// Whether objects of a plane are shown.
    pub(crate) fn shows(&mut self, plane: &PlaneId) -> bool {
        self.of(plane).is_some()
    }

    /// An object as it is shown.
    pub(crate) fn show(&mut self, plane: &PlaneId, object: Object) -> Option<Object> {
        self.of(plane)?(object)
    }
}

/// Which planes, and how their objects are shown.
#[derive(Clone)]
pub struct Across {
    /// The planes; `None` stands for all. Objects of their layers are shown for named planes only.
    pub planes: Option<Vec<PlaneId>>,
    /// What is shown.
    pub view: View,
    /// How objects come into the version that was asked for.
    pub versions: Versions,
}

/// How objects of several planes come into the version that was asked for.
#[derive(Clone)]
pub enum Versions {
    /// Those that a webhook would have to convert are shown as they are stored: it must not see what is in another plane.
    AsStored,
    /// By each plane's own type.
    OfPlanes(Arc<dyn OwnTypes>),
    /// By the type that was asked for, whose webhook may see the objects of all these planes.
    OfType,
}

impl Across {
    /// One plane, as it is.
    pub(crate) fn one(plane: &PlaneId) -> Self {
        Self { planes: Some(vec![plane.clone()]), view: View::plain(), versions: Versions::AsStored }
    }
}
