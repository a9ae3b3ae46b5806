//! A request's turn: what it will cost is estimated, and it waits until its plane and organization may have that much of
//! the server.

use crate::{
    backend::Footing,
    edge::Edge,
    info::{RequestInfo, is_health},
    negotiate,
    query::Query,
    respond::Reply,
    slow::Sender,
};
use freehold_apiserver_fairness::metrics::Executing;
use freehold_apiserver_fairness::{Asked, Cost, Limits, Refused, Ticket, Visitor, WatchTicket};
use freehold_apiserver_planes::Target;
use freehold_apiserver_transport::{payload::Place, turns::Owner};
use freehold_machinery::{Status, User, user::MASTERS};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;

/// Which flow schema and priority level a request was given, by their uids (KEP-1040).
pub(crate) const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
pub(crate) const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// From how many microseconds of estimated work on a request is done aside: the way there and back takes some ten of them.
const LONG: u64 = 1_000;
/// Bytes of an OpenAPI document, about.
const DOCUMENT: usize = 100_000;

/// The uids of a request's flow schema and priority level, and whom it counts towards.
#[derive(Default)]
pub(crate) struct Flow {
    told: Option<[HeaderValue; 2]>,
    /// Who sent it, and for which plane.
    pub(crate) sender: Sender,
    /// The organization whose share it counts towards; empty for the platform.
    pub(crate) owner: Arc<str>,
}

impl Flow {
    /// Tells the client.
    pub(crate) fn say(&mut self, reply: &mut Reply) {
        if let Some([schema, level]) = self.told.take() {
            reply.headers_mut().insert(SCHEMA, schema);
            reply.headers_mut().insert(LEVEL, level);
        }
    }
}

/// What a request holds while it is served.
#[derive(Default)]
pub(crate) struct Turn {
    /// In whose turns it goes on aside.
    owner: Owner,
    cost: Cost,
    ticket: Option<Ticket>,
    watch: Option<WatchTicket>,
    executing: Option<Executing>,
}

impl Turn {
    /// Whether its work is to be done aside; of a watch, how it begins.
    pub(crate) fn takes_long(&self) -> bool {
        self.cost.own() >= LONG
    }

    /// In whose turns its work is done aside.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Whether it is of a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.watch.is_some()
    }

    /// Keeps the place until the answer was sent; of a watch, until it has sent what there was before it, and then a place
    /// among watches alone.
    pub(crate) fn hold(self, reply: Reply) -> Reply {
        let place = match (self.watch, self.ticket) {
            (Some(watch), ticket) => Place::Watch(beginning(watch, ticket)),
            (None, Some(ticket)) => Place::Request { ticket, _executing: self.executing },
            (None, None) => return reply,
        };
        reply.map(|body| body.held(place))
    }

    /// Says that another server does the work.
    pub(crate) fn passed_on(&mut self) {
        if let Some(ticket) = &mut self.ticket {
            ticket.passed_on();
        }
    }

    /// The place of a watch that goes on without a body, over a WebSocket.
    pub(crate) fn of_watch(&mut self) -> Option<WatchTicket> {
        Some(beginning(self.watch.take()?, self.ticket.take()))
    }
}

fn beginning(watch: WatchTicket, ticket: Option<Ticket>) -> WatchTicket {
    match ticket {
        Some(ticket) => watch.beginning(ticket),
        None => watch,
    }
}

fn refused(Refused { message, retry_after }: Refused) -> Status {
    Status::too_many_requests(message, retry_after)
}

/// Waits for the turn of a request whose body has so many bytes. 429 where a limit is reached or too many wait.
pub(crate) async fn enter(
    edge: &Edge,
    (target, user): (&Target, &User),
    (info, headers, body): (&RequestInfo, &HeaderMap, usize),
    query: &Query,
    flow: &mut Flow,
) -> Result<Turn, Status> {
    // What may go on for as long as a client wants takes no turn, but for how a watch begins.
    if is_health(&info.path) || info.is_long_running() && info.verb != "watch" {
        return Ok(Turn::default());
    }
    let Some(footing) = edge.backend.footing(target).await? else { return Ok(Turn::default()) };
    let Footing { plane, organization, limits, flows } = &footing;
    flow.owner = organization.clone();
    let named;
    let resource = match &info.resource {
        Some(path) => {
            named = match &path.subresource {
                Some(sub) => format!("{}/{sub}", path.resource),
                None => path.resource.clone(),
            };
            Some((path.group.as_str(), named.as_str(), path.namespace.as_deref().unwrap_or_default()))
        }
        None => None,
    };
    let matched = flows.classify(Asked { user, verb: &info.verb, resource, path: &info.path });
    let values = [matched.schema, matched.level].map(HeaderValue::from_str);
    if let [Ok(schema), Ok(level)] = values {
        flow.told = Some([schema, level]);
    }
    // The platform's own programs work in many planes: one that floods must not hold them up.
    let exempt = user.plane.is_none()
        && (user.is_in(MASTERS) || user.is_in(freehold_machinery::reserved::CONTROLLERS));
    let unlimited = Limits::default();
    let limits = if exempt { &unlimited } else { limits };
    let cost = cost(edge, target, &footing, (info, headers, body), query);
    let visitor = Visitor { plane, organization, limits, flows, matched, cost, exempt };
    let waiting = edge.flows.waits(matched, cost.seats);
    let entered = edge.fairness.enter(visitor).await;
    let executing = match (&entered, waiting) {
        (Ok(_), Some(waiting)) => Some(waiting.executes()),
        (Err(_), Some(waiting)) => {
            waiting.refused();
            None
        }
        (_, None) => None,
    };
    let ticket = entered.map_err(refused)?;
    let owner = owner(organization, user);
    if info.verb == "watch" {
        let watch = edge.fairness.watch(plane, limits).map_err(refused)?;
        return Ok(Turn { owner, cost, ticket: Some(ticket), watch: Some(watch), executing });
    }
    Ok(Turn { owner, cost, ticket: Some(ticket), watch: None, executing })
}

/// Who answers for work that takes long: an organization, or whoever asks the platform.
fn owner(organization: &str, user: &User) -> Owner {
    Owner::named(if organization.is_empty() { &user.name } else { organization })
}

/// How much more an object is to make into a Table, YAML or protobuf than to send as it is stored, and to compress: 1 is 3 µs.
const MADE: u64 = 9;
const COMPRESSED: u64 = 6;

/// What a request will read and write.
fn cost(
    edge: &Edge,
    target: &Target,
    footing: &Footing,
    (info, headers, body): (&RequestInfo, &HeaderMap, usize),
    query: &Query,
) -> Cost {
    let Some(path) = &info.resource else {
        return match info.path.starts_with("/openapi") {
            true => Cost::made(DOCUMENT),
            false => Cost::get(),
        };
    };
    let count = || edge.backend.count(target, &path.group, &path.resource, path.namespace.as_deref());
    let size = |name: &str| {
        let at = (path.namespace.as_deref(), name);
        edge.backend.size(target, (&path.group, &path.resource), at)
    };
    let list = |objects: usize, compresses: bool| {
        let made = if negotiate::is_as_stored(headers, query) { 0 } else { MADE };
        let compressed = if compresses && negotiate::takes_gzip(headers) { COMPRESSED } else { 0 };
        Cost::list(objects, 1 + made + compressed)
    };
    match (info.verb.as_str(), path.name.as_deref()) {
        ("list", Some(_)) => Cost::get(),
        ("list", None) => {
            let limit = query.number("limit").ok().flatten().filter(|limit| *limit > 0);
            let objects = count();
            // A selector looks at all of them for the few that it gives.
            let selects = !query.text("labelSelector").is_empty() || !query.text("fieldSelector").is_empty();
            match limit.and_then(|limit| usize::try_from(limit).ok()).filter(|_| !selects) {
                Some(limit) => list(objects.min(limit), true),
                // Of what a selector gives, nothing is known.
                None => list(objects, !selects),
            }
        }
        ("watch", _) if begins_with_a_list(query) => list(count(), false),
        ("create" | "update" | "patch" | "delete", name) => {
            Cost::write(body + name.map_or(0, size), edge.fairness.watches(&footing.plane))
        }
        ("deletecollection", _) => Cost::delete_all(count()),
        ("get", Some(name)) if !negotiate::is_as_stored(headers, query) => Cost::made(size(name)),
        _ => Cost::get(),
    }
}

/// Whether a watch tells all that there is first.
fn begins_with_a_list(query: &Query) -> bool {
    matches!(query.text("resourceVersion"), "" | "0") || query.text("sendInitialEvents") == "true"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_are_told_of_a_write_does_not_make_it_long() {
        let takes_long = |cost| Turn { cost, ..Turn::default() }.takes_long();
        assert!(!takes_long(Cost::write(1_024, 10_000)));
        assert!(takes_long(Cost::write(100_000, 0)));
    }
}
