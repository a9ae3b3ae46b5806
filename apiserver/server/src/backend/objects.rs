//! Objects: reads, writes, watches, and what admission says of what is not stored.

use async_trait::async_trait;
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::{
    Body, DeleteOptions, List, ListOptions, Object, Operation, Patch, WatchEvent, WatchOptions, WriteOptions,
    Written,
};
use freehold_machinery::{Status, Value};
use futures_util::stream::BoxStream;

/// Reads and writes objects. Each failure is the `Status` that the client gets.
#[async_trait]
pub trait ObjectBackend: Send + Sync + 'static {
    /// Reads one object, or a subresource of one. `resource_version` as given in the query, empty for the latest.
    async fn get(&self, target: &Target, op: Operation, resource_version: &str) -> Result<Object, Status>;

    /// Lists objects.
    async fn list(&self, target: &Target, op: Operation, options: ListOptions) -> Result<List, Status>;

    /// Makes an object, or acts through a subresource (`pods/binding`, `serviceaccounts/token`).
    async fn create(
        &self,
        target: &Target,
        op: Operation,
        body: Body,
        options: WriteOptions,
    ) -> Result<Written, Status>;

    /// Replaces an object, or makes it where the kind allows that.
    async fn update(
        &self,
        target: &Target,
        op: Operation,
        body: Body,
        options: WriteOptions,
    ) -> Result<Written, Status>;

    /// Patches or applies.
    async fn patch(
        &self,
        target: &Target,
        op: Operation,
        patch: Patch,
        options: WriteOptions,
    ) -> Result<Written, Status>;

    /// Deletes one object, or begins to.
    async fn delete(&self, target: &Target, op: Operation, options: DeleteOptions)
    -> Result<Written, Status>;

    /// Deletes all that `list` selects; gives what was deleted.
    async fn delete_collection(
        &self,
        target: &Target,
        op: Operation,
        list: ListOptions,
        options: DeleteOptions,
    ) -> Result<List, Status>;

    /// Watches. Dropping the stream ends the watch; the server ends it when its time is up.
    async fn watch(
        &self,
        target: &Target,
        op: Operation,
        options: WatchOptions,
    ) -> Result<BoxStream<'static, WatchEvent>, Status>;

    /// Admits a review (`tokenreviews`, `subjectaccessreviews`) before it is answered; gives warnings.
    async fn admit_review(
        &self,
        target: &Target,
        op: &Operation,
        review: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>, Status>;

    /// Admits a connection (`pods/exec`) with its options; gives warnings.
    async fn admit_connect(
        &self,
        target: &Target,
        op: Operation,
        options: Value,
    ) -> Result<Vec<String>, Status>;

    /// How many objects a resource has in a target, or in one namespace of it, as far as that is known without reading
    /// them.
    fn count(&self, target: &Target, group: &str, resource: &str, namespace: Option<&str>) -> usize;

    /// How many bytes the object of a namespace and name has, as far as that is known without reading it; 0 otherwise.
    fn size(&self, target: &Target, resource: (&str, &str), at: (Option<&str>, &str)) -> usize;
}
