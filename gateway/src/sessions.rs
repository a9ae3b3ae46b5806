//! Sessions: which cookie acts as whom, until when. Pure but for the lock: callers pass the time in.

use crate::{
    identity::{Caller, Person},
    oidc::Tokens,
    pieces,
    rate::{Bucket, Rate},
    secret::{self, Hash},
    share::{self, Share, Shares},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicUsize},
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Sessions at a time; of the group that has most, the one that was used least recently makes room.
const SESSIONS: usize = 10_000;
/// Sessions of one user at a time, likewise.
const OF_ONE: usize = 20;
/// Longest life of a session.
pub(crate) const LIFE: Duration = Duration::from_secs(12 * 3600);
/// Longest time for which a session is not used.
const IDLE: Duration = Duration::from_secs(2 * 3600);
/// Requests of a session.
const RATE: Rate = Rate { per_second: 50.0, burst: 400.0 };

/// How a session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Link,
    Token,
    Oidc,
}

impl Method {
    /// As it stands in answers.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Token => "token",
            Self::Oidc => "oidc",
        }
    }
}

/// A person who is signed in.
pub(crate) struct Session {
    /// Identifies it in this process, and is no secret.
    pub(crate) id: Hash,
    pub(crate) person: Person,
    pub(crate) method: Method,
    /// Who it acts as. OpenID Connect replaces its token in time.
    pub(crate) caller: Mutex<Caller>,
    /// Tokens of an issuer; locked by whoever renews them.
    pub(crate) tokens: tokio::sync::Mutex<Option<Tokens>>,
    pub(crate) began: Instant,
    /// Cancelled when it ends.
    pub(crate) ended: CancellationToken,
    /// Open streams.
    pub(crate) streams: AtomicUsize,
    /// Places for large answers.
    pub(crate) large: Arc<Semaphore>,
    /// Places for logs that are followed.
    pub(crate) logs: Arc<Semaphore>,
    /// What it may hold together with others of its group.
    pub(crate) share: Arc<Share>,
    used: Mutex<Instant>,
    bucket: Mutex<Bucket>,
}

impl Session {
    /// Whether it counts at a moment.
    fn is_valid(&self, now: Instant) -> bool {
        let idle = now.saturating_duration_since(*self.used.lock());
        now.saturating_duration_since(self.began) < LIFE && idle < IDLE && !self.ended.is_cancelled()
    }

    /// Whether it may send one request more.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        self.bucket.lock().take(RATE, now)
    }
}

/// All sessions of this process.
#[derive(Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<Hash, Arc<Session>>>,
    shares: Shares,
}

impl Sessions {
    /// Begins a session and returns its cookie, which is nowhere else.
    pub(crate) fn begin(
        &self,
        person: Person,
        method: Method,
        (caller, tokens): (Caller, Option<Tokens>),
        now: Instant,
    ) -> (String, Arc<Session>) {
        let (cookie, session) = self.make(person, method, (caller, tokens), now);
        let mut all = self.all.lock();
        all.retain(|_, session| session.is_valid(now) || end(session));
        let name = &session.person.name;
        make_room(&mut all, OF_ONE, |other| other.person.name == *name);
        if all.len() >= SESSIONS {
            let largest = largest_group(&all);
            let limit = count(&all, &largest);
            make_room(&mut all, limit, |other| share::group(&other.person.name) == largest);
        }
        all.insert(session.id, session.clone());
        (cookie, session)
    }

    /// A session and its cookie, before anything finds it.
    fn make(
        &self,
        person: Person,
        method: Method,
        (caller, tokens): (Caller, Option<Tokens>),
        now: Instant,
    ) -> (String, Arc<Session>) {
        let cookie = secret::fresh();
        let id = secret::hash(&cookie);
        let share = self.shares.of(&person.name);
        let session = Arc::new(Session {
            id,
            person,
            method,
            caller: Mutex::new(caller),
            tokens: tokio::sync::Mutex::new(tokens),
            began: now,
            ended: CancellationToken::new(),
            streams: AtomicUsize::new(0),
            large: Arc::new(Semaphore::new(pieces::LARGE)),
            logs: Arc::new(Semaphore::new(pieces::LOGS)),
            share,
            used: Mutex::new(now),
            bucket: Mutex::new(Bucket::new(RATE, now)),
        });
        (cookie, session)
    }

    /// The session of a cookie.
    pub(crate) fn get(&self, cookie: &str, now: Instant) -> Option<Arc<Session>> {
        let session = self.all.lock().get(&secret::hash(cookie)).cloned()?;
        if !session.is_valid(now) {
            self.end(&session);
            return None;
        }
        *session.used.lock() = now;
        Some(session)
    }

    /// Ends a session and everything that goes on in it.
    pub(crate) fn end(&self, session: &Session) {
        self.all.lock().remove(&session.id);
        session.ended.cancel();
    }

    /// Ends all sessions of a user.
    pub(crate) fn end_all(&self, name: &str) {
        self.all.lock().retain(|_, session| session.person.name != name || end(session));
    }
}

/// Ends a session; `false`, for those who retain others.
fn end(session: &Session) -> bool {
    session.ended.cancel();
    false
}

/// The group that has most sessions.
fn largest_group(all: &HashMap<Hash, Arc<Session>>) -> String {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for session in all.values() {
        *counts.entry(share::group(&session.person.name)).or_default() += 1;
    }
    let largest = counts.into_iter().max_by_key(|(_, count)| *count);
    largest.map(|(name, _)| name.to_owned()).unwrap_or_default()
}

/// How many sessions a group has.
fn count(all: &HashMap<Hash, Arc<Session>>, group: &str) -> usize {
    all.values().filter(|session| share::group(&session.person.name) == group).count()
}

/// Ends the least recently used of some sessions, so that one more makes `limit` of them.
fn make_room(all: &mut HashMap<Hash, Arc<Session>>, limit: usize, of: impl Fn(&Session) -> bool) {
    loop {
        let these = all.values().filter(|session| of(session));
        if these.clone().count() < limit {
            return;
        }
        let Some(oldest) = these.min_by_key(|session| *session.used.lock()).cloned() else { return };
        all.remove(&oldest.id);
        oldest.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::{Client, Config, Identity};

    fn caller() -> Caller {
        let client = Client::new(&Config::new("http://127.0.0.1:1", "", Identity::None)).unwrap();
        Caller::bearer(&client, "t").unwrap()
    }

    fn begin(sessions: &Sessions, name: &str, now: Instant) -> String {
        let person = Person { name: name.to_owned(), groups: Vec::new() };
        sessions.begin(person, Method::Token, (caller(), None), now).0
    }

    #[test]
    fn sessions_expire_when_idle_and_in_any_case() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let cookie = begin(&sessions, "jane", start);
        assert!(sessions.get(&cookie, start + IDLE - Duration::from_secs(1)).is_some());
        assert!(sessions.get(&cookie, start + IDLE * 2).is_none());
        let cookie = begin(&sessions, "jane", start);
        for step in 1..=11 {
            assert!(sessions.get(&cookie, start + Duration::from_secs(3600 * step)).is_some(), "{step}");
        }
        assert!(sessions.get(&cookie, start + LIFE).is_none());
    }

    #[test]
    fn a_user_has_so_many_sessions_and_ends_all_of_them() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let first = begin(&sessions, "jane", start);
        let other = begin(&sessions, "john", start);
        let cookies: Vec<String> =
            (1..=OF_ONE).map(|n| begin(&sessions, "jane", start + Duration::from_secs(n as u64))).collect();
        let now = start + Duration::from_secs(60);
        assert!(sessions.get(&first, now).is_none(), "it made room");
        assert!(cookies.iter().all(|cookie| sessions.get(cookie, now).is_some()));
        sessions.end_all("jane");
        assert!(cookies.iter().all(|cookie| sessions.get(cookie, now).is_none()));
        assert!(sessions.get(&other, now).is_some());
    }

    #[test]
    fn an_organization_with_many_accounts_signs_out_its_own() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let jane = begin(&sessions, "jane", start);
        let one = sessions.get(&jane, start).unwrap();
        let caller = one.caller.lock().clone();
        let name = |n: usize| format!("system:serviceaccount:acme:{}", n / OF_ONE);
        let person = |n| Person { name: name(n), groups: Vec::new() };
        // The map is filled as it would be in hours: each beginning looks through all sessions.
        let template = |n| sessions.make(person(n), Method::Token, (caller.clone(), None), start).1;
        let made: Vec<Arc<Session>> = (0..SESSIONS - 1).map(template).collect();
        sessions.all.lock().extend(made.into_iter().map(|session| (session.id, session)));
        let john = begin(&sessions, "john", start);
        assert!(sessions.get(&jane, start).is_some() && sessions.get(&john, start).is_some());
        assert_eq!(sessions.all.lock().len(), SESSIONS);
    }
}
