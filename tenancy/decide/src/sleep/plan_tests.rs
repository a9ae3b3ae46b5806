//! Plans are carried out against objects in memory, and interrupted at each write.

use super::super::record::{Chunk, pack};
use super::super::rules::{builtin_rules, scalable_rule};
use super::*;
use crate::sleep::Selection;
use freehold_machinery::meta;
use freehold_machinery_patch as patch;
use freehold_tenancy_api::supervisor::{ScalableKind, WorkloadMatch};

/// Objects by type and name, with a revision for all, and the records.
#[derive(Clone, Default)]
struct World {
    objects: BTreeMap<(String, String), Value>,
    chunks: Vec<Chunk>,
    revision: u64,
    /// Writes until the process ends.
    writes_left: Option<usize>,
}

struct Killed;

fn rules() -> Vec<Rule> {
    let rollouts = ScalableKind { group: "argoproj.io".into(), resource: "rollouts".into() };
    let mut rules = builtin_rules();
    rules.push(scalable_rule(&rollouts, "v1alpha1", "Rollout", ".spec.replicas"));
    rules
}

fn settings() -> Settings {
    Settings {
        selection: Selection::default(),
        scalable: vec![ScalableKind { group: "argoproj.io".into(), resource: "rollouts".into() }],
        delete_load_balancers: true,
        hold_argo_cd: true,
    }
}

impl World {
    fn new(objects: &[(&str, Value)]) -> Self {
        let mut world = Self::default();
        for (resource, object) in objects {
            world.put(resource, object.clone());
        }
        world
    }

    fn put(&mut self, resource: &str, mut object: Value) {
        self.revision += 1;
        meta::set(&mut object, "resourceVersion", self.revision.to_string());
        let uid = format!("uid-{}", meta::name(&object));
        meta::set(&mut object, "uid", uid);
        if object["metadata"]["annotations"] == json!({}) {
            meta::remove(&mut object, "annotations");
        }
        self.objects.insert((resource.to_owned(), meta::name(&object).to_owned()), object);
    }

    fn write(&mut self) -> Result<(), Killed> {
        match &mut self.writes_left {
            Some(0) => Err(Killed),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn observe<'a>(&self, rules: &'a [Rule]) -> Vec<(&'a Rule, Observed)> {
        let pairs = self.objects.iter().flat_map(|((resource, _), object)| {
            rules.iter().filter(move |rule| rule.resource == *resource).map(move |rule| (rule, object))
        });
        pairs.filter_map(|(rule, object)| Some((rule, rule.observe(object)?))).collect()
    }

    fn record(&self) -> Vec<Original> {
        self.chunks.iter().flat_map(|chunk| chunk.entries.clone()).collect()
    }

    /// Takes the steps of one plan; whether there were any.
    fn run(&mut self, asleep: bool) -> Result<bool, Killed> {
        let rules = rules();
        let objects = self.observe(&rules);
        let record = self.record();
        let plan = if asleep { sleep(&objects, &record, &settings()) } else { wake(&objects, &record) };
        if plan.is_empty() {
            return Ok(false);
        }
        if let Some(wanted) = &plan.record {
            for write in pack(&self.chunks, wanted) {
                self.write()?;
                self.revision += 1;
                self.chunks.retain(|chunk| chunk.name != write.name);
                let (resource_version, entries) = (self.revision.to_string(), write.entries);
                self.chunks.push(Chunk { name: write.name, resource_version, entries });
            }
        }
        for step in plan.steps.into_iter().flatten() {
            self.write()?;
            self.take(step);
        }
        if plan.finish {
            while !self.chunks.is_empty() {
                self.write()?;
                self.chunks.remove(0);
            }
        }
        Ok(true)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Patch { object, operations } => {
                let id = (object.resource.clone(), object.name);
                let current = &self.objects[&id];
                assert_eq!(
                    operations[0]["value"], current["metadata"]["resourceVersion"],
                    "a plan is of now"
                );
                let patched = patch::json(current, &operations).unwrap();
                self.put(&object.resource, patched);
            }
            Step::Delete { object, .. } => {
                self.objects.remove(&(object.resource, object.name));
            }
            Step::Create { object, body } => {
                self.put(&object.resource, body);
            }
        }
    }

    /// Runs until nothing is left to do.
    fn settle(&mut self, asleep: bool) -> Result<(), Killed> {
        while self.run(asleep)? {}
        Ok(())
    }

    /// Objects without what each write changes.
    fn content(&self) -> Vec<Value> {
        let strip = |object: &Value| {
            let mut object = object.clone();
            meta::remove(&mut object, "resourceVersion");
            object
        };
        self.objects.values().map(strip).collect()
    }
}

fn object(name: &str, rest: Value) -> Value {
    patch::merge(&json!({"metadata": {"name": name, "namespace": "a"}}), &rest)
}

fn workloads() -> World {
    World::new(&[
        ("deployments", object("web", json!({"spec": {"replicas": 3}}))),
        ("deployments", object("idle", json!({"spec": {"replicas": 0}}))),
        (
            "statefulsets",
            object("db", json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 2}})),
        ),
        ("replicasets", object("bare", json!({"spec": {"replicas": 1}}))),
        (
            "replicasets",
            object(
                "owned",
                json!({"metadata": {"ownerReferences": [{"controller": true}]}, "spec": {"replicas": 3}}),
            ),
        ),
        ("daemonsets", object("agent", json!({"spec": {"template": {"spec": {}}}}))),
        (
            "daemonsets",
            object("gpu", json!({"spec": {"template": {"spec": {"nodeSelector": {"gpu": "yes"}}}}})),
        ),
        ("cronjobs", object("report", json!({"spec": {"suspend": false}}))),
        ("cronjobs", object("never", json!({"spec": {"suspend": true}}))),
        ("horizontalpodautoscalers", object("web", json!({"spec": {"minReplicas": 1}}))),
        ("scaledobjects", object("queue", json!({"spec": {}}))),
        ("rollouts", object("canary", json!({"spec": {"replicas": 5}}))),
        ("services", object("public", json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}))),
        ("services", object("inner", json!({"spec": {"type": "ClusterIP"}}))),
        (
            "applications",
            object(
                "app",
                json!({"metadata": {"namespace": "argocd"}, "spec": {"destination": {"namespace": "a", "name": "in-cluster"}}}),
            ),
        ),
    ])
}

#[test]
fn a_namespace_sleeps_and_wakes_exactly() {
    let mut world = workloads();
    let before = world.content();
    world.settle(true).ok();
    let state = |world: &World, resource: &str, name: &str, path: &str| {
        world.objects[&(resource.to_owned(), name.to_owned())].pointer(path).cloned()
    };
    assert_eq!(state(&world, "deployments", "web", "/spec/replicas"), Some(json!(0)));
    assert_eq!(state(&world, "rollouts", "canary", "/spec/replicas"), Some(json!(0)));
    assert_eq!(state(&world, "cronjobs", "report", "/spec/suspend"), Some(json!(true)));
    assert_eq!(state(&world, "replicasets", "owned", "/spec/replicas"), Some(json!(3)));
    let selector = "/spec/template/spec/nodeSelector/tenancy.freehold.dev~1asleep";
    assert_eq!(state(&world, "daemonsets", "gpu", selector), Some(json!("true")));
    let skip = "/metadata/annotations/argocd.argoproj.io~1skip-reconcile";
    assert_eq!(state(&world, "applications", "app", skip), Some(json!("true")));
    assert!(!world.objects.contains_key(&("services".to_owned(), "public".to_owned())));
    world.settle(false).ok();
    assert_eq!(world.content(), before);
    assert!(world.chunks.is_empty());
}

/// Interrupts sleeping and waking after each possible number of writes, in each order, and looks at what comes of it.
#[test]
fn an_end_between_any_two_writes_loses_nothing() {
    let before = workloads().content();
    let mut points = 0;
    let pairs = (0..16)
        .flat_map(|first| (0..16).flat_map(move |second| [(first, second, true), (first, second, false)]));
    for (first, second, asleep) in pairs {
        let mut world = workloads();
        world.writes_left = Some(first);
        points += usize::from(world.settle(true).is_err());
        // The process comes back, with the same wish or with the other one, and ends again.
        world.writes_left = Some(second);
        points += usize::from(world.settle(asleep).is_err());
        world.writes_left = None;
        world.settle(false).ok();
        assert_eq!(world.content(), before, "after {first} and {second} writes");
        assert!(world.chunks.is_empty());
    }
    assert!(points > 500, "{points} interruptions");
}

#[test]
fn a_lost_record_is_made_up_for_by_the_objects_themselves() {
    let mut world = workloads();
    let mut before = world.content();
    before.retain(|object| object["spec"]["type"] != "LoadBalancer");
    world.settle(true).ok();
    world.chunks.clear();
    world.settle(false).ok();
    assert_eq!(world.content(), before);
}

#[test]
fn changes_by_others_during_sleep_outlast_it() {
    let mut world = workloads();
    world.settle(true).ok();
    let change = |world: &mut World, resource: &str, name: &str, change: Value| {
        let object = world.objects[&(resource.to_owned(), name.to_owned())].clone();
        world.put(resource, patch::merge(&object, &change));
    };
    // Scaled up during sleep: it sleeps again, and wakes with the new number.
    change(&mut world, "deployments", "web", json!({"spec": {"replicas": 7}}));
    change(
        &mut world,
        "daemonsets",
        "gpu",
        json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}),
    );
    world.put("deployments", object("late", json!({"spec": {"replicas": 4}})));
    world.settle(true).ok();
    let replicas = |world: &World, name: &str| {
        world.objects[&("deployments".to_owned(), name.to_owned())]["spec"]["replicas"].clone()
    };
    assert_eq!((replicas(&world, "web"), replicas(&world, "late")), (json!(0), json!(0)));
    // Scaled up before waking is noticed: waking leaves it alone.
    change(&mut world, "statefulsets", "db", json!({"spec": {"replicas": 9}}));
    world.settle(false).ok();
    assert_eq!((replicas(&world, "web"), replicas(&world, "late")), (json!(7), json!(4)));
    assert_eq!(world.objects[&("statefulsets".to_owned(), "db".to_owned())]["spec"]["replicas"], 9);
    let gpu = &world.objects[&("daemonsets".to_owned(), "gpu".to_owned())]["spec"]["template"]["spec"];
    assert_eq!(gpu["nodeSelector"], json!({"gpu": "yes", "disk": "ssd"}));
}

#[test]
fn excluded_objects_go_on_running_also_when_excluded_later() {
    let rules = rules();
    let excluded = WorkloadMatch { kind: "Deployment".into(), name: "web".into(), selector: None };
    let some = Settings { selection: Selection::new(&[], &[excluded]).unwrap(), ..Settings::default() };
    let mut world = World::new(&[
        ("deployments", object("web", json!({"spec": {"replicas": 3}}))),
        (
            "deployments",
            object(
                "kept",
                json!({"metadata": {"annotations": {"tenancy.freehold.dev/sleep": "never"}}, "spec": {"replicas": 3}}),
            ),
        ),
    ]);
    assert!(sleep(&world.observe(&rules), &[], &some).is_empty());
    world.settle(true).ok();
    let plan = sleep(&world.observe(&rules), &world.record(), &some);
    assert_eq!(plan.steps.len(), 1, "web is woken alone: {plan:?}");
}

#[test]
fn a_record_is_not_deleted_before_objects_that_seem_awake_are_read_again() {
    let rules = rules();
    let world = World::new(&[("deployments", object("web", json!({"spec": {"replicas": 3}})))]);
    let entry = |name: &str| Original {
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        name: name.into(),
        state: "3".into(),
        ..Original::default()
    };
    let plan = wake(&world.observe(&rules), &[entry("web"), entry("gone")]);
    assert!(plan.finish && plan.steps.is_empty());
    assert_eq!(plan.verify, [entry("web"), entry("gone")]);
}
