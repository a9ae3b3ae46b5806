//! Carries runs out.

mod act;
mod finish;
mod load;
mod release;
mod share;

pub(crate) use finish::Known;

use crate::Options;
use crate::definition::Definitions;
use crate::figures::Figures;
use crate::kinds::{CLUSTER_TASKS, DAGS, PODS, RUNS, TASKS};
use crate::live::Live;
use crate::memo::Fresh;
use crate::trace::Tracer;
use crate::view::{DagView, PodView, RunView};
use freehold_machinery::PlaneId;
use freehold_runtime::{
    Change, Controller, Informer, Interest, Key, Outcome, Planes, Presence, Queue, Reconciled, Recorder,
    Scope, Store,
};
use freehold_workflow_api::{Decision, RunState, names};
use freehold_workflow_engine::locks::Locks;
use freehold_workflow_engine::{Command, Event, NodeId, PodState, State};
use freehold_workflow_outbound::Outbound;
use parking_lot::Mutex;
use release::Releases;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Runs of one plane that are worked on at once.
const WORKERS: usize = 16;
/// How soon a run is looked at again that waits for something nobody reports.
const AGAIN: Duration = Duration::from_secs(15);
/// How soon a run is looked at again that has something to do which can't be done yet.
const SOON: Duration = Duration::from_millis(50);
/// How often an object is looked at whose condition is waited for.
const POLL: Duration = Duration::from_secs(2);

/// A run, or one of its tasks, that has locks or waits for them.
pub(crate) type Holder = (Key, Option<NodeId>);
type Namespace = (PlaneId, Box<str>);
type Inbox = HashMap<Key, HashMap<Box<str>, (Arc<PodView>, bool)>>;

/// The controller of runs.
pub(crate) struct Runs {
    pub(crate) planes: Planes,
    pub(crate) options: Options,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) runs: Store<RunView>,
    pods: Store<PodView>,
    pub(crate) definitions: Definitions,
    /// Runs that were taken up; `None` while a worker has one.
    live: Mutex<HashMap<Key, Option<Live>>>,
    /// Pods that changed, by their runs.
    inbox: Mutex<Inbox>,
    /// Children that ended, by the runs that they are for.
    children: Mutex<HashMap<Key, Vec<Event>>>,
    locks: Mutex<HashMap<Namespace, Locks<Holder>>>,
    /// Namespaces whose holders of locks are all known.
    settled: Mutex<HashSet<Namespace>>,
    /// Resource versions of last statuses of runs that are over, until they are seen.
    last_written: Mutex<HashMap<Key, String>>,
    pub(crate) recorder: Recorder,
    /// Runs of whose end somebody is to be told.
    pub(crate) notify_queue: Arc<Queue<Key>>,
    /// Runs of Kontroler's kind whose counterparts changed.
    pub(crate) kontroler_queue: Arc<Queue<Key>>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) outbound: Outbound,
    fresh: Fresh,
    tracer: Option<Tracer>,
    releases: Releases,
    /// Keys of DAGs whose runs changed.
    pub(crate) dag_queue: Arc<Queue<Key>>,
}

/// A label selector for objects of an install.
pub(crate) fn selector(instance: &str, more: &str) -> String {
    let own = match instance {
        "" => format!("!{}", names::INSTANCE),
        instance => format!("{}={instance}", names::INSTANCE),
    };
    if more.is_empty() { own } else { format!("{more},{own}") }
}

/// The index entry of what belongs to a run or DAG.
pub(crate) fn entry(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Starts the controller of runs.
pub(crate) fn start(scope: &Scope, options: Options) -> Arc<Runs> {
    let planes = &scope.planes;
    let (queue, dag_queue) = (Queue::new(), Queue::new());
    let (figures, outbound) = (options.figures.clone(), crate::notify::outbound(&options));
    let tracer = Tracer::for_operator(&options.traces, &figures, &scope.token);
    let dags = Interest::projected(DAGS, |dag| Some(DagView::of(&dag)));
    let mut dags = Informer::new(planes, dags.labels(selector(&options.instance, "")));
    let mut tasks = Informer::new(planes, Interest::objects(TASKS));
    let mut cluster_tasks = Informer::new(planes, Interest::objects(CLUSTER_TASKS));
    let of_dag = |key: &Key, run: &RunView| vec![entry(&key.namespace, &run.dag)];
    let interest =
        Interest::projected(RUNS, RunView::of).labels(selector(&options.instance, "")).index(of_dag);
    let mut run_informer = Informer::new(planes, interest);
    let of_run = |key: &Key, pod: &PodView| vec![entry(&key.namespace, &pod.run)];
    let interest = Interest::projected(PODS, |pod| PodView::of(&pod))
        .labels(selector(&options.instance, names::RUN_UID))
        .index(of_run);
    let mut pods = Informer::new(planes, interest);
    let runs = Arc::new(Runs {
        planes: planes.clone(),
        queue: queue.clone(),
        runs: run_informer.store(),
        pods: pods.store(),
        definitions: Definitions::new(&options.instance, dags.store(), tasks.store(), cluster_tasks.store()),
        live: Mutex::default(),
        inbox: Mutex::default(),
        children: Mutex::default(),
        locks: Mutex::default(),
        settled: Mutex::default(),
        last_written: Mutex::default(),
        recorder: Recorder::new("freehold-workflow"),
        dag_queue: dag_queue.clone(),
        notify_queue: Queue::new(),
        kontroler_queue: Queue::new(),
        figures,
        outbound,
        fresh: Fresh::default(),
        tracer,
        releases: Releases::default(),
        options,
    });
    let on_change = dag_queue.clone();
    dags.on_change(move |change| crate::dags::enqueue(&on_change, change));
    let on_dag = runs.clone();
    dags.on_change(move |change| on_dag.dag_changed(change));
    for shared in [&mut tasks, &mut cluster_tasks] {
        let (queue, dags) = (dag_queue.clone(), dags.store());
        shared.on_change(move |change| crate::dags::enqueue_invalid(&queue, &dags, &change.key));
    }
    let on_run = runs.clone();
    run_informer.on_change(move |change| on_run.run_changed(change));
    let on_pod = runs.clone();
    pods.on_change(move |change| on_pod.pod_changed(change));
    let token = &scope.token;
    let stores = (dags.store(), tasks.store(), cluster_tasks.store());
    scope.tasks.spawn(dags.run(token.clone()));
    scope.tasks.spawn(tasks.run(token.clone()));
    scope.tasks.spawn(cluster_tasks.run(token.clone()));
    scope.tasks.spawn(run_informer.run(token.clone()));
    scope.tasks.spawn(pods.run(token.clone()));
    let controller = Controller::new("workflow-run", queue).workers(WORKERS).metrics(&scope.metrics);
    Releases::start(scope, &runs);
    let (working, token) = (runs.clone(), token.clone());
    scope.tasks.spawn(async move {
        let (runs, pods) = (working.runs.clone(), working.pods.clone());
        stores.0.synced(&token).await;
        for store in [&stores.1, &stores.2] {
            store.synced(&token).await;
        }
        if runs.synced(&token).await && pods.synced(&token).await {
            controller.run(token, move |key| work(working.clone(), key)).await;
        }
    });
    runs
}

/// Reconciles a run, if its plane and its share of the work are here.
async fn work(runs: Arc<Runs>, key: Key) -> Reconciled {
    match runs.planes.presence(&key.plane) {
        Presence::Arriving => return Ok(Outcome::After(Duration::from_millis(100))),
        Presence::Here if !runs.planes.is_handed_over(&key.plane) => {}
        _ => {
            runs.forget(&key);
            return Ok(Outcome::Done);
        }
    }
    let planes = runs.planes.clone();
    let (plane, again) = (key.plane.clone(), key.clone());
    let working =
        planes.work(&plane, async { runs.options.shared(&again, runs.clone().reconcile(key)).await });
    match working.await.flatten() {
        Some(done) => done,
        None => {
            // Nothing of it is lost: whoever has it takes it up.
            runs.forget(&again);
            Ok(Outcome::Done)
        }
    }
}

impl Runs {
    pub(crate) fn client(&self, key: &Key) -> freehold_client::Client {
        self.planes.client(&key.plane)
    }

    /// Runs that wait for a DAG are looked at when it comes.
    fn dag_changed(&self, change: &Change<DagView>) {
        if change.old.is_some() || change.new.is_none() {
            return;
        }
        for (key, run) in
            self.runs.by_index(&change.key.plane, &entry(&change.key.namespace, &change.key.name))
        {
            if !run.over {
                self.queue.add(key);
            }
        }
    }

    fn run_changed(&self, change: &Change<RunView>) {
        let key = &change.key;
        let view = change.new.as_ref().or(change.old.as_ref());
        let Some(view) = view else { return };
        // What its DAG keeps depends on these.
        let differs =
            |old: &Arc<RunView>, new: &Arc<RunView>| (old.over, old.untold) != (new.over, new.untold);
        let news =
            change.old.as_ref().is_none_or(|old| change.new.as_ref().is_none_or(|new| differs(old, new)));
        if news && !view.dag.is_empty() {
            self.dag_queue.add(Key::new(key.plane.clone(), &key.namespace, &view.dag));
        }
        if news && view.kontroler && self.options.kontroler {
            self.kontroler_queue.add(key.clone());
        }
        if view.over && view.untold && change.new.is_some() {
            self.notify_queue.add(key.clone());
        }
        if let Some((parent, node, attempt)) =
            view.parent.clone().filter(|_| view.over || change.new.is_none())
        {
            let parent = Key::new(key.plane.clone(), &key.namespace, &parent);
            let event = Event::Executed { node, attempt, result: finish::of_child(view) };
            if self.live.lock().contains_key(&parent)
                || self.runs.get(&parent).is_some_and(|parent| !parent.over)
            {
                self.children.lock().entry(parent.clone()).or_default().push(event);
                self.queue.add(parent);
            }
        }
        match change.initial {
            true => self.queue.add_routine(key.clone()),
            false => self.queue.add(key.clone()),
        }
    }

    fn pod_changed(&self, change: &Change<PodView>) {
        let Some(view) = change.new.as_ref().or(change.old.as_ref()) else { return };
        if change.old.as_ref().zip(change.new.as_ref()).is_some_and(|(old, new)| old == new) {
            return;
        }
        let run = Key::new(change.key.plane.clone(), &change.key.namespace, &view.run);
        let news = (view.clone(), change.new.is_none());
        self.inbox.lock().entry(run.clone()).or_default().insert(change.key.name.clone(), news);
        match change.initial {
            true => self.queue.add_routine(run),
            false => self.queue.add(run),
        }
    }

    /// Forgets a run that is not this controller's any more.
    fn forget(&self, key: &Key) {
        self.live.lock().remove(key);
        self.inbox.lock().remove(key);
        self.children.lock().remove(key);
        self.last_written.lock().remove(key);
        let namespace = (key.plane.clone(), key.namespace.clone());
        // What others hold is to be looked up again.
        self.settled.lock().remove(&namespace);
        self.locks.lock().remove(&namespace);
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Reconciled {
        let Some(view) = self.runs.get(&key) else { return self.gone(&key).await };
        if view.over {
            return self.over(&key, &view).await;
        }
        let mut live = match self.take(&key, &view.uid) {
            Some(live) => live,
            None => match self.load(&key, &view).await? {
                load::Loaded::Live(live) => {
                    self.live.lock().insert(key.clone(), None);
                    *live
                }
                load::Loaded::Wait(delay) => return Ok(Outcome::After(delay)),
                load::Loaded::Ended => return Ok(Outcome::Done),
            },
        };
        let done = self.step(&key, &view, &mut live).await;
        if live.lost || done.as_ref().is_ok_and(|_| live.run.is_over() && !live.dirty) {
            self.live.lock().remove(&key);
            return done;
        }
        self.live.lock().insert(key, Some(live));
        done
    }

    /// Returns a run that was taken up before, if it is still the one with this uid. It stays known as taken up.
    fn take(&self, key: &Key, uid: &str) -> Option<Live> {
        let mut all = self.live.lock();
        let found = all.get_mut(key).and_then(Option::take).filter(|live| live.run.info.uid == uid);
        if found.is_none() {
            all.remove(key);
        }
        found
    }

    /// Takes in what happened, does what follows, and writes what is to be known.
    async fn step(&self, key: &Key, view: &RunView, live: &mut Live) -> Reconciled {
        let client = self.client(key);
        self.commands(view, live);
        self.events(&client, key, live).await?;
        if !live.run.is_started() && !live.run.is_over() {
            if !self.lock_run(key, live) {
                self.write(&client, key, live).await?;
                return Ok(Outcome::After(AGAIN));
            }
            live.apply(&Event::Start);
        }
        live.apply(&Event::Time);
        self.decisions(live);
        let acted = self.act(&client, key, live).await;
        let wait = self.write_in_time(&client, key, live).await?;
        if !live.dirty && !live.run.is_over() {
            self.release_pods(key, live);
        }
        acted?;
        let mut next = wait.into_iter().chain(self.until_next(live)).min();
        if !live.polled.is_empty() {
            next = Some(next.unwrap_or(POLL).min(POLL));
        }
        if !live.todo.is_empty() {
            next = Some(next.unwrap_or(SOON).min(SOON));
        }
        Ok(next.map_or(Outcome::Done, Outcome::After))
    }

    /// How long until the run has to be looked at though nothing happens.
    fn until_next(&self, live: &Live) -> Option<Duration> {
        let wait = live.run.next_wake()? - crate::live::now();
        Some(Duration::from_millis(wait.max(1).unsigned_abs()))
    }

    /// What the run's spec asks for.
    fn commands(&self, view: &RunView, live: &mut Live) {
        let generation = view.object.as_ref().and_then(|object| object["metadata"]["generation"].as_i64());
        if live.seen_generation == generation && generation.is_some() {
            return;
        }
        if let Some(Ok(object)) = crate::definition::typed(view) {
            live.object = object;
        }
        live.seen_generation = generation;
        let spec = live.object.spec.clone();
        if let Some(retry) = spec.retry {
            live.apply(&Event::Command(Command::Retry { count: retry.count, tasks: retry.tasks }));
        }
        let command = match spec.state {
            RunState::Running => Command::Resume,
            RunState::Suspended => Command::Suspend,
            RunState::Stopped => Command::Stop,
            RunState::Terminated => Command::Terminate,
        };
        live.apply(&Event::Command(command));
    }

    /// Applies decisions in the run's spec about tasks that wait for one, however long before they were made. One can bring the next
    /// task to wait.
    fn decisions(&self, live: &mut Live) {
        loop {
            let approvals = live.object.spec.approvals.iter();
            let mut waited = approvals.filter(|(task, _)| live.run.waits_for_decision(&live.plan, task));
            let Some((task, approval)) =
                waited.next().map(|(task, approval)| (task.clone(), approval.clone()))
            else {
                return;
            };
            let by = if approval.by.is_empty() { String::new() } else { format!("{}: ", approval.by) };
            let decision: Decision = approval.decision;
            let message = format!("{by}{}", approval.message);
            live.apply(&Event::Command(Command::Decide { task, decision, message }));
        }
    }

    /// Takes in Pods that changed and children that ended.
    async fn events(
        &self,
        client: &freehold_client::Client,
        key: &Key,
        live: &mut Live,
    ) -> Result<(), freehold_client::Error> {
        let pods = self.inbox.lock().remove(key).unwrap_or_default();
        let mut pods: Vec<_> =
            pods.into_iter().filter(|(_, (pod, _))| pod.run_uid == live.run.info.uid).collect();
        pods.sort_by_key(|(_, (pod, _))| (pod.attempt, pod.node));
        while let Some((name, (pod, deleted))) = pods.pop() {
            if let Err(error) = self.pod_news(client, key, live, &pod, deleted).await {
                // None of them is lost.
                let mut inbox = self.inbox.lock();
                let again = inbox.entry(key.clone()).or_default();
                for (name, news) in pods.into_iter().chain([(name, (pod, deleted))]) {
                    again.entry(name).or_insert(news);
                }
                return Err(error);
            }
        }
        for event in self.children.lock().remove(key).unwrap_or_default() {
            live.apply(&event);
        }
        Ok(())
    }

    async fn pod_news(
        &self,
        client: &freehold_client::Client,
        key: &Key,
        live: &mut Live,
        pod: &PodView,
        deleted: bool,
    ) -> Result<(), freehold_client::Error> {
        let (node, attempt) = (pod.node, pod.attempt);
        let current =
            live.run.node(node).filter(|of| u32::from(of.attempt) == attempt && !of.state.is_over());
        if current.is_some_and(|of| of.state == State::Waiting) && !pod.has_ended() {
            return Ok(());
        }
        if current.is_some() {
            let event = match deleted && !pod.has_ended() {
                true => Event::Pod { node, attempt, state: PodState::Gone },
                false => live.pod_event(client, key, pod).await?,
            };
            live.apply(&event);
            self.keep_result(client, key, live, &event).await;
        }
        let counted =
            live.run.node(node).is_none_or(|of| u32::from(of.attempt) > attempt || of.state.is_over());
        if counted && pod.held && !deleted {
            live.ended.insert((node, attempt));
        }
        Ok(())
    }

    /// Keeps the result of a task that succeeded, where it is to be kept. One that is lost is found again.
    async fn keep_result(&self, client: &freehold_client::Client, key: &Key, live: &Live, event: &Event) {
        let Event::Pod { node, attempt, state: PodState::Succeeded(Ok(outputs)) } = event else { return };
        if let Err(error) = live.remember(client, key, (*node, *attempt), outputs, &self.fresh).await {
            tracing::warn!(run = %key.name, %error, "failed to keep the result of a task; it will be done again");
        }
    }

    fn namespace(key: &Key) -> Namespace {
        (key.plane.clone(), key.namespace.clone())
    }
}
