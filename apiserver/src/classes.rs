//! What a class gives its planes, as this server's layers have it.

use crate::{exports, local::LocalBackend};
use freehold_apiserver_registry::{class_bindings, class_objects};
use freehold_machinery::{Result, Value};
use serde_json::json;

impl LocalBackend {
    /// Makes the layer of a class from its objects and the exports that it binds; gives the layer's name.
    pub(crate) async fn install_class(&self, class: &str) -> Result<Value> {
        let found = self.planes.class(class).await?;
        let (mut objects, keeps) = match &found {
            Some(class) => (class_objects(class)?, class["spec"]["objectDeletion"] == "Refused"),
            None => (Vec::new(), false),
        };
        if let Some(class) = &found {
            self.planes.apis().ready().await;
            let schemas = |plane: &str, export: &str| exports::schemas(&self.planes, plane, export);
            objects.extend(class_bindings(class, schemas));
        }
        Ok(json!({"layer": self.planes.install_class(class, objects, keeps).await?}))
    }
}
