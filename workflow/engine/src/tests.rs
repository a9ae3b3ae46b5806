//! The engine against a world of Pods in memory: random DAGs, random outcomes, events again and again, restarts.

use crate::*;
use freehold_workflow_api::{DagSpec, Decision, Phase};
use proptest::prelude::*;
use serde_json::{Value, from_value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A world of Pods: what was created, and how it ends.
struct World {
    plan: Plan,
    run: Run,
    now: i64,
    /// Pods with their states; those of which the end was counted are gone.
    pods: BTreeMap<(NodeId, u32), PodState>,
    /// Every attempt whose creation succeeded.
    created: BTreeSet<(NodeId, u32)>,
    notices: Vec<Notice>,
    /// What is kept beside the state.
    beside: BTreeMap<String, String>,
}

fn plan(spec: Value) -> Plan {
    let spec: DagSpec = from_value(spec).unwrap();
    Plan::compile(spec).unwrap_or_else(|errors| panic!("{errors:?}"))
}

impl World {
    fn new(spec: Value) -> Self {
        let plan = plan(spec);
        let info = Info {
            uid: "u".into(),
            name: "r".into(),
            params: BTreeMap::from([("p".into(), json!("x"))]),
            ..Info::default()
        };
        let mut world = Self {
            run: Run::new(&plan, info),
            plan,
            now: 1_000_000,
            pods: BTreeMap::new(),
            created: BTreeSet::new(),
            notices: Vec::new(),
            beside: BTreeMap::new(),
        };
        world.event(Event::Start);
        world
    }

    fn event(&mut self, event: Event) {
        let actions = self.run.apply(&self.plan, &event, self.now);
        let before = self.run.clone();
        let again = self.run.apply(&self.plan, &event, self.now);
        assert!(again.is_empty(), "{event:?} again: {again:?}");
        assert_eq!(self.run, before, "{event:?} again");
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::CreatePod { node, attempt } => {
                    if self.created.insert((node, attempt)) {
                        self.pods.insert((node, attempt), PodState::Pending);
                    }
                }
                Action::DeletePod { node, attempt } => drop(self.pods.remove(&(node, attempt))),
                Action::Execute { node, attempt } => {
                    self.event(Event::Executed { node, attempt, result: Ok(BTreeMap::new()) })
                }
                Action::Acquire { node } => self.event(Event::Granted { node }),
                Action::Cancel { .. } | Action::Release { .. } => {}
                Action::Notify(notice) => self.notices.push(notice),
            }
        }
    }

    fn pod(&mut self, task: &str, attempt: u32, state: PodState) {
        let node = NodeId::task(self.plan.number(task).unwrap());
        self.event(Event::Pod { node, attempt, state });
    }

    fn ok(&mut self, task: &str) {
        self.pod(task, 0, PodState::Succeeded(Ok(BTreeMap::new())));
    }

    fn fail(&mut self, task: &str, attempt: u32, code: i32) {
        self.pod(task, attempt, failed(code));
    }

    fn state(&self, task: &str) -> State {
        self.run.node(NodeId::task(self.plan.number(task).unwrap())).unwrap().state
    }

    fn pass(&mut self, millis: i64) {
        self.now += millis;
        self.event(Event::Time);
    }

    /// Writes the state, forgets everything, and reads it again.
    fn restart(&mut self) {
        if let Some(page) = self.run.page() {
            self.beside.extend(page.pieces.clone());
            self.run.paged(page);
        }
        let state = self.run.encode();
        assert_eq!(Run::kept_beside(&state).unwrap().len(), self.beside.len());
        let info = self.run.info.clone();
        self.take_up(&state, info);
    }

    fn take_up(&mut self, state: &freehold_workflow_api::EncodedState, info: Info) {
        self.run = Run::decode(&self.plan, info, state, &self.beside).unwrap();
        for ((node, attempt), state) in self.pods.clone() {
            self.event(Event::Pod { node, attempt, state });
        }
        let pods = self.created.clone();
        let actions = self.run.recover(&self.plan, |node, attempt| pods.contains(&(node, attempt)), self.now);
        self.act(actions);
    }
}

fn failed(code: i32) -> PodState {
    PodState::Failed(Failure { exit_code: Some(code), reason: "Error".into(), message: String::new() })
}

fn task(name: &str, after: &[&str]) -> Value {
    json!({"name": name, "image": "i", "runAfter": after})
}

fn with(mut task: Value, more: Value) -> Value {
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

#[test]
fn three_tasks_run_one_after_another() {
    let mut world = World::new(json!({"tasks": [task("a", &[]), task("b", &["a"]), task("c", &["b"])]}));
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(world.created.len(), n + 1);
        world.pod(name, 0, PodState::Running);
        world.ok(name);
    }
    assert_eq!((world.run.phase(), world.run.counts().succeeded), (Phase::Succeeded, 3));
    assert_eq!(world.notices.last(), Some(&Notice::RunEnded(Phase::Succeeded)));
}

#[test]
fn a_failure_skips_what_needs_success_and_other_branches_go_on() {
    let mut world = World::new(json!({
        "tasks": [task("a", &[]), task("b", &["a"]), task("c", &["b"]), task("other", &[]),
            with(task("always", &["a", "other"]), json!({"trigger": "all_done"})),
            with(task("on-failure", &["a"]), json!({"trigger": "one_failed"})),
            {"name": "expr", "image": "i", "depends": "a.failed && other"}],
        "finally": [{"name": "f", "image": "i"}],
    }));
    world.fail("a", 0, 1);
    assert_eq!((world.state("b"), world.state("c")), (State::Skipped, State::Skipped));
    let why = |task: &str| &world.run.details[&NodeId::task(world.plan.number(task).unwrap())].message;
    assert_eq!((why("b").as_str(), why("c").as_str()), ("task a failed", "task b was skipped"));
    assert_eq!((world.state("on-failure"), world.state("always")), (State::Starting, State::Waiting));
    world.ok("other");
    assert_eq!((world.state("always"), world.state("expr")), (State::Starting, State::Starting));
    for name in ["always", "expr", "on-failure"] {
        world.ok(name);
    }
    assert_eq!((world.state("f"), world.run.is_over()), (State::Starting, false));
    world.ok("f");
    assert_eq!(world.run.phase(), Phase::Failed);
}

#[test]
fn retries_are_exactly_as_many_as_the_limit_says() {
    // Kontroler's main branch counted each retry as a first attempt: a limit of 1 never ended, a limit of 0 retried once.
    for limit in 0..4u32 {
        let retry = json!({"retry": {"limit": limit, "backoff": {"duration": "1s", "jitterPercent": 0}}});
        let mut world = World::new(json!({"tasks": [with(task("a", &[]), retry)]}));
        for attempt in 0..=limit {
            assert_eq!(world.state("a"), State::Starting, "attempt {attempt} of limit {limit}");
            world.fail("a", attempt, 1);
            world.pass(60_000);
        }
        assert_eq!((world.state("a"), world.created.len() as u32), (State::Failed, limit + 1));
    }
}

#[test]
fn retries_wait_and_ask_for_exit_codes_and_conditions() {
    let retry = |more: Value| with(task("a", &[]), json!({"retry": with(json!({"limit": 5}), more)}));
    let rows = [
        (json!({"exitCodes": [7]}), 1, false),
        (json!({"exitCodes": [7]}), 7, true),
        (json!({"when": "exitCode == 1 && attempt < 1 && reason == 'Error' && duration >= 0.0"}), 1, true),
        (json!({"when": "exitCode == 1"}), 2, false),
        (json!({"maxDuration": "1s", "backoff": {"duration": "2s"}}), 1, false),
    ];
    for (retry_as, code, again) in rows {
        let mut world = World::new(json!({"tasks": [retry(retry_as.clone())]}));
        world.fail("a", 0, code);
        assert_eq!(!world.run.is_over(), again, "{retry_as} after {code}");
    }
    let mut world =
        World::new(json!({"tasks": [retry(json!({"backoff": {"duration": "2s", "jitterPercent": 0}}))]}));
    world.fail("a", 0, 1);
    assert_eq!((world.state("a"), world.run.next_wake()), (State::Backoff, Some(1_002_000)));
    world.pass(1000);
    assert_eq!(world.state("a"), State::Backoff);
    world.pass(1000);
    assert_eq!(world.state("a"), State::Starting);
}

#[test]
fn a_pod_that_was_evicted_or_deleted_is_made_again_three_times_beside_the_limit() {
    let mut world = World::new(json!({"tasks": [task("a", &[])]}));
    for attempt in 0..3 {
        world.pod("a", attempt, PodState::Gone);
        world.pass(100);
    }
    assert_eq!(world.state("a"), State::Starting);
    world.pod("a", 3, PodState::Failed(Failure::new("Evicted", "")));
    assert_eq!(world.run.phase(), Phase::Failed);
}

#[test]
fn an_image_that_cannot_be_pulled_for_a_while_does_not_fail_the_task() {
    let mut world = World::new(json!({"tasks": [task("a", &[])]}));
    let blocked = || PodState::Blocked { reason: "ErrImagePull".into(), message: "m".into() };
    world.pod("a", 0, blocked());
    world.pass(299_000);
    world.pod("a", 0, blocked());
    assert_eq!(world.state("a"), State::Starting);
    world.pass(2_000);
    assert_eq!((world.state("a"), world.run.phase()), (State::Failed, Phase::Failed));
    assert!(world.pods.is_empty(), "its Pod is deleted");
}

#[test]
fn items_run_within_their_window_and_their_outputs_are_a_list() {
    let mut world = World::new(json!({"tasks": [
        {"name": "a", "image": "i", "args": ["$(item.x)-$(item.y)"], "outputs": [{"name": "o", "type": "integer"}],
            "forEach": {"matrix": {"x": [1, 2], "y": ["u", "v"]}, "parallelism": 3}},
        {"name": "b", "image": "i", "forEach": {"expression": "tasks.a.outputs.o"}},
    ]}));
    assert_eq!((world.created.len(), world.run.counts().total), (3, 5));
    for item in 0..4 {
        let outputs = BTreeMap::from([("o".to_owned(), json!(item * 10))]);
        world.event(Event::Pod {
            node: NodeId::item(0, item),
            attempt: 0,
            state: PodState::Succeeded(Ok(outputs)),
        });
    }
    assert_eq!(world.run.outputs(0).unwrap()["o"], json!([0, 10, 20, 30]));
    assert_eq!(world.run.item(NodeId::item(1, 2)), Some(json!(20)));
    assert_eq!(world.run.item(NodeId::item(0, 3)), Some(json!({"x": 2, "y": "v"})));
    let text =
        values::expand_text(&world.run, &world.plan, NodeId::item(0, 1), 0, "$(item.x)-$(item.y)").unwrap();
    assert_eq!(text, "1-v");
    for item in 0..4 {
        let state = if item == 3 { failed(1) } else { PodState::Succeeded(Ok(BTreeMap::new())) };
        world.event(Event::Pod { node: NodeId::item(1, item), attempt: 0, state });
    }
    assert_eq!(world.run.phase(), Phase::Failed);
    // A retry does the item again that failed, and no other.
    world.event(Event::Command(Command::Retry { count: 1, tasks: vec![] }));
    assert_eq!(world.created.len(), 9);
    assert_eq!(
        world.run.node(NodeId::item(1, 3)).map(|node| (node.state, node.attempt)),
        Some((State::Starting, 1))
    );
    world.restart();
    world.event(Event::Pod {
        node: NodeId::item(1, 3),
        attempt: 1,
        state: PodState::Succeeded(Ok(BTreeMap::new())),
    });
    assert_eq!((world.run.phase(), world.run.counts().succeeded), (Phase::Succeeded, 8));
}

#[test]
fn a_retry_does_failed_tasks_again_and_what_comes_after() {
    let mut world =
        World::new(json!({"tasks": [task("a", &[]), task("b", &["a"]), task("c", &["b"]), task("d", &[])]}));
    world.ok("a");
    world.fail("b", 0, 1);
    world.ok("d");
    assert_eq!(world.run.phase(), Phase::Failed);
    world.event(Event::Command(Command::Retry { count: 1, tasks: vec![] }));
    assert_eq!(
        (world.state("a"), world.state("b"), world.state("c")),
        (State::Succeeded, State::Starting, State::Waiting)
    );
    world.pod("b", 1, PodState::Succeeded(Ok(BTreeMap::new())));
    let attempt = u32::from(world.run.node(NodeId::task(2)).unwrap().attempt);
    world.pod("c", attempt, PodState::Succeeded(Ok(BTreeMap::new())));
    assert_eq!(world.run.phase(), Phase::Succeeded);
    world.event(Event::Command(Command::Retry { count: 2, tasks: vec!["d".into()] }));
    assert_eq!((world.state("d"), world.state("c")), (State::Starting, State::Succeeded));
}

#[test]
fn stop_lets_tasks_end_and_runs_finally_tasks_and_terminate_does_neither() {
    let spec =
        json!({"tasks": [task("a", &[]), task("b", &["a"])], "finally": [{"name": "f", "image": "i"}]});
    let mut world = World::new(spec.clone());
    world.event(Event::Command(Command::Stop));
    assert_eq!((world.state("a"), world.state("b")), (State::Starting, State::Stopped));
    world.ok("a");
    assert_eq!(world.state("f"), State::Starting);
    world.ok("f");
    assert_eq!(world.run.phase(), Phase::Stopped);
    let mut world = World::new(spec);
    world.event(Event::Command(Command::Terminate));
    assert_eq!((world.run.phase(), world.state("f"), world.pods.len()), (Phase::Stopped, State::Stopped, 0));
}

#[test]
fn a_suspended_run_begins_no_task_until_it_is_resumed() {
    let mut world = World::new(json!({"tasks": [task("a", &[]), task("b", &["a"])]}));
    world.event(Event::Command(Command::Suspend));
    world.ok("a");
    assert_eq!((world.state("b"), world.run.phase()), (State::Ready, Phase::Suspended));
    world.restart();
    world.event(Event::Command(Command::Resume));
    assert_eq!(world.state("b"), State::Starting);
}

#[test]
fn waits_approvals_conditions_and_timeouts_need_no_pod_to_go_on() {
    let mut world = World::new(json!({"timeout": "1h", "parameters": [{"name": "p"}], "tasks": [
        {"name": "w", "wait": {"duration": "5s"}},
        {"name": "ok", "approval": {"message": "sure?"}, "runAfter": ["w"]},
        {"name": "no", "image": "i", "when": "params.p == 'y'"},
        {"name": "yes", "image": "i", "when": "params.p == 'x' && tasks.ok.phase == 'Succeeded'"},
        {"name": "slow", "image": "i", "timeout": "10s", "allowFailure": true},
    ]}));
    assert_eq!((world.state("no"), world.created.len()), (State::Skipped, 1));
    world.restart();
    world.pass(5_000);
    assert_eq!(world.state("ok"), State::Deciding);
    world.restart();
    let decide = Command::Decide { task: "ok".into(), decision: Decision::Approved, message: "by me".into() };
    world.event(Event::Command(decide));
    assert_eq!(world.state("yes"), State::Starting);
    world.pass(6_000);
    assert_eq!(world.state("slow"), State::Failed);
    world.ok("yes");
    assert_eq!(world.run.phase(), Phase::Succeeded);
}

#[test]
fn a_run_that_takes_too_long_ends_and_its_finally_tasks_run() {
    let mut world = World::new(
        json!({"timeout": "10s", "tasks": [task("a", &[]), task("b", &["a"])], "finally": [{"name": "f", "image": "i"}]}),
    );
    world.pass(10_000);
    assert_eq!((world.state("a"), world.state("f"), world.pods.len()), (State::Stopped, State::Starting, 1));
    world.ok("f");
    assert_eq!((world.run.phase(), world.run.reason().0), (Phase::Failed, "Timeout"));
}

#[test]
fn a_failure_ends_the_run_at_once_where_the_dag_says_so() {
    let mut world =
        World::new(json!({"failFast": true, "tasks": [task("a", &[]), task("b", &[]), task("c", &["b"])]}));
    world.fail("a", 0, 1);
    assert_eq!((world.run.phase(), world.state("b"), world.pods.len()), (Phase::Failed, State::Stopped, 1));
}

#[test]
fn parallelism_and_priorities_order_what_begins() {
    let mut world = World::new(
        json!({"parallelism": 1, "tasks": [task("a", &[]), with(task("b", &[]), json!({"priority": 5})), task("c", &[])]}),
    );
    assert_eq!(world.state("b"), State::Starting);
    world.ok("b");
    assert_eq!((world.state("a"), world.state("c")), (State::Starting, State::Ready));
}

#[test]
fn a_hundred_thousand_tasks_cost_as_much_each_as_ten() {
    let spec = |count: u32| json!({"tasks": [{"name": "a", "image": "i", "forEach": {"range": {"count": count}}}, task("b", &["a"])]});
    let measure = |count: u32| {
        let plan = plan(spec(count));
        let mut run = Run::new(&plan, Info::default());
        run.apply(&plan, &Event::Start, 1000);
        let mut begun = std::time::Instant::now();
        let (mut largest, mut cost) = (0, std::time::Duration::MAX);
        for item in 0..count {
            for state in [PodState::Running, PodState::Succeeded(Ok(BTreeMap::new()))] {
                run.apply(
                    &plan,
                    &Event::Pod { node: NodeId::item(0, item), attempt: 0, state },
                    1000 + i64::from(item),
                );
            }
            // The fastest of many short times: other programs use the machine as well.
            if item % 10 == 9 {
                cost = cost.min(begun.elapsed() / 10);
                begun = std::time::Instant::now();
            }
            if item == count / 2 {
                let mut status = freehold_workflow_api::DagRunStatus::default();
                run.status(&plan, &mut status);
                status.state = Some(run.encode());
                largest = serde_json::to_vec(&status).unwrap().len();
            }
        }
        run.apply(
            &plan,
            &Event::Pod {
                node: NodeId::task(1),
                attempt: 0,
                state: PodState::Succeeded(Ok(BTreeMap::new())),
            },
            1_000_000,
        );
        assert_eq!((run.phase(), run.counts().succeeded), (Phase::Succeeded, count + 1));
        (cost, largest)
    };
    let (small, _) = (0..300).map(|_| measure(10)).min().unwrap();
    let (large, size) = measure(100_000);
    println!(
        "an item costs {small:?} in a run of 10, {large:?} in one of 100,000, whose status has {size} bytes"
    );
    assert!(size < 256 << 10, "{size}");
    assert!(large < small * 2, "{large:?} against {small:?}");
}

#[test]
fn outputs_that_a_state_has_no_room_for_are_kept_beside_it() {
    let outputs = json!([{"name": "o"}]);
    let mut world = World::new(json!({"tasks": [
        with(task("a", &[]), json!({"outputs": outputs})),
        with(task("b", &["a"]), json!({"outputs": outputs, "forEach": {"range": {"count": 3}}})),
        {"name": "c", "image": "i", "forEach": {"expression": "tasks.b.outputs.o"}},
    ]}));
    let mut random = Random(7);
    let mut text = |bytes: usize| -> Value {
        let letters = (0..bytes).map(|_| char::from(b'a' + random.below(26) as u8));
        letters.collect::<String>().into()
    };
    let of = |value: &Value| PodState::Succeeded(Ok(BTreeMap::from([("o".to_owned(), value.clone())])));
    let large = text(1 << 20);
    world.pod("a", 0, of(&large));
    world.restart();
    assert!(world.run.encode().data.len() < 2048, "the state has its name alone");
    assert!(world.beside.len() > 3 && world.beside.values().all(|piece| piece.len() <= 160 << 10));
    assert_eq!(world.run.outputs(0).unwrap()["o"], large);
    let items: Vec<Value> = (0..3).map(|_| text(40_000)).collect();
    for (item, value) in (0..).zip(&items) {
        world.event(Event::Pod { node: NodeId::item(1, item), attempt: 0, state: of(value) });
        world.restart();
    }
    assert_eq!(
        world.run.outputs(1).unwrap()["o"],
        json!(items),
        "items have a list, also of pages of their own"
    );
    assert_eq!(world.run.item(NodeId::item(2, 1)), Some(items[1].clone()));
    // A task that is done again has nothing of what it gave before.
    world.event(Event::Command(Command::Terminate));
    world.event(Event::Command(Command::Retry { count: 1, tasks: vec!["a".into()] }));
    world.restart();
    assert_eq!(world.run.outputs(0), None);
    world.pod("a", 1, of(&json!("small")));
    world.restart();
    assert_eq!(world.run.outputs(0).unwrap()["o"], "small");
    // Large parameters as well.
    world.run.info.params.insert("large".into(), large.clone());
    world.restart();
    assert_eq!(world.run.info.params["large"], large);
    assert!(world.run.encode().data.len() < 4096);
}

#[test]
fn outputs_of_a_run_have_a_limit_together() {
    let mut world = World::new(json!({"tasks": [
        {"name": "a", "image": "i", "outputs": [{"name": "o"}], "forEach": {"range": {"count": 17}}},
    ]}));
    let large = BTreeMap::from([("o".to_owned(), Value::from("x".repeat(1 << 20)))]);
    for item in 0..17 {
        let state = PodState::Succeeded(Ok(large.clone()));
        world.event(Event::Pod { node: NodeId::item(0, item), attempt: 0, state });
    }
    assert_eq!((world.run.phase(), world.run.counts().failed), (Phase::Failed, 2));
}

/// A DAG from numbers: how many tasks, which edges, which rules.
fn random_dag(seed: u64) -> Value {
    let mut random = Random(seed);
    let count = 1 + random.below(12);
    let rules =
        ["all_success", "all_done", "one_failed", "one_success", "none_failed", "all_failed", "always"];
    let tasks: Vec<Value> = (0..count)
        .map(|n| {
            let after: Vec<String> = (0..n).filter(|_| random.below(4) == 0).map(|m| format!("t{m}")).collect();
            let mut task = json!({"name": format!("t{n}"), "runAfter": after, "trigger": rules[random.below(7) as usize]});
            match random.below(8) {
                0 => task["wait"] = json!({"duration": "3s"}),
                1 => task["http"] = json!({"url": "http://x"}),
                2 => {
                    task["image"] = "i".into();
                    task["forEach"] = json!({"range": {"count": random.below(5)}, "parallelism": random.below(3), "maxFailures": random.below(2)});
                }
                3 => {
                    task["image"] = "i".into();
                    task["mutexes"] = json!(["m"]);
                }
                _ => task["image"] = "i".into(),
            }
            task["retry"] = json!({"limit": random.below(3), "backoff": {"duration": "2s"}});
            if random.below(4) == 0 {
                task["timeout"] = "20s".into();
            }
            task["allowFailure"] = (random.below(5) == 0).into();
            task
        })
        .collect();
    json!({
        "tasks": tasks, "parallelism": random.below(4), "failFast": random.below(5) == 0,
        "finally": if random.below(2) == 0 { json!([{"name": "f", "image": "i"}]) } else { json!([]) },
    })
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Events come late, twice and out of order; the controller dies and takes up a state that is behind. Each run ends, with
    /// one Pod for each attempt.
    #[test]
    fn every_run_ends_with_one_pod_for_each_attempt_whatever_happens(seed in any::<u64>()) {
        let mut random = Random(seed ^ 0x5555);
        let mut world = World::new(random_dag(seed));
        let mut written = (world.run.encode(), world.run.info.clone());
        for step in 0.. {
            prop_assert!(step < 2000, "it does not end: {:?}", world.run);
            if world.run.is_over() && random.below(2) == 0 {
                break;
            }
            let all: Vec<_> = world.pods.iter().map(|(key, state)| (*key, state.clone())).collect();
            match random.below(10) {
                0 => {
                    // The status was written: ends that it counts need no Pods any more.
                    written = (world.run.encode(), world.run.info.clone());
                    let run = &world.run;
                    world.pods.retain(|(node, attempt), _| run.node(*node).is_some_and(|n| !n.state.is_over() && u32::from(n.attempt) <= *attempt));
                }
                1 => {
                    let (state, info) = written.clone();
                    world.take_up(&state, info);
                }
                2 | 3 => world.pass(1000 + random.below(4000) as i64),
                _ if !all.is_empty() => {
                    let ((node, attempt), state) = all[random.below(all.len() as u64) as usize].clone();
                    let next = match (state, random.below(3)) {
                        (PodState::Pending, 0) => PodState::Running,
                        (PodState::Pending | PodState::Running, 1) => PodState::Succeeded(Ok(BTreeMap::new())),
                        (PodState::Pending | PodState::Running, 2) => failed(1),
                        (state, _) => state,
                    };
                    world.pods.insert((node, attempt), next.clone());
                    world.event(Event::Pod { node, attempt, state: next });
                }
                _ => {}
            }
        }
        let counts = world.run.counts();
        prop_assert_eq!(counts.succeeded + counts.failed + counts.skipped, counts.total, "{:?}", counts);
        let names: BTreeSet<String> = world.created.iter().map(|(node, attempt)| world.run.pod_name(&world.plan, *node, *attempt)).collect();
        prop_assert_eq!(names.len(), world.created.len());
    }

    /// What is read is what was written, but for times of items that are over.
    #[test]
    fn a_state_that_is_written_and_read_goes_on_as_before(seed in any::<u64>()) {
        let mut world = World::new(random_dag(seed));
        for _ in 0..5 {
            world.restart();
            let all: Vec<_> = world.pods.keys().copied().collect();
            if let Some((node, attempt)) = all.first().copied() {
                world.pods.remove(&(node, attempt));
                world.event(Event::Pod { node, attempt, state: failed(3) });
            }
            let again = Run::decode(&world.plan, world.run.info.clone(), &world.run.encode(), &world.beside).unwrap();
            prop_assert_eq!(again.counts(), world.run.counts());
            prop_assert_eq!((&again.open, &again.tally, &again.ready, again.active, again.left), (&world.run.open, &world.run.tally, &world.run.ready, world.run.active, world.run.left));
        }
    }
}
