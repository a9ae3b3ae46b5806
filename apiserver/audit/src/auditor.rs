//! The policies, and the sinks of each.

use crate::{
    Counters, Policy, Record, Sink, Standing, Subject, Written, annotations, cut,
    event::{Event, Micros, ObjectReference, Stage},
    policy::{Level, Wanted},
    secret,
    share::{Entry, Shares},
};
use freehold_machinery::{PlaneId, reserved, user::ANONYMOUS};
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Characters of a user agent that are kept (kube-apiserver's number).
const MAX_USER_AGENT: usize = 1024;

/// Where the events of one policy go.
struct Output {
    policy: Policy,
    sinks: Vec<Arc<Sink>>,
}

/// Where the events of organizations go.
struct Trails {
    policy: Policy,
    sink: Arc<Sink>,
    shares: Shares,
}

/// A request whose events are kept for an organization.
#[derive(Clone, Debug)]
pub struct Trailed {
    wanted: Wanted,
    organization: Arc<str>,
    standing: Standing,
}

impl Trailed {
    /// The events that an organization's trail wants of a request, by its uid and what the author is to it.
    pub fn new(wanted: Wanted, organization: Arc<str>, standing: Standing) -> Self {
        Self { wanted, organization, standing }
    }

    fn level(&self) -> Level {
        self.wanted.level
    }
}

/// Makes events of requests.
pub struct Auditor {
    outputs: Vec<Output>,
    trails: Option<Trails>,
    counters: Counters,
    legacy: bool,
}

/// What is known of a request when its author is.
pub struct Begin<'a> {
    /// Its identifier.
    pub audit_id: &'a str,
    /// Path and query as they were sent.
    pub uri: &'a str,
    /// Where it came from, as the headers of proxies and the connection say, the connection last.
    pub source_ips: Vec<String>,
    /// `User-Agent`.
    pub user_agent: &'a str,
    /// Who wants what.
    pub subject: Subject<'a>,
    /// The plane that it is for; `None` where that is none or several.
    pub plane: Option<&'a PlaneId>,
    /// The organization that it is for.
    pub organization: Option<&'a str>,
    /// The project that it is for.
    pub project: Option<&'a str>,
    /// When it came, in microseconds since 1970.
    pub received: i64,
}

impl Auditor {
    /// Without policies, nothing is recorded.
    pub fn new(counters: Counters) -> Self {
        Self { outputs: Vec::new(), trails: None, counters, legacy: false }
    }

    /// Adds a policy and where its events go.
    pub fn with(mut self, policy: Policy, sinks: Vec<Arc<Sink>>) -> Self {
        self.legacy |= sinks.iter().any(|sink| sink.wants_lines());
        self.outputs.push(Output { policy, sinks });
        self
    }

    /// Adds a policy for requests that are for an organization, and where their events go.
    pub fn with_organizations(mut self, policy: Policy, sink: Arc<Sink>) -> Self {
        self.trails = Some(Trails { policy, sink, shares: Shares::default() });
        self
    }

    /// What an organization's trail has of a request that is for it; `None` for nothing. It has everything that was
    /// refused, and nothing of the platform's own components: those have reserved names, and no plane.
    pub fn trail_wants(&self, subject: &Subject<'_>, refused: bool) -> Option<Wanted> {
        let trails = self.trails.as_ref()?;
        if subject.user.is_some_and(reserved::is_component) {
            return None;
        }
        let mut wanted = trails.policy.wanted(subject);
        if refused {
            wanted.level = wanted.level.max(Level::Metadata);
        }
        (wanted.level > Level::None).then_some(wanted)
    }

    /// Begins to record a request; `None` where neither a policy nor a trail wants that.
    pub fn begin(self: &Arc<Self>, begin: Begin<'_>, trailed: Option<Trailed>) -> Option<Arc<Record>> {
        let wants = |output: &Output| {
            let wanted = output.policy.wanted(&begin.subject);
            self.counters.level(wanted.level);
            (wanted.level > Level::None).then_some(wanted)
        };
        let wanted: Vec<Option<Wanted>> = self.outputs.iter().map(wants).collect();
        self.record(begin, wanted, trailed)
    }

    /// Begins to record a request that no policy wanted, for a trail alone.
    pub fn begin_late(self: &Arc<Self>, begin: Begin<'_>, trailed: Trailed) -> Option<Arc<Record>> {
        self.record(begin, vec![None; self.outputs.len()], Some(trailed))
    }

    fn record(
        self: &Arc<Self>,
        begin: Begin<'_>,
        wanted: Vec<Option<Wanted>>,
        trailed: Option<Trailed>,
    ) -> Option<Arc<Record>> {
        let of_trail = trailed.as_ref().map(Trailed::level);
        let level = wanted.iter().flatten().map(|wanted| wanted.level).chain(of_trail).max()?;
        let subject = &begin.subject;
        let sensitive = secret::sensitive(subject.group, subject.resource, subject.subresource);
        Some(Arc::new(Record::new(self.clone(), (wanted, trailed), sensitive, event(begin, level))))
    }

    /// Hands an event of a stage to the sinks that want it. False where one that must have it has not.
    pub(crate) async fn emit(&self, wanted: &[Option<Wanted>], event: &Event) -> bool {
        let mut all = true;
        for (output, wanted) in self.outputs.iter().zip(wanted) {
            let Some(wanted) = wanted.filter(|wanted| wanted.has(event.stage)) else { continue };
            let written = at_level(event, &wanted, self.legacy);
            self.counters.event();
            for sink in &output.sinks {
                all &= sink.process_cut(&written, || without_objects(event, &wanted, self.legacy)).await;
            }
        }
        if !all && event.stage == Stage::RequestReceived {
            self.counters.rejected();
        }
        all
    }

    /// Hands an event of a stage to the organization's trail, where that wants it and has room for its author.
    pub(crate) async fn emit_trailed(&self, trailed: &Trailed, allowed: bool, event: &Event) {
        let Some(trails) = self.trails.as_ref().filter(|_| trailed.wanted.has(event.stage)) else { return };
        let (organization, standing) = (&trailed.organization, trailed.standing);
        let author = author(event);
        let entry = Entry { organization, standing, allowed, author: &author };
        let Some((address, left_out)) = trails.shares.place(&entry, Instant::now()) else {
            self.counters.left_out();
            return;
        };
        let mut event = event.clone();
        if left_out > 0 {
            event.annotations.insert(annotations::LEFT_OUT.to_owned(), left_out.to_string());
        }
        let written = at_level(&event, &trailed.wanted, false);
        self.counters.event();
        trails
            .sink
            .process(&Written { json: cut::event(written.json), line: None, address: Some(address) })
            .await;
    }

    /// Delivers what is still in the sinks, for at most that long.
    pub async fn close(&self, patience: Duration) {
        let trails = self.trails.iter().map(|trails| &trails.sink);
        let sinks = self.outputs.iter().flat_map(|output| &output.sinks).chain(trails);
        futures_util::future::join_all(sinks.map(|sink| sink.close(patience))).await;
    }
}

/// The event as one of several policies wants it.
fn at_level(event: &Event, wanted: &Wanted, legacy: bool) -> Written {
    let cut = |has: bool, level: Level| has && wanted.level < level;
    let less = cut(event.request_object.is_some(), Level::Request)
        || cut(event.response_object.is_some(), Level::RequestResponse);
    if event.level == wanted.level && !less && !wanted.omit_managed_fields {
        return event.written(legacy);
    }
    let mut event = event.clone();
    event.level = wanted.level;
    if wanted.level < Level::Request {
        event.request_object = None;
    }
    if wanted.level < Level::RequestResponse {
        event.response_object = None;
    }
    if wanted.omit_managed_fields {
        for object in [&mut event.request_object, &mut event.response_object].into_iter().flatten() {
            crate::record::drop_managed_fields(Arc::make_mut(object));
        }
    }
    event.written(legacy)
}

/// The event without what makes events large, for sinks that take no large ones; `None` where that is not in it.
fn without_objects(event: &Event, wanted: &Wanted, legacy: bool) -> Option<Written> {
    if wanted.level < Level::Request {
        return None;
    }
    let mut event = Event { level: wanted.level, ..event.clone() };
    (event.request_object, event.response_object) = (None, None);
    event.annotations.insert(annotations::TRUNCATED.to_owned(), "true".to_owned());
    Some(event.written(legacy))
}

/// Who is behind an event: a name or, of those who gave none, an address; of IPv6 the network that one site has.
fn author(event: &Event) -> String {
    let named = !matches!(&*event.user.username, "" | ANONYMOUS);
    if named {
        return event.user.username.to_string();
    }
    match event.source_ips.last().and_then(|ip| ip.parse().ok()) {
        Some(IpAddr::V6(six)) => format!("{:x?}", &six.segments()[..4]),
        Some(four) => four.to_string(),
        None => String::new(),
    }
}

fn event(begin: Begin<'_>, level: Level) -> Event {
    let subject = &begin.subject;
    let object = || ObjectReference {
        resource: subject.resource.to_owned(),
        namespace: subject.namespace.to_owned(),
        name: subject.name.to_owned(),
        api_group: subject.group.to_owned(),
        api_version: subject.version.to_owned(),
        subresource: subject.subresource.to_owned(),
        ..ObjectReference::default()
    };
    let named = [
        (annotations::PLANE, begin.plane.map(PlaneId::as_str)),
        (annotations::ORGANIZATION, begin.organization),
        (annotations::PROJECT, begin.project),
    ];
    let named = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    Event {
        kind: "Event",
        api_version: "audit.k8s.io/v1",
        level,
        audit_id: begin.audit_id.to_owned(),
        stage: Stage::RequestReceived,
        request_uri: begin.uri.to_owned(),
        verb: subject.verb.to_owned(),
        user: subject.user.map(Into::into).unwrap_or_default(),
        impersonated_user: None,
        authentication_metadata: None,
        source_ips: begin.source_ips,
        user_agent: cut::text(begin.user_agent, MAX_USER_AGENT),
        object_ref: (!subject.resource.is_empty()).then(object),
        response_status: None,
        request_object: None,
        response_object: None,
        request_received_timestamp: Micros(begin.received),
        stage_timestamp: Micros(begin.received),
        annotations: named.collect(),
    }
}
