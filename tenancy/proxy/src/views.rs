//! The proxy's answers to what the API server refuses.

use crate::access::Access;
use crate::across::{Across, Issued};
use crate::caller::{Caller, Clients};
use crate::guard::Guard;
use crate::lines::lines;
use crate::metrics::Route;
use crate::named::{filter_list, filter_watch};
use crate::reply::{self, Reply};
use crate::request::{Named, Query, View};
use freehold_client::{Error, RawRequest};
use freehold_machinery::{Status, Value};
use freehold_tenancy_decide::admission::User;
use freehold_tenancy_decide::visibility;
use futures_util::TryStreamExt as _;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What members' views are made from.
pub(crate) struct Views {
    pub(crate) access: Access,
    pub(crate) clients: Arc<Clients>,
    pub(crate) issued: Issued,
}

/// A request that the API server refused.
pub(crate) struct Refused<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

/// Longest query of a request with a selector of tenants.
const MAX_URI: usize = 60_000;

/// The JSON among the media types that a client accepts: no other can be filtered.
fn accepted(headers: &HeaderMap) -> HeaderValue {
    let types = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let json: Vec<&str> = types
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|t| t.starts_with("application/json"))
        .collect();
    let plain = HeaderValue::from_static("application/json");
    if json.is_empty() { plain } else { HeaderValue::from_str(&json.join(",")).unwrap_or(plain) }
}

fn expects<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if matches!(error.code(), 401 | 403) => {
            tracing::warn!(%error, "the proxy's account has not the rights of tenancy.freehold.dev:proxy");
            Ok(None)
        }
        result => result.map(Some),
    }
}

impl Views {
    /// Answers a refused request with what is the caller's; `None` where the refusal stands.
    pub(crate) async fn answer(&self, refused: &Refused<'_>) -> Option<(Route, Reply)> {
        if refused.method != Method::GET {
            return None;
        }
        let (view, name) = crate::request::view(refused.path)?;
        let route = match view {
            View::Namespaces => Route::Namespaces,
            View::Named(_) => Route::Named,
            View::Across(_) => Route::Across,
        };
        let answered = self.view(refused, view, name).await;
        Some((route, answered.unwrap_or_else(|error| Some(reply::failure(&error)))?))
    }

    async fn view(
        &self,
        refused: &Refused<'_>,
        view: View,
        name: Option<&str>,
    ) -> Result<Option<Reply>, Error> {
        if !self.access.is_ready() {
            return Err(Error::Api(Box::new(Status::unavailable("tenants are still being read; try again"))));
        }
        let Some(user) = refused.caller.user(&self.clients).await? else { return Ok(None) };
        let tenants = self.access.tenants(&user);
        let query = Query::parse(refused.query);
        match view {
            View::Namespaces => self.namespaces(refused, (user, tenants), query).await,
            View::Named(_) if tenants.is_empty() => Ok(None),
            View::Named(named) => match name {
                Some(name) => self.one(refused, named, (&tenants, name)).await,
                None => self.named(refused, named, (user, tenants), query).await,
            },
            View::Across(collection) => {
                let across = Across {
                    clients: &self.clients,
                    caller: refused.caller,
                    accept: accepted(refused.headers),
                    collection,
                    query,
                    namespaces: self.access.namespaces(&tenants),
                };
                self.across(across, user).await
            }
        }
    }

    /// A request of the proxy's account. Nothing of the client's is in it but the media types.
    fn request(refused: &Refused<'_>, path: &str) -> RawRequest {
        let headers = [(header::ACCEPT, accepted(refused.headers))].into_iter().collect();
        RawRequest { headers, ..RawRequest::get(path) }
    }

    fn guard<T>(
        &self,
        caller: &Caller,
        user: User,
        entitled: impl Fn(&Access, &User) -> T + Send + Sync + 'static,
    ) -> Guard<T> {
        let (access, clients) = (self.access.clone(), self.clients.clone());
        Guard { access, clients, caller: caller.clone(), user, entitled: Box::new(entitled) }
    }

    /// Namespaces of the caller's tenants: the API server selects them by label.
    async fn namespaces(
        &self,
        refused: &Refused<'_>,
        (user, tenants): (User, BTreeSet<String>),
        mut query: Query,
    ) -> Result<Option<Reply>, Error> {
        let Some(selector) = visibility::selector(&tenants) else { return Ok(None) };
        query.require(&selector);
        let path = query.on("/api/v1/namespaces");
        if path.len() > MAX_URI {
            let why = "you are a member of too many tenants to list their namespaces at once";
            return Err(Error::Api(Box::new(Status::bad_request(why))));
        }
        let request = Self::request(refused, &path);
        if query.is_watch() {
            let Some(answer) = expects(self.clients.account.download(&request).await)? else {
                return Ok(None);
            };
            let guard = self.guard(refused.caller, user, |access, user| access.tenants(user));
            return Ok(Some(guard.watch(tenants, answer)));
        }
        let Some(answer) = expects(self.clients.account.download(&request).await)? else { return Ok(None) };
        let mut reply = Response::new(reply::stream(answer.into_stream().map_err(Into::into)));
        reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Some(reply))
    }

    /// A single class or tenant.
    async fn one(
        &self,
        refused: &Refused<'_>,
        named: Named,
        (tenants, name): (&BTreeSet<String>, &str),
    ) -> Result<Option<Reply>, Error> {
        if !self.access.names(named, tenants).contains(name) {
            return Ok(None);
        }
        let object = expects(self.clients.account.json(Self::request(refused, refused.path)).await)?;
        Ok(object.map(|object| reply::json(StatusCode::OK, &object)))
    }

    /// Classes or tenants by name. There are few of them: a list has no pages.
    async fn named(
        &self,
        refused: &Refused<'_>,
        named: Named,
        (user, tenants): (User, BTreeSet<String>),
        mut query: Query,
    ) -> Result<Option<Reply>, Error> {
        let names = self.access.names(named, &tenants);
        query.remove("limit");
        if query.get("continue").is_some() {
            let why = "continue: not a token of this list";
            return Err(Error::Api(Box::new(Status::bad_request(why))));
        }
        // Rows without objects have no name that could be trusted.
        if query.get("includeObject") == Some("None") {
            query.set("includeObject", "Metadata");
        }
        let request = Self::request(refused, &query.on(refused.path));
        if query.is_watch() {
            let Some(answer) = expects(self.clients.account.download(&request).await)? else {
                return Ok(None);
            };
            let lines = filter_watch(lines(answer), names.clone());
            let entitled = move |access: &Access, user: &User| access.names(named, &access.tenants(user));
            return Ok(Some(self.guard(refused.caller, user, entitled).over(names, lines)));
        }
        let list: Option<Value> = expects(self.clients.account.json(request).await)?;
        Ok(list.map(|mut list| {
            filter_list(&mut list, &names);
            reply::json(StatusCode::OK, &list)
        }))
    }

    /// A kind in the caller's namespaces.
    async fn across(&self, across: Across<'_>, user: User) -> Result<Option<Reply>, Error> {
        if across.namespaces.is_empty() {
            return Ok(None);
        }
        if !across.query.is_watch() {
            let list = across.list(&self.issued).await?;
            return Ok(list.map(|list| reply::json(StatusCode::OK, &list)));
        }
        let Some(lines) = across.watch(&self.issued).await? else { return Ok(None) };
        let guard = self.guard(across.caller, user, |access, user| access.namespaces(&access.tenants(user)));
        Ok(Some(guard.over(across.namespaces, lines)))
    }
}
