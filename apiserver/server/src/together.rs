//! What aggregated servers of an organization's projects have, together: each is asked, and their lists are joined.
//!
//! A list has no resource version, since each server has its own, and it is not paged. Nor has a watch: it begins with all
//! that is there, takes in the servers of projects that come later, and when the watch of one server ends, all of it does.
//! Each server is asked as the user, who must be allowed to ask in that project; a project where they are not, or whose server
//! does not answer, is left out, and a warning says so.

use crate::backend::Aggregated;
use crate::edge::Edge;
use crate::{
    aggregated,
    call::Call,
    held::Held,
    info::RequestInfo,
    respond::{self, Reply},
};
use bytes::Bytes;
use freehold_api::keys::{PLANE_ANNOTATION, PROJECT};
use freehold_apiserver_authz::Attributes;
use freehold_apiserver_outbound::Body;
use freehold_apiserver_planes::Target;
use freehold_apiserver_transport::payload::Payload;
use freehold_machinery::{Map, PlaneId, Status, User, Value, meta};
use futures_util::{FutureExt, Stream, StreamExt, future, stream, stream::BoxStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::BodyStream;
use hyper::body::Incoming;
use serde_json::json;
use std::{collections::HashSet, sync::Arc, time::Duration};
use tokio::sync::OwnedSemaphorePermit;

/// Servers that are asked at a time, and how long each may take.
const AT_ONCE: usize = 4;
const TIME: Duration = Duration::from_secs(10);
/// Bytes of all answers to one list together.
const MAX_ALL: usize = 64 << 20;
/// Bytes of one event of a watch.
const MAX_EVENT: usize = 8 << 20;
/// Changes that come within this time are looked at together.
const TOGETHER: Duration = Duration::from_millis(100);
/// When one that did not let itself be watched is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest time without a look, in which servers count as being in use.
const LONGEST: Duration = Duration::from_secs(5 * 60);
/// What is asked for in pages, which no server knows of the others.
const PAGING: [&str; 4] = ["limit", "continue", "resourceVersion", "resourceVersionMatch"];

/// The document of a group and version: its resources, which can be listed.
pub(crate) async fn resources(call: &Call<'_>, (group, version): (&str, &str)) -> Result<Reply, Status> {
    let types = call.types().await?;
    let remote = types.version(group, version).and_then(|served| served.remote.clone());
    let remote = remote.ok_or_else(Status::no_such_resource)?;
    let one = |resource: &Value| {
        json!({
            "name": resource["resource"], "singularName": resource["singularResource"],
            "namespaced": resource["scope"] == "Namespaced", "kind": resource["responseKind"]["kind"],
            "verbs": resource["verbs"],
        })
    };
    let resources: Vec<Value> = remote.resources.iter().map(one).collect();
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
        "resources": resources});
    Ok(respond::json(200, Bytes::from(list.to_string())))
}

/// Lists or watches a resource in all projects.
pub(crate) async fn serve(call: &mut Call<'_>, at: (&str, &str)) -> Result<Reply, Status> {
    match call.info.verb.as_str() {
        "list" => list(call, at).await,
        "watch" => watch(call, at).await,
        _ => Err(Status::no_such_method()),
    }
}

/// Events of a server as lines, and `None` at their end.
type Events = BoxStream<'static, Option<Bytes>>;

/// Who asks, and for what: all that goes to each server.
struct Asker {
    edge: Arc<Edge>,
    target: Target,
    user: Arc<User>,
    info: RequestInfo,
    group: String,
    version: String,
    path: String,
    headers: HeaderMap,
}

impl Asker {
    fn of(call: &Call<'_>, (group, version): (&str, &str)) -> Result<Self, Status> {
        Ok(Self {
            edge: call.edge.clone(),
            target: call.target.clone(),
            user: call.user.clone(),
            info: call.info.clone(),
            group: group.to_owned(),
            version: version.to_owned(),
            path: path(call)?,
            headers: headers(&call.parts.headers),
        })
    }

    /// The servers of the projects in which the user may ask, and a warning of each other one.
    async fn permitted(&self) -> Result<(Vec<Arc<Aggregated>>, Vec<String>), Status> {
        let (mut permitted, mut warnings) = (Vec::new(), Vec::new());
        let backend = &self.edge.backend;
        for server in backend.aggregated_across(&self.target, &self.group, &self.version).await? {
            let attributes: Attributes<'_> = self.info.attributes(&self.user);
            let target = Target::Local(server.destination.plane.clone());
            if backend.authorize(&target, &attributes).await?.allowed {
                permitted.push(server);
            } else {
                warnings.push(left_out(&server, "you may not ask for it there"));
            }
        }
        Ok((permitted, warnings))
    }

    /// The request as one server gets it, with the place that it takes there.
    fn request(&self, server: &Arc<Aggregated>) -> Result<(Request<Body>, OwnedSemaphorePermit), String> {
        if !server.available {
            return Err("its server does not answer".to_owned());
        }
        let place = aggregated::place(server).map_err(|status| status.message)?;
        let user = aggregated::told(&self.user, server);
        let asked = (&Method::GET, self.path.as_str(), &self.headers);
        let request = aggregated::request(server, asked, &user, Payload::empty(), false);
        Ok((request.map_err(|status| status.message)?, place))
    }

    /// One server's list, and how many bytes it had.
    async fn ask(&self, server: &Arc<Aggregated>, held: &Held) -> Result<(Value, usize), String> {
        let (request, _place) = self.request(server)?;
        let asked = async {
            let answer =
                server.outbound.send(&server.destination, request).await.map_err(|e| e.to_string())?;
            let (head, body) = answer.into_parts();
            let (body, code) = (held.read(body).await?, head.status.as_u16());
            let value: Value = serde_json::from_slice(&body).map_err(|error| format!("{code}: {error}"))?;
            match (code, value.is_object()) {
                (200, true) => Ok((value, body.len())),
                _ => Err(value["message"].as_str().map_or_else(|| format!("{code}"), str::to_owned)),
            }
        };
        tokio::time::timeout(TIME, asked)
            .await
            .unwrap_or_else(|_| Err("its server takes too long".to_owned()))
    }

    /// Opens a watch at one server, and gives its events.
    async fn begin(&self, server: &Arc<Aggregated>) -> Result<Events, String> {
        let (request, place) = self.request(server)?;
        let answer = tokio::time::timeout(TIME, server.outbound.send(&server.destination, request)).await;
        let answer: Response<Incoming> =
            answer.map_err(|_| "its server takes too long".to_owned())?.map_err(|error| error.to_string())?;
        match answer.status().as_u16() {
            200 => Ok(events(answer.into_body(), server.clone(), place).boxed()),
            code => Err(format!("{code}")),
        }
    }

    /// Opens a watch at each server, in their order.
    async fn begin_all(&self, servers: &[Arc<Aggregated>]) -> Vec<Result<Events, String>> {
        let mut begun = Vec::with_capacity(servers.len());
        for server in servers {
            begun.push(self.begin(server).boxed());
        }
        stream::iter(begun).buffered(AT_ONCE).collect().await
    }

    /// The events of servers that are not `known` yet, as they come: of new projects, and of those that were left out.
    fn newcomers(
        self,
        known: HashSet<PlaneId>,
        changes: BoxStream<'static, ()>,
    ) -> impl Stream<Item = Events> + Send {
        let begun = (self, known, changes, AGAIN);
        let found = stream::unfold(begun, |(asker, mut known, mut changes, pause)| async move {
            // Whatever has changed since the last look is seen by the next one.
            let told = tokio::time::timeout(pause, changes.next()).await.is_ok();
            if told {
                tokio::time::sleep(TOGETHER).await;
            }
            let looked = asker.look(&mut known).await;
            let pause = match (&looked, told) {
                (Ok(_), _) => LONGEST,
                (Err(_), true) => AGAIN,
                (Err(_), false) => pause.saturating_mul(2).min(LONGEST),
            };
            let (Ok(found) | Err(found)) = looked;
            Some((stream::iter(found), (asker, known, changes, pause)))
        });
        found.flatten()
    }

    /// The events of servers that are not `known` yet; as an error where one could not be asked that should be.
    async fn look(&self, known: &mut HashSet<PlaneId>) -> Result<Vec<Events>, Vec<Events>> {
        // What projects serve is found out by asking for it.
        if self.edge.backend.types(&self.target).await.is_err() {
            return Err(Vec::new());
        }
        let Ok((mut servers, _)) = self.permitted().await else { return Err(Vec::new()) };
        servers.retain(|server| server.available && !known.contains(&server.destination.plane));
        let answers = self.begin_all(&servers).await;
        let all = answers.iter().all(Result::is_ok);
        let mut found = Vec::with_capacity(servers.len());
        for (server, events) in servers.iter().zip(answers) {
            if let Ok(events) = events {
                known.insert(server.destination.plane.clone());
                found.push(events);
            }
        }
        if all { Ok(found) } else { Err(found) }
    }
}

/// Whose projects are asked; empty for nobody's, whose lists share one bound.
fn organization<'a>(call: &'a Call<'_>) -> &'a str {
    match &call.target {
        Target::Organization(scope) => &scope.name,
        _ => "",
    }
}

fn left_out(server: &Aggregated, why: &str) -> String {
    format!("project {:?} is left out: {why}", &*server.project)
}

async fn list(call: &Call<'_>, at: (&str, &str)) -> Result<Reply, Status> {
    let asker = Asker::of(call, at)?;
    let held = Held::of(organization(call));
    let (servers, mut warnings) = asker.permitted().await?;
    let mut asked = Vec::with_capacity(servers.len());
    for server in &servers {
        asked.push(asker.ask(server, &held).boxed());
    }
    // In the order of projects, whoever answers first.
    let mut answers = stream::iter(&servers).zip(stream::iter(asked).buffered(AT_ONCE));
    let (mut joined, mut bytes): (Option<Value>, usize) = (None, 0);
    while let Some((server, answer)) = answers.next().await {
        match answer {
            Ok((list, size)) => {
                bytes += size;
                if bytes > MAX_ALL {
                    return Err(Status::too_large(MAX_ALL));
                }
                join(&mut joined, annotated(list, server));
            }
            Err(why) => warnings.push(left_out(server, &why)),
        }
    }
    let joined = joined.ok_or_else(|| nothing(&warnings))?;
    let mut reply = respond::json(200, Bytes::from(joined.to_string()));
    respond::warn(&mut reply, &warnings);
    Ok(reply)
}

fn nothing(warnings: &[String]) -> Status {
    match warnings.is_empty() {
        true => Status::no_such_resource(),
        false => Status::unavailable(warnings.join("; ")),
    }
}

async fn watch(call: &mut Call<'_>, at: (&str, &str)) -> Result<Reply, Status> {
    if !matches!(parameter(call, "resourceVersion").as_str(), "" | "0") {
        return Err(Status::expired("over several servers a watch begins with what is there"));
    }
    if !parameter(call, "sendInitialEvents").is_empty() {
        return Err(Status::bad_request("sendInitialEvents is not supported over several servers"));
    }
    let asker = Asker::of(call, at)?;
    let changes = call.edge.backend.aggregated_changes(&call.target);
    let (servers, mut warnings) = asker.permitted().await?;
    let answers = asker.begin_all(&servers).await;
    let (mut events, mut known) = (Vec::with_capacity(servers.len()), HashSet::new());
    for (server, answer) in servers.iter().zip(answers) {
        match answer {
            Ok(own) => {
                known.insert(server.destination.plane.clone());
                events.push(own);
            }
            Err(why) => warnings.push(left_out(server, &why)),
        }
    }
    if events.is_empty() {
        return Err(nothing(&warnings));
    }
    call.passed_on();
    let held = call.edge.metrics.long_running_of(call.info);
    let (stop, revoked) = (call.edge.stop.clone().cancelled_owned(), call.revoked());
    let over = async move {
        future::select(Box::pin(stop), revoked).await;
        drop(held);
    };
    events.push(asker.newcomers(known, changes).flatten_unordered(None).boxed());
    // The first that ends is the end of all.
    let together = stream::select_all(events).take_while(|event| future::ready(event.is_some()));
    let lines = together.filter_map(future::ready).take_until(over.boxed());
    let mut reply = respond::json(200, Bytes::new()).map(|_| Payload::Stream(Box::pin(lines), None));
    respond::warn(&mut reply, &warnings);
    Ok(reply)
}

/// A parameter of the query, as it stands there.
fn parameter(call: &Call<'_>, name: &str) -> String {
    let pairs = call.parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(own, _)| *own == name).map(|(_, value)| value.to_owned()).next().unwrap_or_default()
}

/// The events of one server as lines, and `None` at their end. Bookmarks are about versions that are of one server alone.
fn events(
    body: Incoming,
    server: Arc<Aggregated>,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Option<Bytes>> + Send {
    let begun = (BodyStream::new(body), Vec::new(), server, place);
    let lines = stream::unfold(begun, |(mut body, mut rest, server, place)| async move {
        loop {
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let after = rest.split_off(end + 1);
                let line = std::mem::replace(&mut rest, after);
                if let Some(event) = event(&line, &server) {
                    return Some((Some(event), (body, rest, server, place)));
                }
                continue;
            }
            let frame = body.next().await?.ok()?;
            rest.extend_from_slice(frame.data_ref()?);
            if rest.len() > MAX_EVENT {
                return None;
            }
        }
    });
    lines.chain(stream::once(future::ready(None)))
}

/// An event whose object says where it is from; `None` for what is none, and for bookmarks.
fn event(line: &[u8], server: &Aggregated) -> Option<Bytes> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    if event["type"] == "BOOKMARK" {
        return None;
    }
    if event["type"] != "ERROR" {
        let object = event.get_mut("object")?;
        match object["kind"] == "Table" {
            true => *object = annotated(object.take(), server),
            false => mark(object, server),
        }
    }
    let mut line = event.to_string();
    line.push('\n');
    Some(line.into())
}

/// The path that each server is asked for, with what selects and without what pages.
fn path(call: &Call<'_>) -> Result<String, Status> {
    let query = call.parts.uri.query().unwrap_or_default().split('&');
    let kept: Vec<&str> =
        query.filter(|pair| !PAGING.contains(&pair.split('=').next().unwrap_or_default())).collect();
    let query = Some(kept.join("&")).filter(|query| !query.is_empty());
    crate::proxy::path_and_query(call.info, query.as_deref())
}

/// What is accepted: JSON in the forms that the client takes, tables among them.
fn headers(given: &HeaderMap) -> HeaderMap {
    let clauses = given.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let clauses = clauses.flat_map(|value| value.split(',')).map(str::trim);
    let json: Vec<&str> = clauses.filter(|clause| clause.starts_with("application/json")).collect();
    let accept = if json.is_empty() { "application/json".to_owned() } else { json.join(",") };
    let accept = HeaderValue::from_str(&accept).unwrap_or(HeaderValue::from_static("application/json"));
    let mut headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
    if let Some(agent) = given.get(header::USER_AGENT) {
        headers.insert(header::USER_AGENT, agent.clone());
    }
    headers
}

/// Says in an object where it is from.
fn mark(object: &mut Value, server: &Aggregated) {
    if !object.is_object() {
        return;
    }
    let annotations = meta::metadata_mut(object).entry("annotations").or_insert(Value::Null);
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    annotations[PLANE_ANNOTATION] = server.destination.plane.as_str().into();
    annotations[PROJECT] = (*server.project).into();
}

/// A list whose objects say where they are from.
fn annotated(mut list: Value, server: &Aggregated) -> Value {
    if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(|item| mark(item, server));
    }
    if let Some(rows) = list.get_mut("rows").and_then(Value::as_array_mut) {
        rows.iter_mut().filter_map(|row| row.get_mut("object")).for_each(|object| mark(object, server));
    }
    list
}

/// Adds a server's list to those before it. What is of another form than the first is left out.
fn join(into: &mut Option<Value>, mut list: Value) {
    let Some(joined) = into else {
        list["metadata"] = json!({"resourceVersion": ""});
        *into = Some(list);
        return;
    };
    for field in ["items", "rows"] {
        let more = list.get_mut(field).and_then(Value::as_array_mut).map(std::mem::take);
        let (Some(more), true) = (more, list["kind"] == joined["kind"]) else { continue };
        match joined.get_mut(field).and_then(Value::as_array_mut) {
            Some(all) => all.extend(more),
            None => joined[field] = more.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_joined_in_their_order_and_have_no_version() {
        let list = |names: &[&str]| {
            let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
            json!({"kind": "ThingList", "metadata": {"resourceVersion": "7", "continue": "x"}, "items": items})
        };
        let mut joined = None;
        join(&mut joined, list(&["a", "b"]));
        join(&mut joined, json!({"kind": "ThingList", "metadata": {}, "items": null}));
        join(&mut joined, list(&["a"]));
        join(&mut joined, json!({"kind": "Other", "items": [{}]}));
        let joined = joined.unwrap();
        assert_eq!(joined["items"].as_array().unwrap().len(), 3);
        assert_eq!(joined["metadata"], json!({"resourceVersion": ""}));
    }

    #[test]
    fn json_is_asked_for_in_the_forms_that_the_client_takes() {
        let of = |accept: &'static str| {
            let given = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            headers(&given)[header::ACCEPT].to_str().unwrap().to_owned()
        };
        assert_eq!(
            of("application/json;as=Table;v=v1;g=meta.k8s.io, application/yaml"),
            "application/json;as=Table;v=v1;g=meta.k8s.io"
        );
        assert_eq!(of("application/vnd.kubernetes.protobuf"), "application/json");
    }
}
