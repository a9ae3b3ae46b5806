//! What every request passes, in order.
//!
//! [`handle`] is the outermost; [`chain`] lists the rest with a reason for each place.

use crate::{
    audit::{self, Origin, Recording},
    browser,
    call::Call,
    certificate_tokens::Shown,
    config::EtcdHandler,
    dispatch,
    edge::Edge,
    fair::{self, Flow},
    host::{self, Connection},
    identity::{self, Treated},
    info::RequestInfo,
    negotiate, path, permits, proxy,
    query::Query,
    respond::{self, Reply},
    reviews,
    secure::{Identity, Until},
    slow::{Answered, Sender},
    sources,
    trace::Trace,
    traces, websocket,
};
use bytes::Bytes;
use freehold_apiserver_fairness::metrics::Held;
use freehold_apiserver_planes::{
    Resolved, Target,
    context::{self, Context},
};
use freehold_apiserver_transport::{aside, payload::Payload, streams};
use freehold_machinery::{
    PlaneId, Status, User,
    reserved::CONTROLLERS,
    time,
    user::{ANONYMOUS, MASTERS},
};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderValue, Method, Request, Version, header, request::Parts};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::{
    body::{Body as _, Incoming},
    upgrade::OnUpgrade,
};
use parking_lot::Mutex;
use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::Instrument;

/// Longest audit id that is taken from a client, in bytes.
const LONGEST_AUDIT_ID: usize = 64;

/// Answers a request, whatever happens.
pub(crate) async fn handle(
    edge: Arc<Edge>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Reply {
    let started = Instant::now();
    let (mut parts, body) = request.into_parts();
    let audit = audit_id(&parts.headers);
    parts.headers.insert(respond::AUDIT_ID, audit.clone());
    let (query, query_error) = match Query::parse(parts.uri.query()) {
        Ok(query) => (query, None),
        Err(status) => (Query::default(), Some(status)),
    };
    let mut trace = Trace::default();
    let span =
        tracing::debug_span!("request", audit_id = ?audit, method = %parts.method, path = parts.uri.path());
    let mut has_panicked = false;
    let mut traced = traces::begin(&connection, &parts);
    let outcome = match query_error {
        _ if browser::is_preflight(&edge.origins, &parts) => Ok(browser::preflight()),
        Some(status) => Err(status),
        None => {
            // Rescue is outermost: a bug in one request is a 500 for its client and nothing to anyone else.
            let rescued = {
                // Pinned where it is made, here and below: each adapter would copy the whole of it otherwise.
                let chain = pin!(chain(&edge, &connection, &mut parts, body, &query, &mut trace));
                let chain = AssertUnwindSafe(chain).catch_unwind().instrument(span.clone());
                match &traced {
                    None => chain.await,
                    Some(traced) => traced.scope(chain).await,
                }
            };
            rescued.unwrap_or_else(|_| {
                has_panicked = true;
                Err(panicked(&audit, parts.uri.path()))
            })
        }
    };
    let reply = outcome.unwrap_or_else(|status| respond::failure(&parts.headers, &query, &status));
    let reply = audit::finish(&mut trace, has_panicked, reply).await;
    let mut reply = browser::protect(&edge, &parts, finish(&parts, reply, audit));
    let owner = trace.flow.owner.clone();
    trace.flow.say(&mut reply);
    if reply.body().is_large() {
        streams::hand_over();
    }
    if let Some(traced) = &mut traced {
        traces::describe(traced, &parts, trace.info.as_ref(), reply.status());
    }
    record(&edge, &parts, &query, trace, &reply, started);
    span.in_scope(|| {
        tracing::debug!(
            code = reply.status().as_u16(),
            micros = started.elapsed().as_micros() as u64,
            "answered"
        )
    });
    reply.map(|body| edge.untaken.follow(&owner, body))
}

fn panicked(audit: &HeaderValue, path: &str) -> Status {
    tracing::error!(audit_id = ?audit, path, "a request panicked");
    Status::new(500, "InternalError", "This request caused apiserver to panic. Look in the logs for details.")
}

/// The client's audit id, or a new one: it is in the log, in the answer and in what a dedicated pair is sent.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(respond::AUDIT_ID).filter(|id| !id.is_empty() && id.len() <= LONGEST_AUDIT_ID);
    given.filter(|id| id.to_str().is_ok()).cloned().unwrap_or_else(|| {
        let mut buffer = uuid::Uuid::encode_buffer();
        let text: &str = uuid::Uuid::new_v4().hyphenated().encode_lower(&mut buffer);
        HeaderValue::from_str(text).expect("a uuid is a header value")
    })
}

fn finish(parts: &Parts, reply: Reply, mut audit: HeaderValue) -> Reply {
    let mut reply = respond::compressed(&parts.headers, reply);
    let headers = reply.headers_mut();
    // It never comes again: HTTP/2 need not keep it in place of what does (RFC 7541, section 6.2.3).
    audit.set_sensitive(true);
    headers.insert(respond::AUDIT_ID, audit);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if parts.method == Method::HEAD {
        if let Some(length) = reply.body().len() {
            reply.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length as u64));
        }
        return reply.map(|_| Payload::empty());
    }
    reply
}

fn record(edge: &Edge, parts: &Parts, query: &Query, trace: Trace, reply: &Reply, started: Instant) {
    let info = trace.info.unwrap_or_else(|| RequestInfo { verb: "other".to_owned(), ..Default::default() });
    let apply = info.verb == "patch" && negotiate::content_type(&parts.headers) == dispatch::APPLY;
    let labels = edge.metrics.labels(&info, trace.known, query.get("dryRun").is_some(), apply);
    let seconds = started.elapsed().as_secs_f64();
    let (code, bytes) = (reply.status().as_u16(), reply.body().len());
    edge.metrics.answered(labels, code, seconds, bytes, info.is_long_running());
    if !info.is_long_running() {
        let audit_id =
            parts.headers.get(respond::AUDIT_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        let sender = trace.flow.sender;
        edge.slow.note(Answered { parts, sender, verb: &info.verb, code, started, audit_id });
    }
}

/// The filters, in order.
async fn chain(
    edge: &Arc<Edge>,
    connection: &Connection,
    parts: &mut Parts,
    body: Incoming,
    query: &Query,
    trace: &mut Trace,
) -> Result<Reply, Status> {
    // gRPC for etcd's services has no Kubernetes path or verb, so nothing below applies to it but who is asking.
    if let Some(handler) = edge.etcd.as_ref().filter(|_| is_etcd(parts)) {
        return etcd(edge, handler, &connection.peer, parts, body).await;
    }
    // The path is decoded once, before anyone looks at it.
    let path = path::decode(&parts.uri, parts.version)?;
    // At a project's own host there is nothing but the project.
    host::agree(edge.domain.as_deref(), connection, parts)?;
    // Pages are none of the API: a project's own host has none of them, and no plane, verb or user is theirs.
    if let Some(pages) = edge.pages.as_ref().filter(|p| connection.project.is_none() && p.serve(&path.text)) {
        let answer = (pages.handler)(request_of(parts, body)).await;
        return Ok(until_stop(edge, answer));
    }
    let (context, rest) = match &connection.project {
        Some(project) => (Context::Project(project.clone()), path.text.as_str()),
        None => context::parse(&path.text).ok_or_else(Status::no_such_resource)?,
    };
    if context != Context::Platform && connection.project.is_none() && !path.is_plain_before(rest, &parts.uri)
    {
        return Err(Status::bad_request("what names a control plane in a path has to be spelled plainly"));
    }
    let prefix = path.text.strip_suffix(rest).unwrap_or(&path.text).to_owned();
    let Some(info) = RequestInfo::read(&parts.method, rest, query) else {
        return Ok(undetermined(rest, parts.uri.query()));
    };
    let info = &*trace.info.insert(RequestInfo { odd: path.odd, ..info });
    // A server that stops says so at once, except to who asks whether it does.
    if edge.stop.is_cancelled() && !crate::info::is_health(rest) {
        return Err(Status::too_many_requests("The apiserver is shutting down, please try again later.", 1));
    }
    // Before any work, authentication too: a flood must be cheap to refuse.
    let _present = permits::be_present(edge, info, rest)?;
    let ask = Ask {
        edge,
        connection,
        query,
        context,
        prefix,
        info,
        known: &mut trace.known,
        flow: &mut trace.flow,
        recording: &trace.recording,
    };
    // All that follows has a deadline, unless the client is meant to stay.
    let mut body = Some(body);
    let answer = {
        let answer = pin!(ask.answer(parts, &mut body));
        match info.is_long_running() {
            true => answer.await,
            false => tokio::time::timeout(time_of(edge, query)?, answer).await.unwrap_or_else(|_| {
                Err(Status::timeout("request did not complete within the allotted timeout"))
            }),
        }
    };
    if let Some(unread) = body {
        read_out(unread).await;
    }
    answer
}

/// What kube-apiserver says of a path that ends where a resource should be named.
fn undetermined(path: &str, query: Option<&str>) -> Reply {
    let url = proxy::encoded(path, query).replace('&', "&amp;");
    let why = "failed to create RequestInfo: unable to determine kind and namespace from url";
    respond::text(500, format!("Internal Server Error: \"{url}\": {why}, {url}\n"))
}

/// How long a request may take: what it says itself (`timeout`, as Go writes durations), at most what all may. 400 for what is no
/// duration.
fn time_of(edge: &Edge, query: &Query) -> Result<Duration, Status> {
    let most = edge.limits.request;
    let asked = query.text("timeout");
    if asked.is_empty() {
        return Ok(most);
    }
    let wrong = || {
        let number = asked.trim_start_matches(['+', '-']);
        let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let why = if is_number { "missing unit in duration" } else { "invalid duration" };
        Status::bad_request(format!("invalid timeout specified in the request URL - time: {why} {asked:?}"))
    };
    let nanos = time::parse_duration(asked).ok_or_else(wrong)?;
    Ok(u64::try_from(nanos)
        .ok()
        .filter(|nanos| *nanos > 0)
        .map_or(most, |nanos| Duration::from_nanos(nanos).min(most)))
}

/// Bytes of a body that are still read where a request is refused before, and how long it may take.
const READ_OUT: usize = 64 * 1024;
const READ_OUT_TIME: Duration = Duration::from_millis(500);

/// Reads the rest of a body that nobody wants. A client that still sends it may see its stream end before it sees why.
async fn read_out(mut body: Incoming) {
    let all = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > READ_OUT {
                return;
            }
        }
    };
    // However far it came.
    let _ = tokio::time::timeout(READ_OUT_TIME, all).await;
}

/// A request whose meaning is known and whose author is not.
struct Ask<'a> {
    edge: &'a Arc<Edge>,
    connection: &'a Connection,
    query: &'a Query,
    context: Context,
    prefix: String,
    info: &'a RequestInfo,
    known: &'a mut bool,
    recording: &'a Recording,
    flow: &'a mut Flow,
}

impl Ask<'_> {
    async fn answer(self, parts: &mut Parts, unread: &mut Option<Incoming>) -> Result<Reply, Status> {
        let Self { edge, connection, query, context, prefix, info, known, flow, recording } = self;
        let (origin, shown) = (Origin { edge, info, connection }, edge.shown(connection, &parts.headers));
        let peer = shown.as_ref().map_or(&connection.peer, |shown| &shown.peer);
        sources::verify(&mut parts.headers, connection.remote, connection.is_proxy(), &edge.proxies);
        websocket::take_token(&mut parts.headers)?;
        let context = identity::context_of(edge, context, peer, &parts.headers).await?;
        // The target comes first, because identities of one plane are worth nothing in others. What is wrong with it
        // is said later: only who is known learns what is there.
        let resolved = edge.backend.resolve(&context).await;
        let believed = resolved.as_ref().map_or(&Target::AllPlanes, |resolved| &resolved.target);
        let user = match identity::authenticate(edge, Some(believed), peer, &parts.headers, &info.path).await
        {
            Ok(user) => user,
            Err(status) => {
                recording.unauthenticated(&origin.asked(believed, parts, None)).await;
                return Err(status);
            }
        };
        recording.begin(&origin.asked(believed, parts, Some(&user))).await?;
        flow.sender = Sender { user: Some(user.clone()), plane: plane_of(believed) };
        let Resolved { target, seen } = resolved.map_err(|status| to_the_known_alone(&user, status))?;
        confine(&user, &context, &target)?;
        // What is suspended answers nobody, whatever they may do there.
        edge.backend.admit(&target, &user).await?;
        let user = identity::admit_from_host(edge, (&context, &prefix), &parts.method, user).await?;
        let upgraded = outliving(connection, shown.as_deref(), (info, &*parts));
        // The pair judges for itself, impersonation included: it has the rules. What the platform gives it is told.
        let is_pairs = matches!(target, Target::Dedicated(_)) && !reviews::is_about_access(info);
        if is_pairs && !edge.backend.asks_others() {
            let asks = (&target, &user, &user);
            return to_pair((origin, recording), asks, upgraded, parts, taken(unread)?).await;
        }
        // Impersonation is itself authorized, as the one who asks; what follows is authorized as the other.
        let asker = user.clone();
        let treated = identity::impersonate(edge, &target, user, &parts.headers, (info, upgraded)).await;
        let (user, until) = match treated {
            Ok(Treated { user, constraint, until }) => {
                recording.impersonated(&asker, &user, constraint);
                (user, until)
            }
            Err(status) => {
                recording.refused(&origin.asked(&target, parts, Some(&asker))).await;
                return Ok(respond::forbidden(&parts.headers, query, &status));
            }
        };
        if is_pairs {
            // Who it is has been judged, by others too: the pair is asked as that one.
            identity::forget_impersonation(&mut parts.headers);
            let asks = (&target, &asker, &user);
            return to_pair((origin, recording), asks, until, parts, taken(unread)?).await;
        }
        // Who asks for more than a share waits here, and takes no place that others could have.
        let waits = Held::new(edge.metrics.in_queue(info.is_read_only()));
        let size = size_of(unread.as_ref(), edge.limits.body);
        let turn = fair::enter(edge, (&target, &user), (info, &parts.headers, size), query, flow).await?;
        drop(waits);
        let place = permits::admit(edge, info)?;
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let call = Call {
            edge,
            connection,
            parts: &*parts,
            query,
            context,
            prefix,
            target,
            seen,
            asker,
            user,
            until,
            info,
            narrowed: false,
            known,
            turn: Mutex::new(turn),
            place,
            recording,
        };
        serve(call, unread, upgrade).await
    }
}

/// Answers a call that has its turn, where its user may ask that.
async fn serve(
    mut call: Call<'_>,
    unread: &mut Option<Incoming>,
    upgrade: Option<OnUpgrade>,
) -> Result<Reply, Status> {
    if let Err(status) = call.authorize().await {
        if status.code != 403 {
            return Err(status);
        }
        let reply = respond::forbidden(&call.parts.headers, call.query, &status);
        call.recording.refused(&call.asked()).await;
        return Ok(reply);
    }
    if call.turn.get_mut().takes_long() && !call.turn.get_mut().is_watch() {
        let owner = call.turn.get_mut().owner();
        aside::go(owner).await;
    }
    let reply = dispatch::dispatch(&mut call, taken(unread)?, upgrade).await?;
    Ok(call.turn.into_inner().hold(reply))
}

/// The one plane that a request is for, where it is for one.
fn plane_of(target: &Target) -> Option<PlaneId> {
    match target {
        Target::Local(plane) => Some(plane.clone()),
        Target::Dedicated(pair) => Some(pair.plane.clone()),
        _ => None,
    }
}

/// What ends a request that goes on after its certificate does not count any more: what comes of an upgrade, which outlives
/// the serving of its connection, and what takes long on a connection that others share.
fn outliving(
    connection: &Connection,
    shown: Option<&Shown>,
    (info, parts): (&RequestInfo, &Parts),
) -> Option<Until> {
    let is_upgrade = parts.extensions.get::<OnUpgrade>().is_some();
    match shown {
        Some(shown) => (is_upgrade || info.is_long_running()).then(|| shown.distrusted.clone()),
        None => is_upgrade.then(|| connection.distrusted.clone()),
    }
}

/// What is wrong with a target, for those who are known; others are to say who they are.
fn to_the_known_alone(user: &User, status: Status) -> Status {
    if user.name == ANONYMOUS { Status::unauthorized() } else { status }
}

/// Bytes that a body will have, at the most: one that does not say how large it is may be as large as any.
fn size_of(body: Option<&Incoming>, limit: usize) -> usize {
    let said = body.map_or(Some(0), |body| body.size_hint().upper());
    said.and_then(|bytes| usize::try_from(bytes).ok()).map_or(limit, |bytes| bytes.min(limit))
}

/// The body of a request, which is there once.
fn taken(unread: &mut Option<Incoming>) -> Result<Incoming, Status> {
    unread.take().ok_or_else(|| Status::internal("the body was read before"))
}

/// Passes a request of `asker`, who is treated as `user`, on to the pair that it is for. The pair judges it.
async fn to_pair(
    (origin, recording): (Origin<'_>, &Recording),
    (target, asker, user): (&Target, &Arc<User>, &Arc<User>),
    until: Option<Until>,
    parts: &mut Parts,
    body: Incoming,
) -> Result<Reply, Status> {
    let answer = pass_on(origin, (target, user, until), parts, body).await;
    let code = answer.as_ref().map_or_else(|status| status.code, |reply| reply.status().as_u16());
    recording.judged(&origin.asked(target, parts, Some(asker)), code).await;
    answer
}

/// Gives a request to a pair, which is told what the platform gives its user.
async fn pass_on(
    Origin { edge, info, connection }: Origin<'_>,
    (target, user, until): (&Target, &Arc<User>, Option<Until>),
    parts: &mut Parts,
    body: Incoming,
) -> Result<Reply, Status> {
    let Target::Dedicated(pair) = target else { return Err(Status::no_such_resource()) };
    let labels = edge.metrics.labels(info, false, false, false);
    let held = info.is_long_running().then(|| edge.metrics.long_running(&labels));
    let attributes = info.attributes(user);
    let revoked = identity::either(edge.backend.revoked(target, user, &attributes), until);
    let told = edge.backend.told_of(target, &attributes, user.clone()).await?;
    // Before it takes a place that others could have. A server that stops holds nobody.
    let (pair, in_use) = tokio::select! {
        awake = edge.backend.awake(pair, &attributes) => awake?,
        () = edge.stop.cancelled() => {
            return Err(Status::unavailable("the server stops while the control plane wakes").retry_after(1));
        }
    };
    let _place = if info.is_long_running() { None } else { Some(edge.pairs.take(&pair.plane)?) };
    let path = proxy::path_and_query(info, parts.uri.query())?;
    sources::forward(&mut parts.headers, connection.remote);
    proxy::forward(edge, &pair, &told, &path, parts, body, ((held, in_use), revoked)).await
}

/// 401 for an identity that belongs to another plane and for nobody where organizations and users are asked for, 403 for who
/// may not name planes by their identifiers.
fn confine(user: &User, context: &Context, target: &Target) -> Result<(), Status> {
    let is_personal = matches!(context, Context::Organization(_) | Context::User(_) | Context::Export { .. });
    if user.name == ANONYMOUS && is_personal {
        return Err(Status::unauthorized());
    }
    if let Some(home) = &user.plane {
        let here = match target {
            Target::Local(plane) => plane == home,
            Target::Dedicated(pair) => pair.plane == *home,
            Target::Provider(scope) => scope.plane == *home,
            _ => false,
        };
        if !here {
            return Err(Status::unauthorized());
        }
    }
    let by_id = matches!(context, Context::Plane(_) | Context::AllPlanes);
    if by_id && !(user.plane.is_none() && (user.is_in(MASTERS) || user.is_in(CONTROLLERS))) {
        let why = format!("User {:?} cannot use planes by their identifiers", user.name);
        return Err(Status::forbidden(&Default::default(), "", &why));
    }
    Ok(())
}

fn is_etcd(parts: &Parts) -> bool {
    parts.version == Version::HTTP_2
        && parts.uri.path().starts_with("/etcdserverpb.")
        && negotiate::content_type(&parts.headers).starts_with("application/grpc")
}

async fn etcd(
    edge: &Arc<Edge>,
    handler: &EtcdHandler,
    peer: &Identity,
    parts: &mut Parts,
    body: Incoming,
) -> Result<Reply, Status> {
    let user = identity::authenticate(edge, None, peer, &parts.headers, parts.uri.path()).await?;
    let answer = handler(request_of(parts, body), user).await;
    Ok(until_stop(edge, answer))
}

/// A request for a handler that is not the server's own.
fn request_of(parts: &Parts, body: Incoming) -> Request<Incoming> {
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.version_mut() = parts.version;
    *request.headers_mut() = parts.headers.clone();
    request
}

/// Ends a handler's streams with the server: they have no end of their own, and would hold up a stop.
fn until_stop(edge: &Edge, answer: Reply) -> Reply {
    if answer.body().len().is_some() {
        return answer;
    }
    let stop = edge.stop.clone().cancelled_owned();
    answer.map(|payload| {
        let frames = BodyStream::new(payload).map_ok(|frame| frame.map_data(Bytes::from));
        Payload::Boxed(StreamBody::new(frames.take_until(stop)).boxed_unsync())
    })
}
