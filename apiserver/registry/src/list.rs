//! Lists, in pages or whole.
//!
//! The first page comes from the cache; its continue token names the revision and the last place, and further pages come
//! from the cache as long as nothing has changed since, otherwise from the store at that revision. So tokens survive a
//! restart, and expire when the store compacts.

use crate::{
    List, ListOptions, Operation, Registry,
    convert::schema_since,
    registry::parse_version,
    select::Selection,
    token::{Seal, Token},
};
use freehold_apiserver_cache::{Entry, ListRequest, ListedPart, Wanted};
use freehold_machinery::{Result, Status};
use std::sync::Arc;

/// As of when a list is asked for.
pub(crate) enum At {
    /// The latest.
    Latest,
    /// Anything not older.
    NotOlderThan(u64),
    /// Exactly then.
    Exact(u64),
}

/// As of when the list is. `continued` is whether it goes on behind a token.
pub(crate) fn at(options: &ListOptions, continued: bool) -> Result<At> {
    let unreadable =
        |error: Status| Status::bad_request(format!("invalid resource version: {}", error.message));
    let matching = options.resource_version_match.as_str();
    if continued {
        if !matching.is_empty() {
            return Err(forbidden_match("resourceVersionMatch is forbidden when continue is provided"));
        }
        return match options.resource_version.as_str() {
            "" | "0" => Ok(At::Latest),
            _ => Err(Status::bad_request("specifying resource version is not allowed when using continue")),
        };
    }
    match (parse_version(&options.resource_version).map_err(unreadable)?, matching) {
        (None, "") => Ok(At::Latest),
        (None, _) => {
            Err(forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided"))
        }
        (Some(0), "Exact") => {
            Err(forbidden_match("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
        }
        (Some(version), "Exact") => Ok(At::Exact(version)),
        (Some(version), "") if options.limit > 0 && version > 0 => Ok(At::Exact(version)),
        (Some(version), "" | "NotOlderThan") => Ok(At::NotOlderThan(version)),
        (Some(_), other) => Err(forbidden_match(&format!(
            "supported values: \"Exact\", \"NotOlderThan\", \"\"; not {other:?}"
        ))),
    }
}

fn forbidden_match(why: &str) -> Status {
    Status::bad_request(format!("resourceVersionMatch: Forbidden: {why}"))
}

/// Up to so many objects behind a page of the past are counted for `remainingItemCount`, which may be left out
/// (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/list-meta/>).
const COUNTED: usize = 5_000;

/// Entries in order, with what is needed to go on behind them.
pub(crate) struct Entries {
    pub(crate) items: Vec<Arc<Entry>>,
    pub(crate) revision: u64,
    pub(crate) more: bool,
    pub(crate) remaining: Option<u64>,
}

impl Entries {
    fn of(listed: ListedPart, selection: &Selection) -> Self {
        let ListedPart { objects, revision, left, .. } = listed;
        let remaining = Some(left as u64).filter(|left| *left > 0 && selection.is_everything());
        Self { items: objects, revision, more: left > 0, remaining }
    }
}

impl Registry {
    /// Lists a resource of one plane.
    ///
    /// # Errors
    /// A 400 for selectors and tokens that make no sense, a 410 for a revision that was compacted, and what the cache fails with.
    pub async fn list(&self, op: &Operation, options: &ListOptions) -> Result<List> {
        let selection = Selection::new(&op.ty, op.namespace.as_deref(), options)?;
        let view = options.shown.as_ref().map_or("", |shown| &shown.name);
        let seal = Seal::new(&self.tokens, op, options, view);
        let token = seal.open()?;
        let at = at(options, token.is_some())?;
        // kube-apiserver's cache takes no notice of a limit where anything will do, however old.
        let limit = if options.resource_version == "0" { 0 } else { options.limit };
        let found = match (&token, at) {
            (Some(token), _) => {
                let page = self.next_page(op, &selection, token, limit).await;
                page.map_err(|status| expired(status, &seal, Some(token)))?
            }
            (None, At::Exact(revision)) => {
                let page = self.past(op, &selection, revision, "", limit).await;
                page.map_err(|status| expired(status, &seal, None))?
            }
            (None, At::NotOlderThan(revision)) => {
                self.cache.wait_for_asked(revision).await?;
                self.present(op, &selection, "", limit).await?
            }
            (None, At::Latest) => {
                self.catch_up(op).await?;
                self.present(op, &selection, "", limit).await?
            }
        };
        let token = match found.items.last().filter(|_| found.more) {
            Some(last) => seal.seal(&Token::new(found.revision, last.place()))?,
            None => String::new(),
        };
        let since = schema_since(&self.cache, &op.plane, &op.ty);
        let mut items = self.converter.all(&op.plane, &op.ty, found.items, since).await?;
        if selection.needs_conversion() {
            items.retain(|object| selection.shows(&object.value()));
        }
        Ok(List { items, revision: found.revision, continue_token: token, remaining: found.remaining })
    }

    async fn next_page(
        &self,
        op: &Operation,
        selection: &Selection,
        token: &Token,
        limit: usize,
    ) -> Result<Entries> {
        if token.rv == 0 {
            self.catch_up(op).await?;
            return self.present(op, selection, &token.start, limit).await;
        }
        self.past(op, selection, token.rv, &token.start, limit).await
    }

    fn request<'a>(op: &'a Operation, selection: &'a Selection) -> ListRequest<'a> {
        let (group, resource) = (&*op.ty.storage.group, &*op.ty.storage.resource);
        ListRequest { plane: &op.plane, group, resource, namespace: selection.namespace() }
    }

    async fn cached(
        &self,
        op: &Operation,
        selection: &Selection,
        after: &str,
        limit: usize,
    ) -> Result<Option<ListedPart>> {
        let matches = |entry: &Entry| selection.matches(entry);
        let wanted = (!selection.is_everything()).then(|| Wanted { matches: &matches, by: selection.by() });
        self.cache.list_cached_part(Self::request(op, selection), after, limit, wanted).await
    }

    /// As the cache has it.
    async fn present(
        &self,
        op: &Operation,
        selection: &Selection,
        after: &str,
        limit: usize,
    ) -> Result<Entries> {
        if let Some(entries) = self.shown(op, selection, self.cache.applied(), after, limit).await? {
            return Ok(entries);
        }
        match self.cached(op, selection, after, limit).await? {
            Some(listed) => Ok(Entries::of(listed, selection)),
            // Too large for memory: read as of now, in pages.
            None => {
                let now = self.cache.catch_up().await?;
                self.stored(op, selection, now, after, limit).await
            }
        }
    }

    /// As of a past revision.
    async fn past(
        &self,
        op: &Operation,
        selection: &Selection,
        at: u64,
        after: &str,
        limit: usize,
    ) -> Result<Entries> {
        self.cache.wait_for_asked(at).await?;
        let base = self.cache.stack(&op.plane).await?.revision();
        if at < base {
            return Err(Status::expired(format!("too old resource version: {at} ({base})")));
        }
        if selection.shown().is_some() || selection.place().is_some() {
            // What is too old is said to be so, though all that is shown may be in memory.
            self.cache.page(Self::request(op, selection), at, after, 1).await?;
        }
        if let Some(entries) = self.shown(op, selection, at, after, limit).await? {
            return Ok(entries);
        }
        match self.cached(op, selection, after, limit).await? {
            Some(listed) if listed.changed <= at => {
                // Nothing changed since, and yet what is too old has to be said to be: clients count on tokens that expire.
                self.cache.page(Self::request(op, selection), at, after, 1).await?;
                Ok(Entries::of(ListedPart { revision: at, ..listed }, selection))
            }
            _ => self.stored(op, selection, at, after, limit).await,
        }
    }

    /// From the store, as of a revision.
    async fn stored(
        &self,
        op: &Operation,
        selection: &Selection,
        at: u64,
        after: &str,
        limit: usize,
    ) -> Result<Entries> {
        let mut entries = Entries { items: Vec::new(), revision: at, more: false, remaining: None };
        // Behind a page of what a view shows, a further object is sought: what is hidden makes no further page.
        let wanted = limit + usize::from(selection.shown().is_some());
        let mut next = Some(Box::from(after));
        while let Some(place) = next
            && (limit == 0 || entries.items.len() < wanted)
        {
            let page = self.cache.page(Self::request(op, selection), at, &place, limit).await?;
            entries.items.extend(page.objects.into_iter().filter(|entry| selection.matches(entry)));
            entries.more = page.next.is_some() && selection.shown().is_none();
            next = page.next;
        }
        if limit > 0 && entries.items.len() > limit {
            entries.items.truncate(limit);
            entries.more = true;
        }
        if let Some(last) = entries.items.last().filter(|_| entries.more && selection.is_everything()) {
            let rest = self.cache.page(Self::request(op, selection), at, last.place(), COUNTED).await?;
            entries.remaining = rest.next.is_none().then_some(rest.objects.len() as u64).filter(|n| *n > 0);
        }
        Ok(entries)
    }
}

/// What a list says that is as of a time too long ago. A token is answered with another one, for those who take an
/// inconsistent rest.
pub(crate) fn expired(status: Status, seal: &Seal<'_>, token: Option<&Token>) -> Status {
    if status.code != 410 {
        return status;
    }
    let Some(token) = token else {
        return Status::expired("The resourceVersion for the provided list is too old.");
    };
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                   list without the continue parameter, or use the continue token in this response to retrieve the \
                   remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and now \
                   may show up in the list.";
    let mut fresh = Status::expired(message);
    match seal.seal(&Token { rv: 0, ..token.clone() }) {
        Ok(text) => fresh.continue_token = Some(text),
        Err(status) => return status,
    }
    fresh
}
