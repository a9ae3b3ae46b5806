//! Lists, in pages or whole.
//!
//! The first page comes from the cache; its continue token names the revision and the last place, and further pages come
//! from the cache as long as nothing has changed since, otherwise from the store at that revision. So tokens survive a
//! restart, and expire when the store compacts.

use crate::{
    List, ListOptions, Operation, Registry,
    registry::{parse_version, schema_since},
    select::Selection,
};
use base64::{
    DecodeError, Engine, alphabet,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
};
use freehold_apiserver_cache::{Entry, ListRequest, ListedPart};
use freehold_machinery::{PlaneId, Result, Status};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest continue token that is read, in bytes.
const MAX_TOKEN: usize = 4_096;

/// As Go reads it, which takes no notice of the last bits.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// What a continue token says.
#[derive(Serialize, Deserialize)]
pub(crate) struct Token {
    /// Format.
    v: String,
    /// Revision; 0: whatever is current.
    pub(crate) rv: u64,
    /// The last place that was sent.
    pub(crate) start: String,
    /// The plane of that place, in a list over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plane: Option<String>,
}

const FORMAT: &str = "freehold/v1";

impl Token {
    pub(crate) fn text(&self) -> String {
        BASE64.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(crate) fn encode(rv: u64, start: &str) -> String {
        Self { v: FORMAT.into(), rv, start: start.into(), plane: None }.text()
    }

    /// A place in a list over several planes.
    pub(crate) fn across(rv: u64, plane: &PlaneId, start: &str) -> String {
        Self { v: FORMAT.into(), rv, start: start.into(), plane: Some(plane.to_string()) }.text()
    }

    /// The plane, in a token of a list over several.
    pub(crate) fn plane(&self) -> Result<PlaneId> {
        let plane = self.plane.as_deref().and_then(|plane| plane.parse().ok());
        plane.ok_or_else(|| {
            Status::bad_request(
                "invalid continue token: continue key is not valid: it is of a list of one plane",
            )
        })
    }

    pub(crate) fn decode(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        if text.len() > MAX_TOKEN {
            return Err(bad("it is too long"));
        }
        let bytes = BASE64.decode(text).map_err(|error| bad(&illegal(text, error)))?;
        let said = |error: serde_json::Error| {
            bad(&freehold_machinery::go::syntax_error(&bytes).unwrap_or_else(|| error.to_string()))
        };
        let token: Self = serde_json::from_slice(&bytes).map_err(said)?;
        if token.v != FORMAT {
            return Err(bad(&format!("server does not recognize this encoded version {}", token.v)));
        }
        if token.start.contains("..") || token.start.split('/').count() > 2 {
            return Err(bad(&token.start));
        }
        Ok(token)
    }
}

/// What is wrong with base64, in Go's words: where the first character stands that can't be there.
fn illegal(text: &str, error: DecodeError) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
        DecodeError::InvalidLength(length) => length / 4 * 4,
        DecodeError::InvalidPadding => text.len(),
    };
    format!("illegal base64 data at input byte {at}")
}

/// As of when a list is asked for.
pub(crate) enum At {
    /// The latest.
    Latest,
    /// Anything not older.
    NotOlderThan(u64),
    /// Exactly then.
    Exact(u64),
}

impl ListOptions {
    pub(crate) fn at(&self) -> Result<At> {
        let unreadable =
            |error: Status| Status::bad_request(format!("invalid resource version: {}", error.message));
        let matching = self.resource_version_match.as_str();
        if !self.continue_token.is_empty() {
            Token::decode(&self.continue_token)?;
            if !matching.is_empty() {
                return Err(forbidden_match("resourceVersionMatch is forbidden when continue is provided"));
            }
            return match self.resource_version.as_str() {
                "" | "0" => Ok(At::Latest),
                _ => {
                    Err(Status::bad_request("specifying resource version is not allowed when using continue"))
                }
            };
        }
        match (parse_version(&self.resource_version).map_err(unreadable)?, matching) {
            (None, "") => Ok(At::Latest),
            (None, _) => {
                Err(forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided"))
            }
            (Some(0), "Exact") => {
                Err(forbidden_match("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
            }
            (Some(version), "Exact") => Ok(At::Exact(version)),
            (Some(version), "") if self.limit > 0 && version > 0 => Ok(At::Exact(version)),
            (Some(version), "" | "NotOlderThan") => Ok(At::NotOlderThan(version)),
            (Some(_), other) => Err(forbidden_match(&format!(
                "supported values: \"Exact\", \"NotOlderThan\", \"\"; not {other:?}"
            ))),
        }
    }
}

fn forbidden_match(why: &str) -> Status {
    Status::bad_request(format!("resourceVersionMatch: Forbidden: {why}"))
}

/// Up to so many objects behind a page of the past are counted for `remainingItemCount`, which may be left out
/// (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/list-meta/>).
const COUNTED: usize = 5_000;

/// Entries in order, with what is needed to go on behind them.
struct Entries {
    items: Vec<Arc<Entry>>,
    revision: u64,
    more: bool,
    remaining: Option<u64>,
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
    pub async fn list(&self, op: &Operation, options: &ListOptions) -> Result<List> {
        let selection = Selection::new(&op.ty, op.namespace.as_deref(), options)?;
        let at = options.at()?;
        // kube-apiserver's cache takes no notice of a limit where anything will do, however old.
        let limit = if options.resource_version == "0" { 0 } else { options.limit };
        let found = if options.continue_token.is_empty() {
            match at {
                At::Exact(revision) => {
                    let page = self.past(op, &selection, revision, "", limit).await;
                    page.map_err(|status| expired(status, ""))?
                }
                At::NotOlderThan(revision) => {
                    self.cache.wait_for_asked(revision).await?;
                    self.present(op, &selection, "", limit).await?
                }
                At::Latest => {
                    self.catch_up(op).await?;
                    self.present(op, &selection, "", limit).await?
                }
            }
        } else {
            self.next_page(op, &selection, &options.continue_token, limit).await?
        };
        let last = found.items.last().filter(|_| found.more);
        let token = last.map_or_else(String::new, |last| Token::encode(found.revision, last.place()));
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
        text: &str,
        limit: usize,
    ) -> Result<Entries> {
        let token = Token::decode(text)?;
        if token.rv == 0 {
            self.catch_up(op).await?;
            return self.present(op, selection, &token.start, limit).await;
        }
        let page = self.past(op, selection, token.rv, &token.start, limit).await;
        page.map_err(|status| expired(status, text))
    }

    fn request<'a>(op: &'a Operation) -> ListRequest<'a> {
        let (group, resource) = (&*op.ty.storage.group, &*op.ty.storage.resource);
        ListRequest { plane: &op.plane, group, resource, namespace: op.namespace.as_deref() }
    }

    async fn cached(
        &self,
        op: &Operation,
        selection: &Selection,
        after: &str,
        limit: usize,
    ) -> Result<Option<ListedPart>> {
        let matches = |entry: &Entry| selection.matches(entry);
        let wanted: Option<&(dyn Fn(&Entry) -> bool + Sync)> =
            if selection.is_everything() { None } else { Some(&matches) };
        self.cache.list_cached_part(Self::request(op), after, limit, wanted).await
    }

    /// As the cache has it.
    async fn present(
        &self,
        op: &Operation,
        selection: &Selection,
        after: &str,
        limit: usize,
    ) -> Result<Entries> {
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
        match self.cached(op, selection, after, limit).await? {
            Some(listed) if listed.changed <= at => {
                // Nothing changed since, and yet what is too old has to be said to be: clients count on tokens that expire.
                self.cache.page(Self::request(op), at, after, 1).await?;
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
        let mut next = Some(Box::from(after));
        while let Some(place) = next
            && (limit == 0 || entries.items.len() < limit)
        {
            let page = self.cache.page(Self::request(op), at, &place, limit).await?;
            entries.items.extend(page.objects.into_iter().filter(|entry| selection.matches(entry)));
            entries.more = page.next.is_some();
            next = page.next;
        }
        if limit > 0 && entries.items.len() > limit {
            entries.items.truncate(limit);
            entries.more = true;
        }
        if let Some(last) = entries.items.last().filter(|_| entries.more && selection.is_everything()) {
            let rest = self.cache.page(Self::request(op), at, last.place(), COUNTED).await?;
            entries.remaining = rest.next.is_none().then_some(rest.objects.len() as u64).filter(|n| *n > 0);
        }
        Ok(entries)
    }
}

/// What a list says that is as of a time too long ago. A token is answered with another one, for those who take an
/// inconsistent rest.
pub(crate) fn expired(status: Status, text: &str) -> Status {
    if status.code != 410 {
        return status;
    }
    let Ok(token) = Token::decode(text) else {
        return Status::expired("The resourceVersion for the provided list is too old.");
    };
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                   list without the continue parameter, or use the continue token in this response to retrieve the \
                   remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and now \
                   may show up in the list.";
    let mut fresh = Status::expired(message);
    fresh.continue_token = Some(Token { rv: 0, ..token }.text());
    fresh
}
