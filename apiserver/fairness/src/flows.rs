//! FlowSchemas and PriorityLevelConfigurations, compiled
//! (<https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>).

use crate::{bootstrap, scheduler::Scheduler};
use freehold_machinery::{User, Value, meta};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

const EXEMPT: &str = "exempt";
const CATCH_ALL: &str = "catch-all";
/// What Kubernetes takes where an object says nothing.
const PRECEDENCE: i64 = 1000;
const SHARES: i64 = 30;

/// A request, as schemas see it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Who asks.
    pub user: &'a User,
    /// `get`, `list`, ...
    pub verb: &'a str,
    /// Group, resource with its subresource (`pods/status`), and namespace (empty where it is about none); `None` for other
    /// paths.
    pub resource: Option<(&'a str, &'a str, &'a str)>,
    /// The path, where it is about no resource.
    pub path: &'a str,
}

/// The schemas and levels of a plane.
#[derive(Debug)]
pub struct Flows {
    schemas: Vec<Schema>,
    levels: BTreeMap<String, Level>,
    shares: i64,
}

#[derive(Debug)]
struct Schema {
    name: String,
    uid: String,
    precedence: i64,
    level: String,
    distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Debug, PartialEq)]
enum Distinguisher {
    None,
    User,
    Namespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount(String, String),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    cluster: bool,
    namespaces: Vec<String>,
}

#[derive(Debug)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

#[derive(Debug)]
struct Level {
    uid: String,
    exempt: bool,
    shares: i64,
    lendable: i64,
    borrows: Option<u32>,
    queues: u32,
    hand: u32,
    longest: usize,
}

/// What a request matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched<'a> {
    /// The uid of its FlowSchema.
    pub schema: &'a str,
    /// The uid of its PriorityLevelConfiguration.
    pub level: &'a str,
    /// The name of that.
    level_name: &'a str,
    schema_name: &'a str,
    /// What flow it belongs to, hashed.
    flow: u64,
}

impl Matched<'_> {
    /// The name of the level.
    pub fn level_name(&self) -> &str {
        self.level_name
    }

    /// The name of the schema.
    pub fn schema_name(&self) -> &str {
        self.schema_name
    }
}

/// A level that limits.
pub(crate) struct Limited<'a> {
    pub(crate) name: &'a str,
    /// Percent of its own seats that it may take from others; `None`: as many as there are.
    pub(crate) borrows: Option<u32>,
    queues: u32,
    hand: u32,
    /// Requests of one queue that may wait; 0: none waits.
    pub(crate) longest_queue: usize,
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let items = value[field].as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn each<T>(value: &Value, field: &str, read: fn(&Value) -> T) -> Vec<T> {
    value[field].as_array().into_iter().flatten().map(read).collect()
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl Subject {
    fn read(subject: &Value) -> Self {
        match subject["kind"].as_str() {
            Some("User") => Self::User(text(subject, "/user/name")),
            Some("ServiceAccount") => Self::ServiceAccount(
                text(subject, "/serviceAccount/namespace"),
                text(subject, "/serviceAccount/name"),
            ),
            _ => Self::Group(text(subject, "/group/name")),
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.is_in(name),
            Self::ServiceAccount(namespace, name) => {
                let account = user.name.strip_prefix("system:serviceaccount:");
                account
                    .and_then(|account| account.split_once(':'))
                    .is_some_and(|(ns, account)| ns == namespace && (name == "*" || name == account))
            }
        }
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        Self {
            subjects: each(rule, "subjects", Subject::read),
            resources: each(rule, "resourceRules", |rule| ResourceRule {
                verbs: texts(rule, "verbs"),
                groups: texts(rule, "apiGroups"),
                resources: texts(rule, "resources"),
                cluster: rule["clusterScope"] == true,
                namespaces: texts(rule, "namespaces"),
            }),
            paths: each(rule, "nonResourceRules", |rule| PathRule {
                verbs: texts(rule, "verbs"),
                paths: texts(rule, "nonResourceURLs"),
            }),
        }
    }

    fn matches(&self, asked: Asked<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        if !self.subjects.iter().any(|subject| subject.is(asked.user)) {
            return false;
        }
        match asked.resource {
            Some((group, resource, namespace)) => self.resources.iter().any(|rule| {
                has(&rule.verbs, asked.verb)
                    && has(&rule.groups, group)
                    && has(&rule.resources, resource)
                    && match namespace {
                        "" => rule.cluster,
                        namespace => has(&rule.namespaces, namespace),
                    }
            }),
            None => self.paths.iter().any(|rule| {
                has(&rule.verbs, asked.verb) && rule.paths.iter().any(|path| is_path(path, asked.path))
            }),
        }
    }
}

/// Whether a path is that of a rule, which may end with `*`.
fn is_path(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some("") => true,
        Some(prefix) => path.starts_with(prefix),
        None => rule == path,
    }
}

impl Schema {
    fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        Self {
            name: meta::name(object).to_owned(),
            uid: meta::uid(object).to_owned(),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(PRECEDENCE),
            level: text(spec, "/priorityLevelConfiguration/name"),
            distinguisher: match spec["distinguisherMethod"]["type"].as_str() {
                Some("ByUser") => Distinguisher::User,
                Some("ByNamespace") => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: each(spec, "rules", Rule::read),
        }
    }
}

impl Level {
    fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        let exempt = spec["type"] == "Exempt";
        let limits = if exempt { &spec["exempt"] } else { &spec["limited"] };
        let queuing = &limits["limitResponse"]["queuing"];
        let number = |field: &str, default: i64| queuing[field].as_i64().unwrap_or(default).max(0);
        let queues = limits["limitResponse"]["type"] == "Queue";
        Self {
            uid: meta::uid(object).to_owned(),
            exempt,
            shares: limits["nominalConcurrencyShares"]
                .as_i64()
                .unwrap_or(if exempt { 0 } else { SHARES })
                .max(0),
            lendable: limits["lendablePercent"].as_i64().unwrap_or(0).clamp(0, 100),
            borrows: limits["borrowingLimitPercent"].as_u64().and_then(|percent| u32::try_from(percent).ok()),
            queues: number("queues", 64).clamp(1, 10_000) as u32,
            hand: number("handSize", 8).clamp(1, 64) as u32,
            longest: if queues { number("queueLengthLimit", 50).max(1) as usize } else { 0 },
        }
    }
}

impl Flows {
    /// From the objects of a plane. What no plane can be without is there in any case.
    pub fn of(schemas: &[Value], levels: &[Value]) -> Self {
        let mut all: BTreeMap<String, Level> =
            levels.iter().map(|object| (meta::name(object).to_owned(), Level::read(object))).collect();
        for object in bootstrap::priority_levels().iter().filter(|object| is_mandatory(object)) {
            all.entry(meta::name(object).to_owned()).or_insert_with(|| Level::read(object));
        }
        let mut read: Vec<Schema> = schemas.iter().map(Schema::read).collect();
        // A schema whose level is not there leads nowhere.
        read.retain(|schema| all.contains_key(&schema.level));
        for object in bootstrap::flow_schemas().iter().filter(|object| is_mandatory(object)) {
            if !read.iter().any(|schema| schema.name == meta::name(object)) {
                read.push(Schema::read(object));
            }
        }
        read.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        let shares = all.values().map(|level| level.shares).sum::<i64>().max(1);
        Self { schemas: read, levels: all, shares }
    }

    /// Those that every plane begins with.
    pub fn bootstrap() -> Arc<Self> {
        Arc::new(Self::of(&bootstrap::flow_schemas(), &bootstrap::priority_levels()))
    }

    /// The first schema that matches, and its level.
    pub fn classify<'a>(&'a self, asked: Asked<'_>) -> Matched<'a> {
        let matches = |schema: &&Schema| schema.rules.iter().any(|rule| rule.matches(asked));
        let found = self.schemas.iter().find(matches);
        let found = found.or_else(|| self.schemas.iter().find(|schema| schema.name == CATCH_ALL));
        let (schema, level_name, distinguisher) = match found {
            Some(schema) => (schema.uid.as_str(), schema.level.as_str(), &schema.distinguisher),
            None => ("", CATCH_ALL, &Distinguisher::User),
        };
        let of_flow = match distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &asked.user.name,
            Distinguisher::Namespace => asked.resource.map_or("", |(_, _, namespace)| namespace),
        };
        let mut hasher = DefaultHasher::new();
        (schema, of_flow).hash(&mut hasher);
        let level = self.levels.get(level_name).map_or("", |level| level.uid.as_str());
        let schema_name = found.map_or(CATCH_ALL, |schema| schema.name.as_str());
        Matched { schema, level, level_name, schema_name, flow: hasher.finish() }
    }

    /// The level of a request, unless it is exempt.
    pub(crate) fn limited<'a>(&'a self, matched: Matched<'a>) -> Option<Limited<'a>> {
        let level = self.levels.get(matched.level_name).filter(|level| !level.exempt)?;
        Some(Limited {
            name: matched.level_name,
            borrows: level.borrows,
            queues: level.queues,
            hand: level.hand,
            longest_queue: level.longest,
        })
    }

    /// The seats of a level, of so many of all.
    pub(crate) fn nominal(&self, level: &str, seats: u32) -> u64 {
        let shares = self.levels.get(level).map_or(0, |level| level.shares) as u64;
        (u64::from(seats) * shares).div_ceil(self.shares as u64)
    }

    /// The levels that limit, with their seats of so many.
    pub fn seats(&self, seats: u32) -> impl Iterator<Item = (&str, u64)> {
        let limited = self.levels.iter().filter(|(_, level)| !level.exempt);
        limited.map(move |(name, _)| (name.as_str(), self.nominal(name, seats)))
    }

    /// Levels with their seats and how many of those they lend.
    pub(crate) fn lenders(&self, seats: u32) -> impl Iterator<Item = (&str, u64, u64)> {
        self.levels.iter().filter(|(_, level)| level.lendable > 0).map(move |(name, level)| {
            let nominal = self.nominal(name, seats);
            (name.as_str(), nominal, nominal * level.lendable as u64 / 100)
        })
    }
}

fn is_mandatory(object: &Value) -> bool {
    [EXEMPT, CATCH_ALL].contains(&meta::name(object))
}

impl Limited<'_> {
    /// The queue of a request's flow: the shortest of those that its hash deals it (shuffle sharding).
    pub(crate) fn queue_of(&self, matched: Matched<'_>, scheduler: &Scheduler<u32>) -> u32 {
        let hand = deal(matched.flow, self.queues, self.hand);
        hand.into_iter().min_by_key(|queue| scheduler.queued(("", queue))).unwrap_or(0)
    }
}

/// So many different cards of a deck, by a hash.
fn deal(mut hash: u64, deck: u32, hand: u32) -> Vec<u32> {
    let mut cards: Vec<u32> = Vec::with_capacity(hand as usize);
    for dealt in 0..hand.min(deck) {
        let left = u64::from(deck - dealt);
        let mut card = (hash % left) as u32;
        hash = (hash / left).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ hash;
        // The card's place among those that are still in the deck.
        let mut taken = cards.clone();
        taken.sort_unstable();
        for earlier in taken {
            card += u32::from(earlier <= card);
        }
        cards.push(card);
    }
    cards
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED};

    #[test]
    fn requests_match_the_schemas_that_kubernetes_begins_with() {
        let flows = Flows::bootstrap();
        let pods = Some(("", "pods", "default"));
        let leases = Some(("coordination.k8s.io", "leases", "kube-system"));
        let rows = [
            ("root", vec![MASTERS, AUTHENTICATED], pods, "exempt"),
            ("jane", vec![AUTHENTICATED], pods, "global-default"),
            ("jane", vec![AUTHENTICATED], None, "catch-all"),
            (ANONYMOUS, vec![UNAUTHENTICATED], pods, "global-default"),
            ("system:node:a", vec!["system:nodes", AUTHENTICATED], pods, "system"),
            (
                "system:node:a",
                vec!["system:nodes", AUTHENTICATED],
                Some(("", "nodes/status", "")),
                "node-high",
            ),
            ("system:kube-controller-manager", vec![AUTHENTICATED], leases, "leader-election"),
            ("system:kube-scheduler", vec![AUTHENTICATED], pods, "workload-high"),
            (
                "system:serviceaccount:kube-system:x",
                vec!["system:serviceaccounts", AUTHENTICATED],
                pods,
                "workload-high",
            ),
            (
                "system:serviceaccount:a:x",
                vec!["system:serviceaccounts", AUTHENTICATED],
                pods,
                "workload-low",
            ),
        ];
        for (name, groups, resource, level) in rows {
            let groups = groups.into_iter().map(str::to_owned).collect();
            let user = User { name: name.into(), groups, ..User::default() };
            let matched = flows.classify(Asked { user: &user, verb: "get", resource, path: "/version" });
            assert_eq!(matched.level_name(), level, "{name} {resource:?}");
        }
        let user = User { name: "jane".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
        let matched = flows.classify(Asked { user: &user, verb: "get", resource: None, path: "/livez" });
        assert!(flows.limited(matched).is_none(), "probes are exempt");
    }

    #[test]
    fn seats_are_divided_by_shares() {
        let flows = Flows::bootstrap();
        // 30 + 40 + 10 + 40 + 100 + 20 + 5 shares.
        assert_eq!(flows.nominal("workload-low", 600), 245);
        assert_eq!(flows.nominal("catch-all", 600), 13);
        assert_eq!(flows.nominal("exempt", 600), 0);
        let lent: Vec<_> = flows.lenders(600).map(|(name, _, lendable)| (name, lendable)).collect();
        assert!(lent.contains(&("workload-low", 220)), "{lent:?}");
    }

    #[test]
    fn a_hand_has_different_cards() {
        for hash in 0..2_000u64 {
            let hand = deal(hash.wrapping_mul(0x2545_F491_4F6C_DD1D), 16, 4);
            let mut sorted = hand.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 4, "{hand:?}");
            assert!(sorted.iter().all(|card| *card < 16));
        }
        assert_eq!(deal(7, 2, 6).len(), 2);
    }

    #[test]
    fn broken_objects_leave_what_is_mandatory() {
        let flows = Flows::of(&[serde_json::json!({"metadata": {"name": "x"}, "spec": 3})], &[]);
        let user = User { name: "jane".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
        let asked = Asked { user: &user, verb: "get", resource: Some(("", "pods", "")), path: "" };
        assert_eq!(flows.classify(asked).level_name(), CATCH_ALL);
    }
}
