//! A kind in all of a member's namespaces: one request in each, with the caller's own identity.
//!
//! The caller's rights decide in each namespace. All of a list is read at one resourceVersion, which the first namespace
//! gives. A watch ends with `Expired` whenever the client has to list again: its events come in no common order, so that a
//! client could not go on from the last one. For the same reason a watch begins at a list's resourceVersion alone.

use crate::caller::{Caller, Clients};
use crate::lines::{event, lines};
use crate::reply;
use crate::request::{Collection, Query};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use freehold_client::{Download, Error};
use freehold_machinery::{Status, Value};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _, stream};
use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeSet, HashSet, VecDeque};

/// Requests at once for one list.
const CONCURRENCY: usize = 16;
/// Most namespaces of a list.
const MAX_LISTED: usize = 5_000;
/// Most namespaces of a watch.
const MAX_WATCHED: usize = 500;
/// Most objects of a page, where the client sets no limit.
const MAX_ITEMS: usize = 100_000;
/// Most remembered resourceVersions of lists.
const MAX_ISSUED: usize = 4_096;

/// The resourceVersions of lists that this proxy gave out.
#[derive(Default)]
pub(crate) struct Issued(Mutex<(HashSet<String>, VecDeque<String>)>);

impl Issued {
    fn key(collection: &Collection, version: &str) -> String {
        format!("{}@{version}", collection.path())
    }

    fn remember(&self, collection: &Collection, version: &str) {
        let key = Self::key(collection, version);
        let (known, order) = &mut *self.0.lock();
        if known.insert(key.clone()) {
            order.push_back(key);
        }
        if order.len() > MAX_ISSUED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }

    fn knows(&self, collection: &Collection, version: &str) -> bool {
        self.0.lock().0.contains(&Self::key(collection, version))
    }
}

/// Where the next page begins.
#[derive(Clone, Debug, Default, PartialEq)]
struct Position {
    version: String,
    namespace: String,
    within: String,
}

impl Position {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!([self.version, self.namespace, self.within]).to_string())
    }

    /// Reads a token of the client. It says where to go on, never what is the caller's.
    fn decode(token: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let [version, namespace, within]: [String; 3] = serde_json::from_slice(&bytes).ok()?;
        version.bytes().all(|b| b.is_ascii_digit()).then_some(Self { version, namespace, within })
    }
}

/// A request for a kind in a caller's namespaces.
pub(crate) struct Across<'a> {
    pub(crate) clients: &'a Clients,
    pub(crate) caller: &'a Caller,
    pub(crate) accept: HeaderValue,
    pub(crate) collection: Collection,
    pub(crate) query: Query,
    pub(crate) namespaces: BTreeSet<String>,
}

/// What came of a namespace.
enum Part {
    List(Value),
    /// The caller has no right there, or the namespace went.
    Nothing,
}

impl Across<'_> {
    async fn part(&self, namespace: &str, query: &Query) -> Result<Part, Error> {
        let request = self.caller.get(query.on(&self.collection.path_in(namespace)), &self.accept);
        match self.caller.client(self.clients).json(request).await {
            Ok(list) => Ok(Part::List(list)),
            Err(error) if matches!(error.code(), 403 | 404) => Ok(Part::Nothing),
            Err(error) => Err(error),
        }
    }

    /// A page of the list; `None` where the caller may read the kind in no namespace.
    ///
    /// # Errors
    /// The API server's, and those of parameters that cannot be had.
    pub(crate) async fn list(&self, issued: &Issued) -> Result<Option<Value>, Error> {
        let refuse = |status: Status| Err(Error::Api(Box::new(status)));
        if self.namespaces.len() > MAX_LISTED {
            return refuse(Status::bad_request(format!(
                "more than {MAX_LISTED} namespaces: name one with -n"
            )));
        }
        let mut at = match self.query.get("continue").filter(|token| !token.is_empty()) {
            None => Position::default(),
            Some(token) => match Position::decode(token) {
                Some(position) => position,
                None => return refuse(Status::bad_request("continue: not a token of this list")),
            },
        };
        let limit = self.query.get("limit").and_then(|text| text.parse().ok()).filter(|limit| *limit > 0);
        let mut page = Page { limit: limit.unwrap_or(MAX_ITEMS), whole: limit.is_none(), ..Page::default() };
        let open: Vec<&String> = self.namespaces.range(at.namespace.clone()..).collect();
        let mut left = open.as_slice();
        while !left.is_empty() && page.next.is_none() {
            // The first namespace that can be read says at which resourceVersion the others are.
            let (now, later) =
                left.split_at(if at.version.is_empty() { 1 } else { CONCURRENCY.min(left.len()) });
            let left_on_page = (!page.whole).then(|| page.left());
            let (first, query) = (now[0].clone(), self.page_query(&at, left_on_page));
            let within = std::mem::take(&mut at.within);
            let part = |namespace: &String| -> BoxFuture<'_, (String, Result<Part, Error>)> {
                let (namespace, mut query) = (namespace.clone(), query.clone());
                if namespace == first && !within.is_empty() {
                    query.remove_all(&["resourceVersion", "resourceVersionMatch"]);
                    query.set("continue", within.clone());
                }
                Box::pin(async move {
                    let part = self.part(&namespace, &query).await;
                    (namespace, part)
                })
            };
            let parts: Vec<_> = now.iter().map(|namespace| part(namespace)).collect();
            let mut parts = stream::iter(parts).buffered(CONCURRENCY);
            while let Some((namespace, part)) = parts.next().await {
                if let Part::List(list) = part?
                    && !page.add(&namespace, list, &mut at.version)
                {
                    break;
                }
            }
            left = later;
        }
        if page.full && page.whole {
            return refuse(Status::bad_request(format!("more than {MAX_ITEMS} objects: set a limit")));
        }
        Ok(page.finish(&at.version).inspect(|_| issued.remember(&self.collection, &at.version)))
    }

    /// The query of a page's requests.
    fn page_query(&self, at: &Position, left: Option<usize>) -> Query {
        let mut query = self.query.clone();
        query.remove_all(&["continue", "limit"]);
        if let Some(left) = left {
            query.set("limit", left.to_string());
        }
        if !at.version.is_empty() {
            query.set("resourceVersion", at.version.clone());
            query.set("resourceVersionMatch", "Exact");
        } else if query.get("resourceVersion") == Some("0") {
            // Any state would do. All others are read at this one, so that it must not be one long gone.
            query.remove_all(&["resourceVersion", "resourceVersionMatch"]);
        }
        query
    }

    /// The lines of a watch in all namespaces; `None` where the caller may watch the kind in none.
    ///
    /// # Errors
    /// The API server's, and those of parameters that cannot be had.
    pub(crate) async fn watch(
        &self,
        issued: &Issued,
    ) -> Result<Option<impl Stream<Item = Bytes> + Send + use<>>, Error> {
        let refuse = |status: Status| Err(Error::Api(Box::new(status)));
        if self.namespaces.len() > MAX_WATCHED {
            return refuse(Status::bad_request(format!(
                "more than {MAX_WATCHED} namespaces: name one with -n"
            )));
        }
        if self.query.get("sendInitialEvents").is_some() {
            let why = "sendInitialEvents: Forbidden: not available over several namespaces";
            return refuse(Status::new(422, "Invalid", why));
        }
        let version = self.query.get("resourceVersion").unwrap_or_default();
        if !matches!(version, "" | "0") && !issued.knows(&self.collection, version) {
            return refuse(Status::expired(
                "the resourceVersion is not of a list in all namespaces; list again",
            ));
        }
        let mut query = self.query.clone();
        query.remove_all(&["continue", "limit"]);
        let open = |namespace: &String| -> BoxFuture<'_, Result<Download, Error>> {
            let request = self.caller.get(query.on(&self.collection.path_in(namespace)), &self.accept);
            Box::pin(async move { self.caller.client(self.clients).download(&request).await })
        };
        let opening: Vec<_> = self.namespaces.iter().map(open).collect();
        let opened: Vec<_> = stream::iter(opening).buffered(CONCURRENCY).collect().await;
        let mut watches = stream::SelectAll::new();
        for answer in opened {
            match answer {
                // The first of them that ends is the end of all.
                Ok(answer) => {
                    let ended = stream::once(std::future::ready(None));
                    watches.push(lines(answer).map(Some).chain(ended).boxed());
                }
                Err(error) if matches!(error.code(), 403 | 404) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((!watches.is_empty()).then(|| merged(watches)))
    }
}

/// The events of several watches, without bookmarks: they say how far one namespace was read, not all of them.
fn merged(watches: impl Stream<Item = Option<Bytes>> + Send + Unpin) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Some(watches), |watches| async move {
        let mut watches = watches?;
        loop {
            let line = watches.next().await.flatten();
            let kind = line.as_ref().and_then(|line| event(line)).map(|(kind, _)| kind);
            match (kind.as_deref(), line) {
                (Some("BOOKMARK"), _) => {}
                (Some("ERROR") | None, _) | (_, None) => {
                    return Some((reply::list_again("a watch of a namespace has ended"), None));
                }
                (Some(_), Some(line)) => return Some((line, Some(watches))),
            }
        }
    })
}

/// A page that is being filled.
#[derive(Default)]
struct Page {
    list: Option<Value>,
    count: usize,
    limit: usize,
    whole: bool,
    full: bool,
    next: Option<Position>,
}

/// The field with a list's content.
fn content(list: &Value) -> &'static str {
    if list["kind"] == "Table" { "rows" } else { "items" }
}

impl Page {
    fn left(&self) -> usize {
        self.limit.saturating_sub(self.count).max(1)
    }

    /// Adds a namespace's part. `false`: the page ends before it, or with it.
    fn add(&mut self, namespace: &str, mut part: Value, version: &mut String) -> bool {
        let text =
            |pointer: &str| part.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (read_at, within) = (text("/metadata/resourceVersion"), text("/metadata/continue"));
        if version.is_empty() {
            *version = read_at;
        }
        let position =
            |within: String| Position { version: version.clone(), namespace: namespace.to_owned(), within };
        let field = content(&part);
        let items = part[field].as_array_mut().map(std::mem::take).unwrap_or_default();
        if self.count > 0 && self.count + items.len() > self.limit {
            (self.next, self.full) = (Some(position(String::new())), true);
            return false;
        }
        self.count += items.len();
        let list = self.list.get_or_insert(part);
        match list[field].as_array_mut() {
            Some(all) => all.extend(items),
            None => list[field] = items.into(),
        }
        if !within.is_empty() {
            (self.next, self.full) = (Some(position(within)), true);
        }
        self.next.is_none()
    }

    fn finish(self, version: &str) -> Option<Value> {
        let mut list = self.list?;
        let mut metadata = json!({"resourceVersion": version});
        if let Some(next) = self.next {
            metadata["continue"] = next.encode().into();
        }
        list["metadata"] = metadata;
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(count: usize, version: &str, within: &str) -> Value {
        json!({
            "kind": "PodList", "items": vec![json!({}); count],
            "metadata": {"resourceVersion": version, "continue": within},
        })
    }

    #[test]
    fn a_page_ends_before_what_has_no_room_and_the_next_begins_there() {
        let mut version = String::new();
        let mut page = Page { limit: 4, ..Page::default() };
        assert!(page.add("a", part(3, "7", ""), &mut version));
        assert!(!page.add("b", part(2, "7", ""), &mut version));
        let list = page.finish(&version).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 3);
        let next = Position::decode(list["metadata"]["continue"].as_str().unwrap()).unwrap();
        assert_eq!((next.version.as_str(), next.namespace.as_str(), next.within.as_str()), ("7", "b", ""));
        let mut page = Page { limit: 4, ..Page::default() };
        assert!(!page.add("b", part(4, "7", "more"), &mut version));
        assert_eq!(page.next.unwrap().within, "more");
        assert!(Position::decode("e30").is_none() && Position::decode("!").is_none());
    }

    #[test]
    fn a_watch_begins_at_versions_of_lists_alone() {
        let Some((crate::request::View::Across(pods), _)) = crate::request::view("/api/v1/pods") else {
            panic!("a collection");
        };
        let issued = Issued::default();
        issued.remember(&pods, "7");
        assert!(issued.knows(&pods, "7") && !issued.knows(&pods, "8"));
        for version in 0..MAX_ISSUED + 1 {
            issued.remember(&pods, &format!("x{version}"));
        }
        assert!(!issued.knows(&pods, "7") && issued.0.lock().1.len() == MAX_ISSUED);
    }
}
