//! Lists and watches over several planes at once, with one resource version.

use crate::{
    List, ListOptions, Object, Operation, Registry, WatchEvent, WatchOptions,
    list::{At, expired},
    select::Selection,
    token::{Seal, Token},
};
use async_trait::async_trait;
use freehold_apiserver_cache::{Entry, PageOfPlanes, PagesOfPlanes, Scope};
use freehold_machinery::{PlaneId, PlaneMap, ResourceType, Result};
use futures_util::Stream;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Objects that are read at a time for a list that has no limit.
pub(crate) const PAGE: usize = 500;

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
    name: Box<str>,
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

impl Registry {
    /// Lists a resource over several planes, in the order of their identifiers, in pages or whole.
    pub async fn list_across(&self, op: &Operation, options: &ListOptions, across: &Across) -> Result<List> {
        let selection = Selection::new(&op.ty, op.namespace.as_deref(), options)?;
        let seal = Seal::new(&self.tokens, op, options, &across.view.name);
        let token = seal.open()?;
        let (at, after) = self.start_across(options, token.as_ref()).await?;
        let mut pages = self.pages(op, across, at, after).await?;
        let mut list =
            List { items: Vec::new(), revision: at, continue_token: String::new(), remaining: None };
        let most = if options.limit == 0 { usize::MAX } else { options.limit };
        // What was seen last, and whether there is more behind it.
        let mut last: Option<(PlaneId, Arc<Entry>)> = None;
        let size = if options.limit == 0 { PAGE } else { options.limit.min(PAGE) + 1 };
        loop {
            let page = self.cache.page_of_planes(&mut pages, size).await;
            let page = page.map_err(|status| expired(status, &seal, token.as_ref()))?;
            let Some(mut page) = page else { return Ok(list) };
            // What is not shown is not sent to a webhook either.
            let mut shown = across.view.together();
            page.retain(|found| selection.matches(&found.entry) && shown.shows(&found.plane));
            let objects = self.converter.across(&across.versions, &self.cache, &op.ty, &page).await?;
            for (PageOfPlanes { plane, entry }, object) in page.iter().zip(objects) {
                if selection.needs_conversion() && !selection.shows(&object.value()) {
                    continue;
                }
                let Some(object) = shown.show(plane, object) else { continue };
                if list.items.len() == most {
                    let (plane, entry) = last.unwrap_or((plane.clone(), entry.clone()));
                    list.continue_token = seal.seal(&Token::across(at, &plane, entry.place()))?;
                    return Ok(list);
                }
                list.items.push(object);
                last = Some((plane.clone(), entry.clone()));
            }
        }
    }

    /// The revision that a list is of, and behind what it goes on.
    async fn start_across(
        &self,
        options: &ListOptions,
        token: Option<&Token>,
    ) -> Result<(u64, Option<(PlaneId, Box<str>)>)> {
        let at = options.at(token.is_some())?;
        let Some(token) = token else {
            let revision = match at {
                At::Latest => self.cache.catch_up().await?,
                At::Exact(revision) => {
                    self.cache.wait_for_asked(revision).await?;
                    revision
                }
                At::NotOlderThan(revision) => {
                    self.cache.wait_for_asked(revision).await?;
                    self.cache.applied()
                }
            };
            return Ok((revision, None));
        };
        let plane = token.plane()?;
        let revision = if token.rv == 0 { self.cache.catch_up().await? } else { token.rv };
        self.cache.wait_for_asked(revision).await?;
        Ok((revision, Some((plane, token.start.as_str().into()))))
    }

    pub(crate) async fn pages(
        &self,
        op: &Operation,
        across: &Across,
        at: u64,
        after: Option<(PlaneId, Box<str>)>,
    ) -> Result<PagesOfPlanes> {
        let what = (&*op.ty.storage.group, &*op.ty.storage.resource, op.namespace.as_deref());
        let mut planes = across.planes.clone();
        planes.iter_mut().for_each(|planes| planes.sort_unstable());
        let pages = self.cache.pages_of_planes(planes, what, at, after).await?;
        Ok(match across.versions {
            Versions::OfType => self.cache.read_apart(pages),
            _ => pages,
        })
    }

    /// Watches a resource over several planes, those included that come later and that the view shows.
    pub async fn watch_across(
        &self,
        op: &Operation,
        options: &WatchOptions,
        across: &Across,
    ) -> Result<impl Stream<Item = WatchEvent> + Send + use<>> {
        self.open(op, options, Scope::AllPlanes, across).await
    }
}
