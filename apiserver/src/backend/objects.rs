//! Objects: reads, writes, watches, and what admission says of what is not stored.

use super::read_only;
use crate::local::LocalBackend;
use crate::organization;
use crate::{people, provider, visible};
use async_trait::async_trait;
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::{
    Body, DeleteOptions, List, ListOptions, Object, Operation, Patch, WatchEvent, WatchOptions, WriteOptions,
    Written,
};
use freehold_apiserver_resource_metrics as resource_metrics;
use freehold_apiserver_server::ObjectBackend;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{Result, Value};
use futures_util::{StreamExt, stream::BoxStream};

#[async_trait]
impl ObjectBackend for LocalBackend {
    async fn get(&self, target: &Target, op: Operation, resource_version: &str) -> Result<Object> {
        let op = self.local(target, op, "get").await?;
        if resource_metrics::is_served(&op.ty) {
            return self.resource_metrics.get(&op).await;
        }
        match target {
            Target::Organization(scope) => organization::check_object(&self.registry, &op, scope).await?,
            Target::User(name) => self.own_view(name).await.check_object(&self.registry, &op).await?,
            _ => {}
        }
        self.registry.get(&op, resource_version).await
    }

    async fn list(&self, target: &Target, op: Operation, mut options: ListOptions) -> Result<List> {
        if resource_metrics::is_served(&op.ty) {
            return self.resource_metrics.list(&self.local(target, op, "list").await?, &options).await;
        }
        if op.narrowed && matches!(target, Target::Local(_)) {
            return visible::list(self, &op, options).await;
        }
        if let Some(across) = self.across(target, &op, "list").await? {
            return self.registry.list_across(&op, &options, &across).await;
        }
        let (op, shown) = self.shown(target, op, "list").await?;
        options.shown = shown;
        self.registry.list(&op, &options).await
    }

    async fn create(
        &self,
        target: &Target,
        op: Operation,
        mut body: Body,
        options: WriteOptions,
    ) -> Result<Written> {
        let op = self.local(target, op, "create").await?;
        self.planes.check_create(&op.plane)?;
        if let Target::Provider(scope) = target {
            provider::check_body(&self.planes, scope, &op, "create", &body.value)?;
        }
        if let Target::Organization(scope) = target {
            organization::check_write(&op, scope, &body.value)?;
        }
        if people::is_key(&op) {
            let token = people::prepare_key(&op, &mut body.value)?;
            return Ok(people::reveal(self.registry.create(&op, &body, &options).await?, token));
        }
        let written = match (op.ty.plural.as_str(), op.subresource.as_deref()) {
            ("serviceaccounts", Some("token")) => self.issue_token(&op, &body, &options).await,
            (_, Some(_)) => self.registry.act(&op, &body, &options).await,
            (_, None) => self.registry.create(&op, &body, &options).await,
        };
        self.registered(&op, written).await
    }

    async fn update(
        &self,
        target: &Target,
        op: Operation,
        body: Body,
        options: WriteOptions,
    ) -> Result<Written> {
        let op = self.local(target, op, "update").await?;
        if let Target::Provider(scope) = target {
            provider::check_body(&self.planes, scope, &op, "update", &body.value)?;
        }
        if let Target::Organization(scope) = target {
            organization::check_object(&self.registry, &op, scope).await?;
            organization::check_write(&op, scope, &body.value)?;
        }
        let written = self.registry.update(&op, &body, &options).await;
        self.registered(&op, written).await
    }

    async fn patch(
        &self,
        target: &Target,
        op: Operation,
        patch: Patch,
        options: WriteOptions,
    ) -> Result<Written> {
        let op = self.local(target, op, "patch").await?;
        if matches!(patch, Patch::Apply(_)) && op.subresource.is_none() {
            self.planes.check_create(&op.plane)?;
        }
        if people::is_key(&op) && matches!(patch, Patch::Apply(_)) {
            return Err(read_only(&op, "apply"));
        }
        if let Target::User(name) = target {
            organization::check_answer(&op, &patch)?;
            self.own_view(name).await.check_object(&self.registry, &op).await?;
        }
        if let Target::Organization(scope) = target {
            organization::check_patch(&self.registry, &op, scope, &patch).await?;
        }
        if let Target::Provider(scope) = target {
            provider::check_patch(self, scope, &op, &patch, &options).await?;
        }
        let written = self.registry.patch(&op, &patch, &options).await;
        self.registered(&op, written).await
    }

    async fn delete(&self, target: &Target, op: Operation, options: DeleteOptions) -> Result<Written> {
        let op = self.local(target, op, "delete").await?;
        match target {
            Target::Organization(scope) => organization::check_object(&self.registry, &op, scope).await?,
            Target::User(name) => self.own_view(name).await.check_object(&self.registry, &op).await?,
            _ => {}
        }
        self.registry.delete(&op, &options).await
    }

    async fn delete_collection(
        &self,
        target: &Target,
        op: Operation,
        list: ListOptions,
        options: DeleteOptions,
    ) -> Result<List> {
        self.local(target, op.clone(), "deletecollection").await?;
        let (op, shown) = self.shown(target, op, "deletecollection").await?;
        self.registry.delete_collection(&op, &ListOptions { shown, ..list }, &options).await
    }

    async fn watch(
        &self,
        target: &Target,
        op: Operation,
        mut options: WatchOptions,
    ) -> Result<BoxStream<'static, WatchEvent>> {
        if op.narrowed && matches!(target, Target::Local(_)) {
            return visible::watch(self, &op, options).await;
        }
        if let Some(across) = self.across(target, &op, "watch").await? {
            provider::check_since(&self.planes, target, &options.list.resource_version)?;
            return Ok(self.registry.watch_across(&op, &options, &across).await?.boxed());
        }
        let (op, shown) = self.shown(target, op, "watch").await?;
        options.list.shown = shown;
        if let Target::User(name) = target {
            let view = self.own_view(name).await;
            view.check_since(&op, &options.list.resource_version)?;
            let events = self.registry.watch(&op, &options).await?;
            return Ok(view.while_unchanged(&op, events));
        }
        Ok(self.registry.watch(&op, &options).await?.boxed())
    }

    async fn admit_review(
        &self,
        target: &Target,
        op: &Operation,
        review: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        // What a pair's plane has of webhooks, its pair knows.
        if matches!(target, Target::Dedicated(_)) {
            return Ok(Vec::new());
        }
        let mut warnings = self.registry.admit_posted(op, review, options).await?;
        warnings.extend(self.registry.validate_posted(op, review, options).await?);
        Ok(warnings)
    }

    async fn admit_connect(&self, target: &Target, op: Operation, options: Value) -> Result<Vec<String>> {
        let op = self.local(target, op, "connect").await?;
        self.registry.admit_connect(&op, options).await
    }

    fn count(&self, target: &Target, group: &str, resource: &str, namespace: Option<&str>) -> usize {
        self.count_of(target, (group, resource), namespace)
    }

    fn size(
        &self,
        target: &Target,
        (group, resource): (&str, &str),
        (namespace, name): (Option<&str>, &str),
    ) -> usize {
        let Target::Local(plane) = target else { return 0 };
        let path = ObjectPath {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        self.registry.cache().peek(plane, &path).map_or(0, |entry| entry.cost())
    }
}
