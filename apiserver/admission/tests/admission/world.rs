//! A world to admit into, and writes to it.

use freehold_apiserver_admission::{
    Annotations, Attributes, Chain, Lookup, PLUGINS, Permission, Switches, Verb,
};
use freehold_machinery::{
    PlaneId, ResourceType, Status, User, Value, meta,
    resource::{Conversion, LazySchema, StorageAs},
};
use serde_json::{Value::Null, json};
use std::sync::Arc;

/// Objects, each with group and resource, and permissions as `verb resource/subresource name`.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) objects: Vec<(&'static str, &'static str, Arc<Value>)>,
    pub(crate) permissions: Vec<&'static str>,
}

impl World {
    pub(crate) fn new(objects: Vec<(&'static str, &'static str, Value)>) -> Self {
        let objects =
            objects.into_iter().map(|(group, resource, object)| (group, resource, Arc::new(object)));
        Self { objects: objects.collect(), permissions: Vec::new() }
    }
}

impl Lookup for World {
    fn get(
        &self,
        plane: &PlaneId,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        self.list(plane, group, resource, namespace).into_iter().find(|object| meta::name(object) == name)
    }

    fn list(&self, _: &PlaneId, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let wanted = |(g, r, o): &&(&str, &str, Arc<Value>)| {
            *g == group && *r == resource && meta::namespace(o) == namespace
        };
        self.objects.iter().filter(wanted).map(|(_, _, object)| object.clone()).collect()
    }

    fn allows(&self, _: &PlaneId, _: &User, asked: &Permission<'_>) -> bool {
        let asked = format!("{} {}/{} {}", asked.verb, asked.resource, asked.subresource, asked.name);
        self.permissions.contains(&asked.as_str())
    }

    fn resource_of(&self, _: &PlaneId, _: &str, kind: &str) -> Option<(String, bool)> {
        (kind != "Unknown").then(|| (format!("{}s", kind.to_lowercase()), true))
    }
}

pub(crate) fn ty(group: &str, resource: &str) -> ResourceType {
    ResourceType {
        group: group.into(),
        version: "v1".into(),
        kind: String::new(),
        list_kind: String::new(),
        plural: resource.into(),
        singular: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
        subresources: Vec::new(),
        storage: StorageAs {
            group: group.into(),
            resource: resource.into(),
            api_version: "v1".into(),
            conversion: Conversion::None,
        },
        schema: LazySchema::ready(None),
        stored_schema: None,
        columns: Vec::new(),
        selectable_fields: Vec::new(),
        generation: false,
        custom: false,
        deprecation: None,
        terminating: false,
        contexts: Vec::new(),
        since: 0,
        openapi: Default::default(),
        hash: String::new(),
    }
}

/// One write, run through the whole chain.
pub(crate) struct Write<'a> {
    pub(crate) verb: Verb,
    pub(crate) target: &'a str,
    pub(crate) object: Value,
    pub(crate) old: Value,
    /// The name of who writes, and their group.
    pub(crate) user: (&'a str, &'a str),
}

impl Write<'_> {
    pub(crate) fn with<T>(&self, object: &mut Value, see: impl FnOnce(&mut Attributes<'_>) -> T) -> T {
        let (group, rest) = self.target.split_once('/').unwrap();
        let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        let cluster =
            ["namespaces", "nodes", "priorityclasses", "certificatesigningrequests"].contains(&resource);
        let user = User { name: self.user.0.into(), groups: vec![self.user.1.into()], ..User::default() };
        let updates = matches!(self.verb, Verb::Update | Verb::Delete);
        let name =
            if updates { meta::name(if self.old.is_null() { &self.object } else { &self.old }) } else { "" };
        let name = name.to_owned();
        see(&mut Attributes {
            plane: &"a".parse().unwrap(),
            user: &user,
            verb: self.verb,
            ty: &ty(group, resource),
            namespace: if cluster { "" } else { "ns" },
            name: &name,
            subresource,
            object: (self.verb != Verb::Delete).then_some(object),
            old: (!self.old.is_null()).then_some(&self.old),
            dry_run: false,
            options: &Null,
            annotations: &Annotations::default(),
        })
    }

    pub(crate) fn run(&self, chain: &Chain, world: &World) -> Result<Value, Status> {
        let mut object = self.object.clone();
        self.with(&mut object, |attributes| {
            chain.admit(attributes, world)?;
            chain.validate(attributes, world)
        })?;
        Ok(object)
    }
}

pub(crate) fn create(target: &str, object: Value) -> Write<'_> {
    Write { verb: Verb::Create, target, object, old: Null, user: ("jane", "people") }
}

pub(crate) fn only(plugin: &str) -> Chain {
    let others = PLUGINS.iter().map(|entry| entry.plugin.name()).filter(|name| *name != plugin);
    Chain::new(&Switches { enable: vec![plugin.into()], disable: others.map(str::to_owned).collect() })
}

pub(crate) fn named(name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["metadata"]["name"] = name.into();
    object
}

pub(crate) fn in_ns(name: &str, rest: Value) -> Value {
    let mut object = named(name, rest);
    object["metadata"]["namespace"] = "ns".into();
    object
}

/// What a write comes to.
pub(crate) type Expected<'a> = Result<Vec<(&'a str, Value)>, &'a str>;

/// Compares outcomes: `Ok` with JSON pointers and what stands there, `Err` with the message.
pub(crate) fn check(chain: &Chain, world: &World, rows: Vec<(Write<'_>, Expected<'_>)>) {
    for (write, expected) in rows {
        let shown = format!("{:?} {} {}", write.verb, write.target, write.object);
        match (write.run(chain, world), expected) {
            (Ok(object), Ok(fields)) => {
                for (pointer, value) in fields {
                    assert_eq!(object.pointer(pointer).unwrap_or(&Null), &value, "{pointer} of {shown}");
                }
            }
            (Err(status), Err(message)) => assert_eq!(status.message, message, "{shown}"),
            (outcome, expected) => panic!("{shown}: {outcome:?}, not {expected:?}"),
        }
    }
}

pub(crate) fn pod(containers: Value) -> Value {
    in_ns("p", json!({"spec": {"containers": containers}}))
}
