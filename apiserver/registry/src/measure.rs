//! Metrics of admission, under kube-apiserver's names and labels.

use freehold_apiserver_admission::{
    Chain, Verb,
    webhook::{Failure, Response},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use std::{
    collections::HashSet,
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Upper bounds of the buckets of durations, in seconds (kube-apiserver's).
const STEPS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
/// Upper bounds of the buckets of webhooks' durations, in seconds (kube-apiserver's).
const WEBHOOKS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// How many webhooks are told by their names. Projects name their own, so there could be any number.
const MOST_NAMES: usize = 500;
/// The greatest status code that is told of a refusal: 600 stands for what is no status code of a client's or server's error.
const OTHER_CODE: u16 = 600;

/// Which pass of admission: `admit`, in which objects may change, or `validate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Admit,
    Validate,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validate => "validate",
        }
    }
}

/// The operations as admission knows them.
const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

fn operation(verb: Verb) -> usize {
    match verb {
        Verb::Create => 0,
        Verb::Update => 1,
        Verb::Delete => 2,
        Verb::Connect => 3,
    }
}

fn told(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabels {
    r#type: &'static str,
    operation: &'static str,
    rejected: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NamedLabels {
    name: String,
    #[prometheus(flatten)]
    step: StepLabels,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    #[prometheus(flatten)]
    named: NamedLabels,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RejectionLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OpenLabels {
    name: String,
    r#type: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// What one plugin took where it refused nothing, by operation and step. There from the first time on.
struct Passed {
    name: &'static str,
    took: [[OnceLock<Histogram>; 2]; 4],
}

impl Passed {
    fn of(name: &'static str) -> Self {
        Self { name, took: Default::default() }
    }
}

/// What admission took, and what it refused.
pub struct AdmissionMetrics {
    steps: Histograms<StepLabels>,
    controllers: Histograms<NamedLabels>,
    /// Counts of the controllers that let something pass: by plugin, operation and step, so that nothing has to be looked up.
    passed: Vec<Passed>,
    webhooks: Histograms<NamedLabels>,
    /// A gauge, as the names of counters end with `_total`, which this one's does not.
    rejections: Family<RejectionLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    open: Family<OpenLabels, Gauge>,
    names: parking_lot::Mutex<HashSet<String>>,
}

impl AdmissionMetrics {
    /// For the plugins of a chain.
    pub(crate) fn of(chain: &Chain) -> Self {
        let controllers: Histograms<NamedLabels> = Family::new_with_constructor(|| Histogram::new(STEPS));
        let passed = chain.names().into_iter().map(Passed::of).collect();
        Self {
            steps: Family::new_with_constructor(|| Histogram::new(STEPS)),
            controllers,
            passed,
            webhooks: Family::new_with_constructor(|| Histogram::new(WEBHOOKS)),
            rejections: Family::default(),
            requests: Family::default(),
            open: Family::default(),
            names: parking_lot::Mutex::default(),
        }
    }

    /// Shows them at `/metrics`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_admission_step_admission_duration_seconds",
            "How long each pass of admission took",
            self.steps.clone(),
        );
        registry.register(
            "apiserver_admission_controller_admission_duration_seconds",
            "How long each plugin took",
            self.controllers.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "How long each webhook took",
            self.webhooks.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_request",
            "Calls of webhooks, by what became of them",
            self.requests.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_rejection_count",
            "Writes that webhooks refused, or that were refused because they failed",
            self.rejections.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_fail_open_count",
            "Calls of webhooks that failed and were passed over",
            self.open.clone(),
        );
    }

    /// Counts one pass.
    pub(crate) fn step(&self, step: Step, verb: Verb, took: Duration, rejected: bool) {
        let operation = OPERATIONS[operation(verb)];
        let labels = StepLabels { r#type: step.name(), operation, rejected: told(rejected) };
        self.steps.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts one plugin of the chain, by its place there.
    fn controller(&self, index: usize, step: Step, verb: Verb, took: Duration) {
        let Some(plugin) = self.passed.get(index) else { return };
        let histogram = plugin.took[operation(verb)][step as usize].get_or_init(|| {
            let step = self.labels(step, verb, false);
            self.controllers.get_or_create_owned(&NamedLabels { name: plugin.name.to_owned(), step })
        });
        histogram.observe(took.as_secs_f64());
    }

    /// What [`Chain::admit`] and [`Chain::validate`] are to tell.
    pub(crate) fn plugins(&self, step: Step, verb: Verb) -> impl FnMut(usize, &'static str, bool) {
        let mut since = Instant::now();
        move |index, name, rejected| {
            let now = Instant::now();
            let took = now.duration_since(since);
            since = now;
            match rejected {
                true => self.refused(name, step, verb, took),
                false => self.controller(index, step, verb, took),
            }
        }
    }

    /// Counts a plugin that refused something.
    fn refused(&self, name: &str, step: Step, verb: Verb, took: Duration) {
        let labels = NamedLabels { name: name.to_owned(), step: self.labels(step, verb, true) };
        self.controllers.get_or_create(&labels).observe(took.as_secs_f64());
    }

    fn labels(&self, step: Step, verb: Verb, rejected: bool) -> StepLabels {
        StepLabels { r#type: step.name(), operation: OPERATIONS[operation(verb)], rejected: told(rejected) }
    }

    /// A webhook's name, or nothing where too many are known already.
    fn known(&self, name: &str) -> String {
        let mut names = self.names.lock();
        if names.len() < MOST_NAMES && !names.contains(name) {
            names.insert(name.to_owned());
        }
        if names.contains(name) { name.to_owned() } else { String::new() }
    }

    /// Counts the call of a webhook. `fails`: what can't be called stands in the way.
    pub(crate) fn webhook(
        &self,
        (name, fails): (&str, bool),
        (step, verb): (Step, Verb),
        since: Instant,
        answer: Result<&Response, &Failure>,
    ) {
        let name = self.known(name);
        let (error, code, rejected) = match answer {
            Ok(_) => ("no_error", 200, false),
            Err(Failure::Refused(status)) => ("no_error", status.code, true),
            Err(Failure::Calling(_)) => ("calling_webhook_error", 0, fails),
        };
        let code = if code > OTHER_CODE { OTHER_CODE } else { code };
        let named = NamedLabels { name: name.clone(), step: self.labels(step, verb, rejected) };
        self.webhooks.get_or_create(&named).observe(since.elapsed().as_secs_f64());
        self.requests.get_or_create(&RequestLabels { named, code }).inc();
        let operation = OPERATIONS[operation(verb)];
        if rejected {
            let labels = RejectionLabels {
                name,
                r#type: step.name(),
                operation,
                error_type: error,
                rejection_code: code,
            };
            self.rejections.get_or_create(&labels).inc();
        } else if answer.is_err() {
            self.open.get_or_create(&OpenLabels { name, r#type: step.name() }).inc();
        }
    }
}
