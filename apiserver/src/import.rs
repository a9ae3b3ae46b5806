//! Archives of planes: what becomes of one that is imported.

use crate::local::LocalBackend;
use freehold_apiserver_planes::Target;
use freehold_apiserver_server::ArchiveStream;
use freehold_apiserver_storage::LayerId;
use freehold_machinery::{Result, Status, Value};
use serde_json::json;

impl LocalBackend {
    /// Puts the objects of an archive above what a plane has, once all of them are checked.
    pub(crate) async fn import_into(&self, target: &Target, archive: &mut ArchiveStream) -> Result<Value> {
        let Target::Local(plane) = target else { return Err(Status::no_such_resource()) };
        self.planes.check_create(plane)?;
        let switch = |layer: LayerId| async move {
            let loaded = self.planes.layer(&layer, plane).await?;
            let types = self.planes.types_of(plane).await?;
            self.registry.check_imported(plane, &types, &loaded).await?;
            self.put_above(plane, &layer, "import").await
        };
        let imported = self.planes.import(plane, archive, switch).await;
        self.registry.ledger().forget_usage(plane).await?;
        Ok(json!({"objects": imported?}))
    }
}
