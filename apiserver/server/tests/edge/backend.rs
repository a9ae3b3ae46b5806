//! A backend over a map: enough to see what the edge makes of requests and outcomes.

use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_audit::{Standing, Subject};
use freehold_apiserver_authn::{
    Authenticator, BoundKind, KeySet, Peer, Request, ServiceAccountLookup, TokenIssuer,
};
use freehold_apiserver_authz::{Attributes, Decision, Policy, RuleCache, bootstrap_objects};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_planes::{DedicatedTarget, OrganizationScope, Resolved, Target, context::Context};
use freehold_apiserver_registry::{
    Body, DeleteOptions, EventKind, List, ListOptions, Object, Operation, Patch, WatchEvent, WatchOptions,
    WriteOptions, Written,
};
use freehold_apiserver_server::{
    AccessBackend, Aggregated, AggregationBackend, ArchiveStream, AuditBackend, AuditPage, AuditStream,
    Footing, InUse, Kubelet, ObjectBackend, OpenIdDocument, Owner, PlaneAction, PlaneBackend, RequestHeaders,
};
use freehold_machinery::{GroupResource, PlaneId, Status, User, Value, meta};
use freehold_pki::PrivateKey;
use futures_util::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use serde_json::json;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};
use tokio::sync::{Notify, broadcast};

type Key = (PlaneId, String, String);

/// Objects by plane, resource and `namespace/name`.
pub(crate) struct Memory {
    objects: Mutex<(u64, BTreeMap<Key, Value>)>,
    events: broadcast::Sender<WatchEvent>,
    policy: Policy,
    authenticator: Authenticator,
    pub(crate) pair: Mutex<Option<DedicatedTarget>>,
    /// What the last write was asked with.
    pub(crate) last: Mutex<Option<(WriteOptions, Vec<String>)>>,
    pub(crate) deleted_with: Mutex<Option<DeleteOptions>>,
    /// A get of `slow` begins, and waits for `go`.
    pub(crate) slow: AtomicUsize,
    pub(crate) go: Notify,
    pub(crate) healthy: AtomicBool,
    pub(crate) watches: Arc<()>,
}

struct NoAccounts;

impl ServiceAccountLookup for NoAccounts {
    fn service_account(&self, _: &PlaneId, _: &str, _: &str) -> Option<String> {
        None
    }

    fn object_uid(&self, _: &PlaneId, _: BoundKind, _: &str, _: &str) -> Option<String> {
        None
    }
}

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        let mut objects = bootstrap_objects();
        let rule = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": ["*"], "resources": resources, "verbs": verbs});
        objects.push(json!({"kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [
            rule(&["configmaps"], &["get", "list", "watch"]),
            rule(&["users"], &["impersonate"]),
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]}));
        objects.push(json!({"kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
            "roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": [{"kind": "User", "name": "jane"}]}));
        let policy = Policy::compile(&RuleCache::default(), &objects);
        let key = PrivateKey::generate().unwrap();
        let keys = KeySet::from_pem(key.pem(), &[]).unwrap();
        Arc::new(Self {
            objects: Mutex::default(),
            events: broadcast::channel(1024).0,
            policy,
            authenticator: Authenticator::new(Arc::new(TokenIssuer::new("https://test", &[], keys))),
            pair: Mutex::default(),
            last: Mutex::default(),
            deleted_with: Mutex::default(),
            slow: AtomicUsize::new(0),
            go: Notify::new(),
            healthy: AtomicBool::new(true),
            watches: Arc::new(()),
        })
    }

    fn key(target: &Target, op: &Operation, name: &str) -> Key {
        let plane = match target {
            Target::Local(plane) => plane.clone(),
            _ => PlaneId::core(),
        };
        (plane, op.ty.plural.clone(), format!("{}/{name}", op.namespace.as_deref().unwrap_or("")))
    }

    fn put(&self, key: Key, op: &Operation, mut value: Value) -> Object {
        let mut objects = self.objects.lock().unwrap();
        objects.0 += 1;
        value["kind"] = op.ty.kind.clone().into();
        value["apiVersion"] = op.ty.api_version().into();
        meta::set(&mut value, "resourceVersion", objects.0.to_string());
        if let Some(namespace) = &op.namespace {
            meta::set(&mut value, "namespace", namespace.clone());
        }
        objects.1.insert(key, value.clone());
        Object::Value(Arc::new(value))
    }

    fn found(&self, target: &Target, op: &Operation) -> Result<Value, Status> {
        let name = op.name.as_deref().unwrap_or_default();
        let found = self.objects.lock().unwrap().1.get(&Self::key(target, op, name)).cloned();
        found.ok_or_else(|| Status::not_found(&op.ty.group_resource(), name))
    }

    /// Sends an event to all watches.
    pub(crate) fn send(&self, event: WatchEvent) {
        let _ = self.events.send(event);
    }
}

fn written(object: Object, created: bool) -> Result<Written, Status> {
    Ok(Written { object, created, pending: false, warnings: vec!["be \"careful\"".to_owned()] })
}

#[async_trait]
impl ObjectBackend for Memory {
    async fn get(&self, target: &Target, op: Operation, _: &str) -> Result<Object, Status> {
        match op.name.as_deref() {
            Some("panic") => panic!("asked to"),
            Some("slow") => {
                self.slow.fetch_add(1, SeqCst);
                self.go.notified().await;
            }
            _ => {}
        }
        Ok(Object::Value(Arc::new(self.found(target, &op)?)))
    }

    async fn list(&self, target: &Target, op: Operation, options: ListOptions) -> Result<List, Status> {
        let prefix = op.namespace.as_ref().map_or(String::new(), |n| format!("{n}/"));
        let (plane, resource, _) = Self::key(target, &op, "");
        let objects = self.objects.lock().unwrap();
        let mine =
            objects.1.iter().filter(|(k, _)| k.0 == plane && k.1 == resource && k.2.starts_with(&prefix));
        let all: Vec<Object> = mine.map(|(_, v)| Object::Value(Arc::new(v.clone()))).collect();
        let take = if options.limit == 0 { all.len() } else { options.limit.min(all.len()) };
        let left = (all.len() - take) as u64;
        Ok(List {
            items: all.into_iter().take(take).collect(),
            revision: objects.0,
            continue_token: if left > 0 { "more\"".to_owned() } else { String::new() },
            remaining: (left > 0).then_some(left),
        })
    }

    async fn create(
        &self,
        target: &Target,
        op: Operation,
        body: Body,
        options: WriteOptions,
    ) -> Result<Written, Status> {
        let name = meta::name(&body.value).to_owned();
        let key = Self::key(target, &op, &name);
        if self.objects.lock().unwrap().1.contains_key(&key) {
            return Err(Status::already_exists(&op.ty.group_resource(), &name));
        }
        *self.last.lock().unwrap() = Some((options, body.duplicates));
        let object = self.put(key, &op, body.value);
        self.send(WatchEvent::of(EventKind::Added, object.clone()));
        written(object, true)
    }

    async fn update(
        &self,
        target: &Target,
        op: Operation,
        body: Body,
        options: WriteOptions,
    ) -> Result<Written, Status> {
        self.found(target, &op)?;
        *self.last.lock().unwrap() = Some((options, body.duplicates));
        let object = self.put(Self::key(target, &op, op.name.as_deref().unwrap()), &op, body.value);
        self.send(WatchEvent::of(EventKind::Modified, object.clone()));
        written(object, false)
    }

    async fn patch(
        &self,
        target: &Target,
        op: Operation,
        patch: Patch,
        options: WriteOptions,
    ) -> Result<Written, Status> {
        *self.last.lock().unwrap() = Some((options, Vec::new()));
        let (kind, value) = match patch {
            Patch::Json(body) => ("json", body.value),
            Patch::Merge(body) => ("merge", body.value),
            Patch::Strategic(body) => ("strategic", body.value),
            Patch::Apply(body) => ("apply", body.value),
        };
        let name = op.name.clone().unwrap();
        let object = json!({"metadata": {"name": name}, "data": {"patch": kind, "body": value.to_string()}});
        written(self.put(Self::key(target, &op, &name), &op, object), false)
    }

    async fn delete(
        &self,
        target: &Target,
        op: Operation,
        options: DeleteOptions,
    ) -> Result<Written, Status> {
        let old = self.found(target, &op)?;
        self.objects.lock().unwrap().1.remove(&Self::key(target, &op, op.name.as_deref().unwrap()));
        *self.deleted_with.lock().unwrap() = Some(options);
        self.send(WatchEvent::of(EventKind::Deleted, Object::Value(Arc::new(old))));
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        written(Object::Value(Arc::new(status)), false)
    }

    async fn delete_collection(
        &self,
        target: &Target,
        op: Operation,
        list: ListOptions,
        _: DeleteOptions,
    ) -> Result<List, Status> {
        self.list(target, op, list).await
    }

    async fn watch(
        &self,
        target: &Target,
        op: Operation,
        options: WatchOptions,
    ) -> Result<BoxStream<'static, WatchEvent>, Status> {
        if options.list.resource_version == "1" {
            return Err(Status::expired("too old resource version: 1 (5)"));
        }
        let alive = self.watches.clone();
        let receiver = self.events.subscribe();
        let first = self.list(target, op, ListOptions::default()).await?;
        let first = stream::iter(first.items).map(|object| WatchEvent::of(EventKind::Added, object));
        let live = stream::unfold((receiver, alive), |(mut receiver, alive)| async {
            Some((receiver.recv().await.ok()?, (receiver, alive)))
        });
        Ok(first.chain(live).boxed())
    }

    async fn admit_review(
        &self,
        target: &Target,
        op: &Operation,
        review: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>, Status> {
        let _ = (target, op, review, options);
        Ok(Vec::new())
    }

    async fn admit_connect(
        &self,
        target: &Target,
        op: Operation,
        options: Value,
    ) -> Result<Vec<String>, Status> {
        let _ = (target, op, options);
        Err(Status::no_such_resource())
    }

    fn count(&self, target: &Target, group: &str, resource: &str, namespace: Option<&str>) -> usize {
        let _ = (target, group, resource, namespace);
        0
    }

    fn size(&self, target: &Target, (group, resource): (&str, &str), at: (Option<&str>, &str)) -> usize {
        let _ = (target, group, resource, at);
        0
    }
}

#[async_trait]
impl AccessBackend for Memory {
    async fn home(
        &self,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<Context>, Status> {
        let _ = (peer, headers);
        Ok(None)
    }

    async fn authenticate(
        &self,
        plane: &PlaneId,
        _: Option<&Target>,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<User>, Status> {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        self.authenticator.authenticate(&Request { plane, peer, headers, now }, &NoAccounts)
    }

    fn allows_anonymous(&self, path: &str) -> bool {
        let _ = path;
        true
    }

    async fn review_token(&self, _: &Target, spec: &Value) -> Result<Value, Status> {
        Ok(
            json!({"user": {}, "error": format!("unknown token of {} bytes", spec["token"].as_str().unwrap().len())}),
        )
    }

    async fn authorize(&self, _: &Target, attributes: &Attributes<'_>) -> Result<Decision, Status> {
        Ok(self.policy.authorize(attributes))
    }

    async fn authorize_request(
        &self,
        target: &Target,
        attributes: &Attributes<'_>,
    ) -> Result<Decision, Status> {
        self.authorize(target, attributes).await
    }

    async fn admit(&self, target: &Target, user: &User) -> Result<(), Status> {
        let _ = (target, user);
        Ok(())
    }

    async fn explain(&self, target: &Target, attributes: &Attributes<'_>) -> Result<String, Status> {
        Ok(self.authorize(target, attributes).await?.reason)
    }

    fn asks_others(&self) -> bool {
        false
    }

    async fn told_of(
        &self,
        target: &Target,
        attributes: &Attributes<'_>,
        user: Arc<User>,
    ) -> Result<Arc<User>, Status> {
        let _ = (target, attributes);
        Ok(user)
    }

    fn revoked(
        &self,
        target: &Target,
        user: &Arc<User>,
        attributes: &Attributes<'_>,
    ) -> BoxFuture<'static, ()> {
        let _ = (target, user, attributes);
        Box::pin(std::future::pending())
    }

    async fn rules_for(&self, _: &Target, user: &User, namespace: &str) -> Result<Value, Status> {
        Ok(json!({"incomplete": false, "resourceRules": self.policy.rules_for(user, namespace).0.len()}))
    }

    async fn openid(&self, _: &Target, document: OpenIdDocument) -> Result<Value, Status> {
        Ok(json!({"document": format!("{document:?}")}))
    }
}

#[async_trait]
impl PlaneBackend for Memory {
    async fn resolve(&self, context: &Context) -> Result<Resolved, Status> {
        let plane = |name: &str| name.parse::<PlaneId>().map_err(Status::internal);
        let target = match context {
            Context::Platform => Target::Local(PlaneId::core()),
            Context::Organization(name) => Target::Organization(OrganizationScope {
                name: name.as_str().into(),
                namespace: "o".into(),
                exists: true,
            }),
            Context::Project(name) if name == "pair" => {
                let pair = self.pair.lock().unwrap().clone();
                Target::Dedicated(pair.ok_or_else(|| Status::unavailable("not ready").retry_after(1))?)
            }
            Context::Project(name) if name == "gone" => {
                return Err(Status::not_found(
                    &GroupResource::new("resourcemanager.freehold.dev", "projects"),
                    name,
                ));
            }
            Context::Project(name) => Target::Local(plane(name)?),
            Context::User(name) => Target::User(name.clone()),
            Context::Plane(id) => Target::Local(id.clone()),
            Context::AllPlanes => Target::AllPlanes,
            Context::Export { .. } => return Err(Status::no_such_resource()),
        };
        Ok(Resolved { target, seen: 0 })
    }

    async fn types(&self, _: &Target) -> Result<Arc<TypeSet>, Status> {
        Ok(TypeSet::builtin())
    }

    fn withheld(&self, _: &Target, _: &GroupResource, _: &str) -> Option<Status> {
        None
    }

    async fn delete_plane(&self, plane: &PlaneId) -> Result<Value, Status> {
        Ok(json!({"kind": "Status", "status": "Success", "details": {"name": plane.as_str()}}))
    }

    async fn encryption(&self, rotate: bool) -> Result<Value, Status> {
        let _ = rotate;
        Err(Status::no_such_resource())
    }

    async fn backup(&self) -> Result<BoxStream<'static, Result<Bytes, Status>>, Status> {
        let pieces = [Ok(Bytes::from_static(b"half of ")), Err(Status::internal("the store is gone"))];
        Ok(stream::iter(pieces).boxed())
    }

    async fn act_on_plane(&self, plane: &PlaneId, action: PlaneAction) -> Result<Value, Status> {
        Ok(json!({"plane": plane.as_str(), "action": format!("{action:?}")}))
    }

    async fn pair(&self, plane: &PlaneId) -> Result<DedicatedTarget, Status> {
        Err(Status::not_found(&GroupResource::new("", "planes"), plane.as_str()))
    }

    async fn awake(
        &self,
        pair: &DedicatedTarget,
        attributes: &Attributes<'_>,
    ) -> Result<(DedicatedTarget, Option<InUse>), Status> {
        let _ = attributes;
        Ok((pair.clone(), None))
    }

    async fn export(&self, _: &Target) -> Result<ArchiveStream, Status> {
        Ok(stream::iter([Ok("one ".into()), Ok("two".into())]).boxed())
    }

    async fn import(&self, _: &Target, archive: &mut ArchiveStream) -> Result<Value, Status> {
        let pieces: Vec<_> = archive.collect().await;
        let bytes: usize = pieces.into_iter().map(|piece| piece.map_or(0, |piece| piece.len())).sum();
        Ok(json!({"bytes": bytes}))
    }

    async fn footing(&self, target: &Target) -> Result<Option<Footing>, Status> {
        let _ = target;
        Ok(None)
    }

    async fn holdings(&self, plane: &PlaneId) -> Result<Vec<(&'static str, i64, Option<i64>)>, Status> {
        let _ = plane;
        Ok(Vec::new())
    }

    fn objects(&self) -> Vec<(String, String, u64)> {
        Vec::new()
    }

    fn project_of(&self, plane: &PlaneId) -> Option<Arc<str>> {
        let _ = plane;
        None
    }

    async fn ready(&self) -> Vec<(&'static str, Result<(), String>)> {
        let healthy = self.healthy.load(SeqCst);
        vec![("store", if healthy { Ok(()) } else { Err("secret reason".to_owned()) })]
    }

    fn kubelet(&self, target: &Target, address: SocketAddr) -> Result<Kubelet, Status> {
        let _ = (target, address);
        Err(Status::unavailable("this server reaches no nodes"))
    }
}

#[async_trait]
impl AggregationBackend for Memory {
    async fn aggregated(
        &self,
        target: &Target,
        group: &str,
        version: &str,
    ) -> Result<Option<Aggregated>, Status> {
        let _ = (target, group, version);
        Ok(None)
    }

    async fn aggregated_across(
        &self,
        target: &Target,
        group: &str,
        version: &str,
    ) -> Result<Vec<Arc<Aggregated>>, Status> {
        let _ = (target, group, version);
        Ok(Vec::new())
    }

    fn aggregated_changes(&self, target: &Target) -> BoxStream<'static, ()> {
        let _ = target;
        stream::pending().boxed()
    }

    async fn aggregated_openapi(&self, target: &Target) -> Vec<Bytes> {
        let _ = target;
        Vec::new()
    }
}

#[async_trait]
impl AuditBackend for Memory {
    fn owner(&self, target: &Target, about: &Subject<'_>) -> Owner {
        let _ = (target, about);
        Owner::default()
    }

    fn owner_of(&self, target: &Target, about: &Subject<'_>, object: &Value) -> Option<Arc<str>> {
        let _ = (target, about, object);
        None
    }

    async fn standing(
        &self,
        organization: &str,
        target: &Target,
        user: Option<&User>,
    ) -> Option<(Arc<str>, Standing)> {
        let _ = (organization, target, user);
        None
    }

    async fn audit_page(&self, target: &Target, from: &str, since: i64) -> Result<AuditPage, Status> {
        let _ = (target, from, since);
        Err(Status::no_such_resource())
    }

    async fn audit_watch(&self, target: &Target, after: u64) -> Result<AuditStream, Status> {
        let _ = (target, after);
        Err(Status::no_such_resource())
    }
}
