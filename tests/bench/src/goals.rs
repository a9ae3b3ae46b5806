//! What Freehold promises to reach, and the table that says whether it does.

use crate::report::Value;
use crate::subject::Kind;
use std::time::Duration;

/// A figure to be reached.
#[derive(Debug)]
pub(crate) struct Goal {
    /// What is measured.
    pub(crate) what: &'static str,
    /// At least or at most so much, on the embedded engine and on etcd.
    bounds: [Bound; 2],
}

/// The sizes that goals are about: smaller runs measure, and say nothing of them.
pub(crate) mod size {
    pub(crate) const PLANES: usize = 100_000;
    pub(crate) const SOME_PLANES: usize = 10_000;
    pub(crate) const OBJECTS: usize = 10_000;
    pub(crate) const WATCHERS: usize = 1000;
    pub(crate) const QUEUED_RUNS: usize = 5000;
    pub(crate) const TASKS: usize = 100_000;
    pub(crate) const LIVE_RUNS: usize = 10_000;
}

/// On which side of a value it is good to be.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(Value),
    AtLeast(Value),
}

/// What was measured for a goal.
#[derive(Debug)]
pub(crate) struct Reached {
    /// The goal.
    pub(crate) goal: &'static Goal,
    /// The server that was measured.
    pub(crate) kind: Kind,
    /// The figure.
    pub(crate) value: Value,
}

const fn at_most(what: &'static str, value: Value) -> Goal {
    Goal { what, bounds: [Bound::AtMost(value); 2] }
}

const fn micros(n: u64) -> Value {
    Value::Time(Duration::from_micros(n))
}

pub(crate) static PLANES: Goal = Goal {
    what: "shared planes on one server, each with a namespace, an RBAC binding and 5 objects",
    bounds: [Bound::AtLeast(Value::Count(100_000)); 2],
};
pub(crate) static PLANES_MEMORY: Goal =
    at_most("resident memory with 100,000 of them existing and idle", Value::Bytes(1 << 30));
pub(crate) static PLANES_CREATED: Goal = Goal {
    what: "planes created",
    bounds: [Bound::AtLeast(Value::Rate(1000.0)), Bound::AtLeast(Value::Rate(300.0))],
};
pub(crate) static PLANES_DELETED: Goal =
    at_most("10,000 planes deleted with their objects", micros(30_000_000));
pub(crate) static FIRST_REQUEST: Goal = at_most("first request to an evicted plane, p99", micros(20_000));
pub(crate) static CACHED: Goal =
    at_most("memory of 10,000 custom resources of 1 KiB in one plane, cached", Value::Bytes(30_000_000));
pub(crate) static GET: Goal = at_most("get of one object, server CPU", micros(50));
pub(crate) static LIST: Goal = at_most("list of 10,000 x 1 KiB custom resources, server CPU", micros(15_000));
pub(crate) static CREATE: Goal =
    at_most("create of a 1 KiB object, server CPU with the store's", micros(200));
pub(crate) static EVENT: Goal = at_most("one event to one watcher, server CPU", micros(3));
pub(crate) static FAN_OUT: Goal =
    at_most("event to 1,000 watchers of one plane, the last, p99", micros(20_000));
pub(crate) static IDLE: Goal = at_most("idle server, core and infra planes", Value::Bytes(40_000_000));
pub(crate) static RESTART: Goal =
    at_most("`freehold up` on a data directory with 10,000 planes, until it is ready", micros(1_000_000));

pub(crate) static CRD_INSTALL: Goal = at_most("a CRD installed beside up to 1,000, p99", micros(50_000));
pub(crate) static CRD_MEMORY: Goal = at_most("memory of each further CRD of 1,000", Value::Bytes(300_000));

pub(crate) static FIRST_VIEW: Goal =
    at_most("the console's first view beside 100,000 projects, p99", micros(1_000_000));
pub(crate) static SWITCH: Goal = at_most(
    "a switch of page in the console beside 100,000 projects, p99 of the slowest page",
    micros(200_000),
);
pub(crate) static ON_SCREEN: Goal =
    at_most("an event on the console's screen, from its request, p99", micros(200_000));
pub(crate) static VIEWERS_MEMORY: Goal =
    at_most("memory that 100 viewers of a busy project add", Value::Bytes(10_000_000));
pub(crate) static VIEWERS_PROCESSOR: Goal =
    at_most("CPU that 100 viewers of a busy project add", Value::Percent(5.0));

pub(crate) static WEBHOOK: Goal =
    at_most("a webhook's call beyond the webhook's own time, added to the p99 of a create", micros(1_000));

pub(crate) static FAIRNESS: Goal = at_most(
    "p99 of planes beside one that sends 20 times its share of what costs most, more than alone",
    Value::Percent(25.0),
);

pub(crate) static NAMESPACE_DELETED: Goal =
    at_most("a namespace of 10,000 objects deleted", micros(10_000_000));
pub(crate) static OWNER_COLLECTED: Goal = at_most("an owner of 10,000 objects collected", micros(10_000_000));
pub(crate) static OTHER_NAMESPACE: Goal =
    at_most("another plane's namespace deleted meanwhile, p99", micros(1_000_000));

pub(crate) static API_MEMORY: Goal =
    at_most("resident memory of each of 10,000 bindings of one kind", Value::Bytes(1000));
pub(crate) static API_BOUND: Goal = at_most("from a binding until its kind is served, p99", micros(50_000));
pub(crate) static API_SCHEMA: Goal =
    at_most("a new schema of a kind, until each of 10,000 planes was asked and serves it", micros(5_000_000));
pub(crate) static API_LIST: Goal =
    at_most("a provider's first list over 10,000 planes of 10 objects each", micros(2_000_000));
pub(crate) static API_EVENT: Goal =
    at_most("a consumer's write to the provider's watch over 10,000 planes, p99", micros(20_000));

pub(crate) static MANAGER_SYNC: Goal = at_most(
    "a controller manager has seen 10,000 planes with 10 namespaces and 50 owned objects each",
    micros(60_000_000),
);
pub(crate) static MANAGER_MEMORY: Goal =
    at_most("resident memory of that controller manager", Value::Bytes(500_000_000));
pub(crate) static MANAGER_REST: Goal =
    at_most("CPU of that controller manager at rest, of a core", Value::Percent(2.0));

pub(crate) static WORKFLOW_RATE: Goal =
    Goal { what: "one-Pod runs of a workflow", bounds: [Bound::AtLeast(Value::Rate(100.0)); 2] };
pub(crate) static WORKFLOW_QUEUE: Goal =
    at_most("5,000 one-Pod runs that wait at once, until all are over", micros(60_000_000));
pub(crate) static WORKFLOW_NEXT: Goal =
    at_most("from a task's end to the creation of the next Pod, p99", micros(100_000));
pub(crate) static WORKFLOW_LARGE: Goal = at_most(
    "controllers' CPU for a task of a run of 100,000, beyond that of a run of 10",
    Value::Percent(50.0),
);
pub(crate) static WORKFLOW_MEMORY: Goal =
    at_most("controllers with 10,000 live runs of 10 tasks", Value::Bytes(256_000_000));
pub(crate) static WORKFLOW_LATE: Goal = at_most("a scheduled run is late, p99", micros(1_000_000));

/// All goals, in the order of the table.
pub(crate) static ALL: [&Goal; 39] = [
    &PLANES,
    &PLANES_MEMORY,
    &PLANES_CREATED,
    &PLANES_DELETED,
    &FIRST_REQUEST,
    &CACHED,
    &GET,
    &LIST,
    &CREATE,
    &EVENT,
    &FAN_OUT,
    &IDLE,
    &RESTART,
    &CRD_INSTALL,
    &CRD_MEMORY,
    &WEBHOOK,
    &NAMESPACE_DELETED,
    &OWNER_COLLECTED,
    &OTHER_NAMESPACE,
    &MANAGER_SYNC,
    &MANAGER_MEMORY,
    &MANAGER_REST,
    &FAIRNESS,
    &FIRST_VIEW,
    &SWITCH,
    &ON_SCREEN,
    &VIEWERS_MEMORY,
    &VIEWERS_PROCESSOR,
    &API_MEMORY,
    &API_BOUND,
    &API_SCHEMA,
    &API_LIST,
    &API_EVENT,
    &WORKFLOW_RATE,
    &WORKFLOW_QUEUE,
    &WORKFLOW_NEXT,
    &WORKFLOW_LARGE,
    &WORKFLOW_MEMORY,
    &WORKFLOW_LATE,
];

impl Bound {
    fn is_met(self, value: Value) -> bool {
        // Values of one kind compare; a CPU time is a time.
        let value = if let Value::Cpu(time) = value { Value::Time(time) } else { value };
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(bound) => format!("≤ {bound}"),
            Self::AtLeast(bound) => format!("≥ {bound}"),
        }
    }
}

impl Goal {
    fn bound(&self, kind: Kind) -> Option<Bound> {
        Kind::FREEHOLD.into_iter().zip(self.bounds).find_map(|(of, bound)| (of == kind).then_some(bound))
    }

    /// The goal, for the table.
    pub(crate) fn text(&self) -> String {
        let [embedded, etcd] = self.bounds.map(Bound::text);
        if embedded == etcd { embedded } else { format!("{embedded} embedded, {etcd} on etcd") }
    }

    /// A figure and whether it reaches the goal. A peer has none.
    pub(crate) fn verdict(&self, kind: Kind, value: Value) -> String {
        match self.bound(kind) {
            None => value.to_string(),
            Some(bound) if bound.is_met(value) => format!("{value}: met"),
            Some(_) => format!("{value}: **missed**"),
        }
    }
}

/// The table's lines, with figures that were measured now in place of those of `before`, the table as it stands.
pub(crate) fn table(before: &str, reached: &[Reached]) -> String {
    let old: Vec<Vec<&str>> = before.lines().map(cells).collect();
    let mut text = String::from(
        "| what | goal | embedded | on etcd | kube-apiserver |\n| --- | --- | --- | --- | --- |\n",
    );
    for goal in ALL {
        let row = old.iter().find(|row| row.first() == Some(&goal.what));
        let kept = |index: usize| row.and_then(|row| row.get(index)).copied().unwrap_or_default();
        let cell = |(index, kind): (usize, Kind)| {
            let now = reached.iter().rev().find(|r| std::ptr::eq(r.goal, goal) && r.kind == kind);
            now.map_or_else(|| kept(index + 2).to_owned(), |r| goal.verdict(kind, r.value))
        };
        let measured: Vec<String> = Kind::ALL.into_iter().enumerate().map(cell).collect();
        text += &format!("| {} | {} | {} |\n", goal.what, goal.text(), measured.join(" | "));
    }
    text
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_meets_its_bound_or_misses_it() {
        let rows = [
            (&GET, Kind::Embedded, Value::Cpu(Duration::from_micros(50)), "50 µs (20000/s): met"),
            (&GET, Kind::Etcd, Value::Cpu(Duration::from_micros(51)), "51 µs (19608/s): **missed**"),
            (&PLANES_CREATED, Kind::Embedded, Value::Rate(400.0), "400/s: **missed**"),
            (&PLANES_CREATED, Kind::Etcd, Value::Rate(400.0), "400/s: met"),
            (&GET, Kind::Kube, Value::Cpu(Duration::from_micros(500)), "500 µs (2000/s)"),
        ];
        for (goal, kind, value, expected) in rows {
            assert_eq!(goal.verdict(kind, value), expected);
        }
    }

    #[test]
    fn figures_that_were_not_measured_now_stay() {
        let first = table("", &[Reached { goal: &IDLE, kind: Kind::Embedded, value: Value::Bytes(1000) }]);
        let second = table(&first, &[Reached { goal: &IDLE, kind: Kind::Etcd, value: Value::Bytes(2000) }]);
        let line = second.lines().find(|line| line.contains(IDLE.what)).unwrap();
        assert!(line.ends_with("| ≤ 40.0 MB | 1.0 KB: met | 2.0 KB: met |  |"), "{line}");
        assert_eq!(second.lines().count(), ALL.len() + 2);
    }
}
