//! How objects of several planes are shown.

use async_trait::async_trait;
use freehold_apiserver_operation::Object;
use freehold_machinery::{PlaneId, ResourceType, Result};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Shows an object of a plane to whoever looks at several planes; `None` leaves it out.
type Show = dyn Fn(&PlaneId, Object) -> Option<Object> + Send + Sync;

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
    pub(crate) show: Arc<Show>,
    /// Equal for views that show an object the same way; 0 for the one that adds nothing.
    pub(crate) key: u64,
    pub(crate) name: Box<str>,
}

impl View {
    /// A view. `name` tells it from those that show the same object otherwise.
    pub fn new(
        name: &str,
        show: impl Fn(&PlaneId, Object) -> Option<Object> + Send + Sync + 'static,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { show: Arc::new(show), key: hasher.finish() | 1, name: name.into() }
    }

    /// Objects as they are.
    fn plain() -> Self {
        Self { show: Arc::new(|_, object| Some(object)), key: 0, name: Box::default() }
    }
}

/// Which planes, and how their objects are shown.
#[derive(Clone)]
pub struct Across {
    /// The planes; `None` stands for all. Objects of their layers are shown for named planes only.
    pub planes: Option<Vec<PlaneId>>,
    /// What is shown.
    pub view: View,
    /// By whose types objects come into the version that was asked for. Without it, those that need a webhook for that are
    /// shown as they are stored.
    pub types: Option<Arc<dyn OwnTypes>>,
}

impl Across {
    /// One plane, as it is.
    pub(crate) fn one(plane: &PlaneId) -> Self {
        Self { planes: Some(vec![plane.clone()]), view: View::plain(), types: None }
    }
}
