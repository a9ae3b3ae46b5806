//! Reservations of quota for objects that were let in and are not stored yet.
//!
//! One QuotaLedger per tenant holds them. A *desk* gathers the requests of a tenant and writes all that fit in one update
//! of the ledger, with the ledger's resource version as precondition: several replicas of the webhook never let in more
//! than the limit together, and a replica that is killed leaves its reservations behind. A reservation is confirmed by
//! the watch that brings the object, and released when the request cannot be in flight any more.
//!
//! A replica that drops a confirmed reservation notes up to which resource version one must have read the objects to
//! count them. The others wait until their own watch is there.

use freehold_client::{Client, Error, Resource};
use freehold_machinery::time;
use freehold_runtime::{Key, Scope};
use freehold_tenancy_api::quota::{QuotaLedger, QuotaLedgerSpec, Reservation};
use freehold_tenancy_api::{GROUP, VERSION};
use freehold_tenancy_controllers::usage::{Usages, sum};
use freehold_tenancy_decide::limits::{Account, Amounts, ObjectId, amounts_from, check, growth, texts};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// QuotaLedgers.
pub const LEDGERS: Resource = Resource::cluster(GROUP, VERSION, "quotaledgers");
/// How long a request can be in flight: the API server's limit, and some.
const IN_FLIGHT: SignedDuration = SignedDuration::from_secs(65);
/// How long a reservation stays whose name is taken: its request fails, unless the object is deleted meanwhile.
const NAME_TAKEN: SignedDuration = SignedDuration::from_secs(5);
/// Requests that are decided together.
const BATCH: usize = 128;
/// Requests that wait at one desk.
const WAITING: usize = 2048;
/// Most reservations of a tenant; a ledger stays far below 100 KiB.
const MAX_RESERVATIONS: usize = 384;
/// How long a desk waits until its watches are where the ledger says.
const CATCH_UP: Duration = Duration::from_secs(3);
/// How long the arrival of an object is remembered: longer than any reservation of it.
const REMEMBERED: Duration = Duration::from_secs(120);
/// How many arrivals are remembered before old ones are forgotten.
const MAX_ARRIVALS: usize = 8192;
/// How often a contended ledger is tried.
const ATTEMPTS: usize = 20;

/// Why a request is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The tenant has no more.
    Exceeded(String),
    /// It cannot be decided now.
    TryAgain(String),
}

/// An object that is to be stored.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Which.
    pub id: ObjectId,
    /// Its uid, where it is known.
    pub uid: String,
    /// The object.
    pub object: Arc<freehold_machinery::Value>,
    /// The resource version that an update replaces; 0 for a creation.
    pub replaces: u64,
}

enum Message {
    Reserve(Wanted, oneshot::Sender<Result<(), Refusal>>),
    Release(ObjectId, String),
}

/// The desks of all tenants. Cheap to clone.
#[derive(Clone)]
pub struct Desks {
    inner: Arc<Inner>,
}

struct Inner {
    scope: Scope,
    client: Client,
    usages: Usages,
    desks: Mutex<HashMap<Key, mpsc::Sender<Message>>>,
    arrivals: Arc<Arrivals>,
}

/// Stored versions of objects that reservations wait for.
#[derive(Default)]
struct Arrivals {
    waiting: Mutex<HashMap<ObjectId, Arrival>>,
}

/// The last stored version of an object, and since when it is waited for.
struct Arrival {
    version: Option<(String, u64)>,
    since: Instant,
}

impl Desks {
    /// Desks over the accounts of `usages`.
    pub fn new(scope: &Scope, client: Client, usages: &Usages) -> Self {
        let arrivals = Arc::new(Arrivals::default());
        let seen = arrivals.clone();
        usages.on_object(move |_, id, object| {
            if let Some(slot) = seen.waiting.lock().get_mut(id) {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                slot.version = Some((text("uid").to_owned(), text("resourceVersion").parse().unwrap_or(0)));
            }
        });
        let inner =
            Inner { scope: scope.clone(), client, usages: usages.clone(), desks: Mutex::default(), arrivals };
        Self { inner: Arc::new(inner) }
    }

    /// Reserves what an object uses of the limits of each tenant, those above first.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is reserved then.
    pub async fn reserve(&self, tenants: &[Key], wanted: Wanted) -> Result<(), Refusal> {
        let mut reserved: Vec<&Key> = Vec::new();
        for tenant in tenants.iter().rev() {
            let now = Timestamp::now();
            let needs = self.inner.usages.read(tenant, |account| needs(account, &wanted, now)).transpose();
            match needs {
                Err(message) => {
                    return Err(self.give_back(&reserved, &wanted, Refusal::Exceeded(message)).await);
                }
                Ok(None | Some(false)) => continue,
                Ok(Some(true)) => {}
            }
            let (reply, answer) = oneshot::channel();
            let sent = self.desk(tenant).try_send(Message::Reserve(wanted.clone(), reply)).is_ok();
            let answer = match sent {
                true => answer.await.unwrap_or_else(|_| Err(busy("the webhook is stopping"))),
                false => Err(busy("too many requests wait for quota")),
            };
            match answer {
                Ok(()) => reserved.push(tenant),
                Err(refusal) => return Err(self.give_back(&reserved, &wanted, refusal).await),
            }
        }
        Ok(())
    }

    /// Checks what an object would use, and reserves nothing: for dry runs.
    ///
    /// # Errors
    /// [`Refusal`] where a limit would be exceeded.
    pub fn check(&self, tenants: &[Key], wanted: &Wanted) -> Result<(), Refusal> {
        for tenant in tenants {
            let read = self.inner.usages.read(tenant, |account| {
                let amounts =
                    account.limits.amounts(&wanted.id.resource, &wanted.object, Timestamp::now())?;
                let more = growth(&account.amounts_of(&wanted.id), &amounts);
                check(&account.limits, account.used(), &more).map_err(|exceeded| exceeded.to_string())
            });
            if let Some(Err(message)) = read {
                return Err(Refusal::Exceeded(exceeded(tenant, &message)));
            }
        }
        Ok(())
    }

    async fn give_back(&self, reserved: &[&Key], wanted: &Wanted, refusal: Refusal) -> Refusal {
        for tenant in reserved {
            let release = Message::Release(wanted.id.clone(), wanted.uid.clone());
            // A desk that is full or gone keeps the reservation until it expires.
            let _ = self.desk(tenant).try_send(release);
        }
        refusal
    }

    fn desk(&self, tenant: &Key) -> mpsc::Sender<Message> {
        let mut desks = self.inner.desks.lock();
        if let Some(desk) = desks.get(tenant).filter(|desk| !desk.is_closed()) {
            return desk.clone();
        }
        let (sender, receiver) = mpsc::channel(WAITING);
        desks.insert(tenant.clone(), sender.clone());
        let desk = Desk {
            tenant: tenant.clone(),
            client: self.inner.client.clone(),
            usages: self.inner.usages.clone(),
            arrivals: self.inner.arrivals.clone(),
            ledger: None,
        };
        let token = self.inner.scope.token.clone();
        self.inner.scope.tasks.spawn(desk.run(receiver, token));
        sender
    }
}

fn busy(why: &str) -> Refusal {
    Refusal::TryAgain(format!("{why}; try again"))
}

fn exceeded(tenant: &Key, message: &str) -> String {
    format!("exceeded quota of tenant {:?}: {message}", tenant.name)
}

/// Whether an object needs more of a tenant's limits than it has.
fn needs(account: &Account, wanted: &Wanted, now: Timestamp) -> Result<bool, String> {
    let amounts = account.limits.amounts(&wanted.id.resource, &wanted.object, now)?;
    let stored = if wanted.replaces > 0 { account.amounts_of(&wanted.id) } else { Amounts::new() };
    Ok(!growth(&stored, &amounts).is_empty())
}

/// Decides on the requests of one tenant, one batch after another.
struct Desk {
    tenant: Key,
    client: Client,
    usages: Usages,
    arrivals: Arc<Arrivals>,
    ledger: Option<QuotaLedger>,
}

type Reply = oneshot::Sender<Result<(), Refusal>>;

impl Desk {
    async fn run(
        mut self,
        mut messages: mpsc::Receiver<Message>,
        token: tokio_util::sync::CancellationToken,
    ) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                received = messages.recv_many(&mut batch, BATCH) => if received == 0 { return },
            }
            let (mut asks, mut releases) = (Vec::new(), Vec::new());
            for message in batch.drain(..) {
                match message {
                    Message::Reserve(wanted, reply) => asks.push((wanted, reply)),
                    Message::Release(id, uid) => releases.push((id, uid)),
                }
            }
            self.decide(asks, &releases).await;
        }
    }

    async fn decide(&mut self, asks: Vec<(Wanted, Reply)>, releases: &[(ObjectId, String)]) {
        let wanted: Vec<&Wanted> = asks.iter().map(|(wanted, _)| wanted).collect();
        let verdicts = match self.settle(&wanted, releases).await {
            Ok(verdicts) => verdicts,
            Err(refusal) => vec![Err(refusal); asks.len()],
        };
        for ((_, reply), verdict) in asks.into_iter().zip(verdicts) {
            // A request that has ended meanwhile needs no answer.
            let _ = reply.send(verdict);
        }
    }

    async fn settle(
        &mut self,
        wanted: &[&Wanted],
        releases: &[(ObjectId, String)],
    ) -> Result<Vec<Result<(), Refusal>>, Refusal> {
        let mut fresh = false;
        for attempt in 0..ATTEMPTS {
            if self.ledger.is_none() {
                self.ledger = Some(
                    self.load()
                        .await
                        .map_err(|error| busy(&format!("the ledger cannot be read: {error}")))?,
                );
                fresh = true;
            }
            let Some(ledger) = self.ledger.clone() else { continue };
            self.catch_up(&ledger.spec).await?;
            let round = self.round(&ledger, wanted, releases)?;
            if round.accepted == 0 && !fresh && !wanted.is_empty() {
                // Another replica may have confirmed reservations that this copy still has.
                self.ledger = None;
                continue;
            }
            if round.accepted == 0 && releases.is_empty() {
                return Ok(round.verdicts);
            }
            let next = QuotaLedger { spec: round.ledger, ..ledger };
            match self.write(&next).await {
                Ok(written) => {
                    self.ledger = Some(written);
                    return Ok(round.verdicts);
                }
                Err(error) if error.is_conflict() || error.is_not_found() => {
                    self.ledger = None;
                    let jitter = (attempt as u64 * 3) % 17;
                    tokio::time::sleep(Duration::from_millis(jitter)).await;
                }
                Err(error) => {
                    // It may have been written: what it says is read again.
                    self.ledger = None;
                    return Err(busy(&format!("the ledger cannot be written: {error}")));
                }
            }
        }
        Err(busy("the ledger of the tenant is contended"))
    }

    async fn load(&self) -> Result<QuotaLedger, Error> {
        let found = self.client.get_opt(&LEDGERS, None, &self.tenant.name).await?;
        let value = match found {
            Some(value) => value,
            None => {
                let new = QuotaLedger::new(&self.tenant.name, QuotaLedgerSpec::default());
                let new = serde_json::to_value(&new).map_err(|error| Error::Decode(error.to_string()))?;
                match self.client.create(&LEDGERS, &new).await {
                    Err(error) if error.is_already_exists() => {
                        self.client.get(&LEDGERS, None, &self.tenant.name).await?
                    }
                    other => other?,
                }
            }
        };
        serde_json::from_value(value).map_err(|error| Error::Decode(error.to_string()))
    }

    async fn write(&self, ledger: &QuotaLedger) -> Result<QuotaLedger, Error> {
        let value = serde_json::to_value(ledger).map_err(|error| Error::Decode(error.to_string()))?;
        let written = self.client.update(&LEDGERS, &value).await?;
        serde_json::from_value(written).map_err(|error| Error::Decode(error.to_string()))
    }

    /// Waits until the watches have what other replicas have seen.
    async fn catch_up(&self, ledger: &QuotaLedgerSpec) -> Result<(), Refusal> {
        let begun = Instant::now();
        loop {
            let seen = ledger.seen.iter().all(|(resource, version)| self.usages.has_seen(resource, version));
            if seen && self.usages.is_complete(&self.tenant) {
                return Ok(());
            }
            if begun.elapsed() > CATCH_UP {
                return Err(busy("what the tenant uses is still being counted"));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn round(
        &self,
        ledger: &QuotaLedger,
        wanted: &[&Wanted],
        releases: &[(ObjectId, String)],
    ) -> Result<Round, Refusal> {
        let now = Timestamp::now();
        let mut arrivals = self.arrivals.waiting.lock();
        let round = self.usages.read(&self.tenant, |account| {
            let mut round = Round::of(ledger, account, &arrivals, releases, now);
            round.verdicts =
                wanted.iter().map(|wanted| round.reserve(&self.tenant, account, wanted, now)).collect();
            round
        });
        let Some(round) = round else {
            // The limits went while the request was under way.
            return Ok(Round { verdicts: vec![Ok(()); wanted.len()], ..Round::default() });
        };
        if arrivals.len() > MAX_ARRIVALS {
            arrivals.retain(|_, arrival| arrival.since.elapsed() < REMEMBERED);
        }
        for reservation in &round.ledger.reservations {
            if let Some(id) = parse_id(&reservation.object) {
                arrivals.entry(id).or_insert(Arrival { version: None, since: Instant::now() });
            }
        }
        Ok(round)
    }
}

/// A reservation's object as text.
fn text_id(id: &ObjectId) -> String {
    id.to_string()
}

fn parse_id(text: &str) -> Option<ObjectId> {
    let mut parts = text.splitn(3, '/');
    let (resource, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    Some(ObjectId {
        resource: freehold_machinery::GroupResource::new(group, resource),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// A batch on its way into the ledger.
#[derive(Default)]
struct Round {
    ledger: QuotaLedgerSpec,
    /// Used and reserved.
    used: Amounts,
    /// The largest amounts that are reserved for each name: only one object of a name is ever stored.
    reserved: HashMap<ObjectId, Amounts>,
    accepted: usize,
    verdicts: Vec<Result<(), Refusal>>,
}

impl Round {
    /// Drops what is confirmed, expired or released, and adds up the rest.
    fn of(
        ledger: &QuotaLedger,
        account: &Account,
        arrivals: &HashMap<ObjectId, Arrival>,
        releases: &[(ObjectId, String)],
        now: Timestamp,
    ) -> Self {
        let mut round = Self { used: account.used().clone(), ..Self::default() };
        round.ledger.seen = ledger.spec.seen.clone();
        for reservation in &ledger.spec.reservations {
            let Some(id) = parse_id(&reservation.object) else { continue };
            let expired = time::parse(&reservation.expires_at).is_none_or(|at| at <= now);
            let is_released = releases.iter().any(|(other, uid)| *other == id && *uid == reservation.uid);
            let stored = account.stored(&id).map(|(uid, version)| (uid.to_owned(), version));
            let arrived = arrivals.get(&id).and_then(|arrival| arrival.version.clone());
            let confirmed = stored.into_iter().chain(arrived).find(|(uid, version)| {
                (reservation.uid.is_empty() || *uid == reservation.uid) && *version > reservation.replaces
            });
            if let Some((_, version)) = &confirmed {
                let seen = round.ledger.seen.entry(id.resource.to_string()).or_default();
                if seen.parse().unwrap_or(0) < *version {
                    *seen = version.to_string();
                }
            }
            if confirmed.is_some() || expired || is_released {
                continue;
            }
            let taken = reservation.replaces == 0
                && !reservation.uid.is_empty()
                && account.stored(&id).is_some_and(|(uid, _)| uid != reservation.uid);
            round.add(account, id, &amounts_from(&reservation.amounts));
            let mut kept = reservation.clone();
            if taken {
                // Another object got the name: the request fails, unless that object goes meanwhile.
                let soon = now.saturating_add(NAME_TAKEN).unwrap_or(Timestamp::MAX);
                let end = time::parse(&kept.expires_at).map_or(soon, |end| end.min(soon));
                kept.expires_at = time::format_micro(end);
            }
            round.ledger.reservations.push(kept);
        }
        round
    }

    /// How much more than is used or reserved an object of a name needs.
    fn more(&self, account: &Account, id: &ObjectId, amounts: &Amounts) -> Amounts {
        let stored = account.amounts_of(id);
        let held = self.reserved.get(id).map_or(stored.clone(), |reserved| largest(&stored, reserved));
        growth(&held, amounts)
    }

    fn add(&mut self, account: &Account, id: ObjectId, amounts: &Amounts) {
        self.used = sum(&self.used, &self.more(account, &id, amounts));
        let reserved = self.reserved.entry(id).or_default();
        *reserved = largest(reserved, amounts);
    }

    fn reserve(
        &mut self,
        tenant: &Key,
        account: &Account,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let amounts = account
            .limits
            .amounts(&wanted.id.resource, &wanted.object, now)
            .map_err(|message| Refusal::Exceeded(exceeded(tenant, &message)))?;
        let stored = account.stored(&wanted.id).map(|(uid, _)| uid.to_owned());
        let more = self.more(account, &wanted.id, &amounts);
        if self.ledger.reservations.len() >= MAX_RESERVATIONS {
            return Err(busy("too many objects of the tenant are being created"));
        }
        check(&account.limits, &self.used, &more)
            .map_err(|over| Refusal::Exceeded(exceeded(tenant, &over.to_string())))?;
        let taken = wanted.replaces == 0 && stored.is_some_and(|uid| uid != wanted.uid);
        let expires =
            now.saturating_add(if taken { NAME_TAKEN } else { IN_FLIGHT }).unwrap_or(Timestamp::MAX);
        self.ledger.reservations.push(Reservation {
            object: text_id(&wanted.id),
            uid: wanted.uid.clone(),
            amounts: texts(&amounts),
            expires_at: time::format_micro(expires),
            replaces: wanted.replaces,
        });
        self.add(account, wanted.id.clone(), &amounts);
        self.accepted += 1;
        Ok(())
    }
}

/// The larger of two amounts, by counter.
fn largest(a: &Amounts, b: &Amounts) -> Amounts {
    sum(a, &growth(a, b))
}
