//! Lists and watches over several planes at once, with one resource version.

use crate::{
    List, ListOptions, Operation, Registry, WatchEvent, WatchOptions,
    list::{At, at, expired},
    select::Selection,
    token::{Seal, Token},
    view::{Across, Versions},
};
use freehold_apiserver_cache::{Entry, PageOfPlanes, PagesOfPlanes, Scope};
use freehold_machinery::{PlaneId, Result};
use futures_util::Stream;
use std::sync::Arc;

/// Objects that are read at a time for a list that has no limit.
pub(crate) const PAGE: usize = 500;

impl Registry {
    /// Lists a resource over several planes, in the order of their identifiers, in pages or whole.
    ///
    /// # Errors
    /// A 400 for selectors and tokens that make no sense, a 410 for a revision that was compacted, and what the cache fails with.
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
        let at = at(options, token.is_some())?;
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
    ///
    /// # Errors
    /// A 400 for selectors and tokens that make no sense, a 410 for a revision that was compacted, and what the cache fails with.
    pub async fn watch_across(
        &self,
        op: &Operation,
        options: &WatchOptions,
        across: &Across,
    ) -> Result<impl Stream<Item = WatchEvent> + Send + use<>> {
        self.open(op, options, Scope::AllPlanes, across).await
    }
}
