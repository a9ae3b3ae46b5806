//! A definition made ready to run: names are numbers, expressions are compiled, durations are read.

use freehold_machinery::status::FieldError;
use freehold_machinery_cel::Program;
use freehold_workflow_api::depends::Depends;
use freehold_workflow_api::{DagSpec, Retry, Task, TaskKind, TriggerRule, duration, validate};
use std::collections::HashMap;
use std::sync::Arc;

/// How long a Pod may be unable to start, in tenths of a second.
const START_TIMEOUT: u32 = 3000;

/// A definition that is ready to run.
#[derive(Debug)]
pub struct Plan {
    spec: DagSpec,
    tasks: Vec<PlanTask>,
    by_name: HashMap<String, u32>,
    /// How many tasks there are that are no finally tasks.
    main: u32,
    pub(crate) timeout: Option<u32>,
}

/// A task that is ready to run.
#[derive(Debug)]
pub struct PlanTask {
    /// As it was defined.
    pub task: Task,
    /// What it does.
    pub kind: TaskKind,
    /// The tasks that it comes after.
    pub before: Vec<u32>,
    /// The tasks that come after it.
    pub after: Vec<u32>,
    pub(crate) rule: Rule,
    pub(crate) when: Option<Arc<Program>>,
    pub(crate) items: Option<Arc<Program>>,
    pub(crate) retry: Retry,
    pub(crate) retry_when: Option<Arc<Program>>,
    /// In tenths of a second, as all times here.
    pub(crate) timeout: Option<u32>,
    pub(crate) start_timeout: u32,
    pub(crate) waits_for_start: bool,
}

/// What has to hold of the tasks before.
#[derive(Debug)]
pub(crate) enum Rule {
    Trigger(TriggerRule),
    Depends(Depends),
}

/// A lock that a task or run needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockNeed {
    /// Its name in the namespace.
    pub name: String,
    /// How many slots it has.
    pub limit: u32,
    /// How many are taken.
    pub weight: u32,
}

/// The locks that mutexes and semaphores stand for.
pub(crate) fn locks(mutexes: &[String], semaphores: &[freehold_workflow_api::Semaphore]) -> Vec<LockNeed> {
    let mutexes = mutexes.iter().map(|name| LockNeed { name: format!("mutex/{name}"), limit: 1, weight: 1 });
    let pools = semaphores.iter().map(|pool| LockNeed {
        name: format!("semaphore/{}", pool.name),
        limit: pool.limit,
        weight: pool.weight.max(1),
    });
    mutexes.chain(pools).collect()
}

impl Plan {
    /// Compiles a definition without references to shared tasks.
    ///
    /// # Errors
    /// Its static errors.
    pub fn compile(spec: DagSpec) -> Result<Self, Vec<FieldError>> {
        let errors = validate::dag(&spec);
        if !errors.is_empty() {
            return Err(errors);
        }
        let main = u32::try_from(spec.tasks.len()).unwrap_or(u32::MAX);
        let all: Vec<&Task> = spec.tasks.iter().chain(&spec.finally).collect();
        let by_name: HashMap<String, u32> = (0..).zip(&all).map(|(n, task)| (task.name.clone(), n)).collect();
        let mut tasks = Vec::with_capacity(all.len());
        for (n, task) in (0..).zip(&all) {
            let Some(kind) = task.template.kind() else {
                return Err(vec![FieldError::required(
                    format!("spec.tasks[{n}]"),
                    "shared tasks are not in place",
                )]);
            };
            tasks.push(PlanTask::of(task, kind, &spec, if n < main { &by_name } else { &NO_NAMES }));
        }
        for n in 0..main {
            for before in tasks[n as usize].before.clone() {
                tasks[before as usize].after.push(n);
            }
        }
        let timeout = tenths(&spec.timeout);
        Ok(Self { spec, tasks, by_name, main, timeout })
    }

    /// Returns the definition that the plan was made from.
    pub fn spec(&self) -> &DagSpec {
        &self.spec
    }

    /// All tasks, finally tasks at the end.
    pub fn tasks(&self) -> &[PlanTask] {
        &self.tasks
    }

    /// A task by its number.
    pub fn task(&self, n: u32) -> &PlanTask {
        &self.tasks[n as usize]
    }

    /// The number of a task by its name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Whether a task comes after all others.
    pub fn is_finally(&self, n: u32) -> bool {
        n >= self.main
    }

    /// How many tasks there are that are no finally tasks.
    pub(crate) fn main(&self) -> u32 {
        self.main
    }

    /// The locks that a run holds from its start to its end.
    pub fn locks(&self) -> Vec<LockNeed> {
        locks(&self.spec.mutexes, &self.spec.semaphores)
    }
}

/// Finally tasks have no order among each other and the others.
static NO_NAMES: std::sync::LazyLock<HashMap<String, u32>> = std::sync::LazyLock::new(HashMap::new);

/// A duration in tenths of a second, rounded up.
pub(crate) fn tenths(text: &str) -> Option<u32> {
    let millis = duration::parse(text)?.as_millis();
    u32::try_from(millis.div_ceil(100)).ok()
}

fn program(text: &str) -> Option<Arc<Program>> {
    // Validation compiled it.
    if text.is_empty() { None } else { Program::compile(text).ok() }
}

impl PlanTask {
    fn of(task: &Task, kind: TaskKind, spec: &DagSpec, names: &HashMap<String, u32>) -> Self {
        let depends = if task.depends.is_empty() { None } else { Depends::parse(&task.depends).ok() };
        let named = task.run_after.iter().map(String::as_str);
        let named = named.chain(depends.iter().flat_map(Depends::tasks));
        let referred = validate::dependencies(task);
        let mut before: Vec<u32> = named
            .chain(referred.iter().map(String::as_str))
            .filter_map(|name| names.get(name).copied())
            .collect();
        before.sort_unstable();
        before.dedup();
        let retry = task.template.retry.clone().or_else(|| spec.retry.clone()).unwrap_or_default();
        let items = task.for_each.as_ref().map(|for_each| for_each.expression.as_str()).unwrap_or_default();
        Self {
            kind,
            before,
            after: Vec::new(),
            rule: depends.map_or(Rule::Trigger(task.trigger), Rule::Depends),
            when: program(&task.when),
            items: program(items),
            retry_when: program(&retry.when),
            retry,
            timeout: tenths(&task.template.timeout),
            start_timeout: tenths(&task.template.start_timeout).unwrap_or(START_TIMEOUT),
            waits_for_start: !task.template.start_timeout.is_empty(),
            task: task.clone(),
        }
    }

    /// Returns the name of the task.
    pub fn name(&self) -> &str {
        &self.task.name
    }

    /// The locks that it holds while it is under way.
    pub fn locks(&self) -> Vec<LockNeed> {
        locks(&self.task.mutexes, &self.task.semaphores)
    }

    pub(crate) fn has_locks(&self) -> bool {
        !self.task.mutexes.is_empty() || !self.task.semaphores.is_empty()
    }
}
