//! The objects that are used: ConfigMaps and custom resources whose data is 1 KiB.

use anyhow::{Context, Result};
use bytes::Bytes;
use freehold_client::{Client, RawRequest, Resource};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// How much data an object has.
const SIZE: usize = 1024;
/// How long a new type may take to be served.
const PATIENCE: Duration = Duration::from_secs(30);
const GROUP: &str = "bench.freehold.dev";

const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
const CRDS: Resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const ROLE_BINDINGS: Resource = Resource::namespaced("rbac.authorization.k8s.io", "v1", "rolebindings");

/// A type of objects.
#[derive(Debug)]
pub(crate) struct Type {
    /// As tables call them.
    pub(crate) name: &'static str,
    pub(crate) resource: Resource,
    kind: &'static str,
    /// The field that holds the data.
    field: &'static str,
    /// Whether Kubernetes itself defines it: it may be patched strategically, and replaced without saying which version.
    pub(crate) built_in: bool,
}

pub(crate) static CONFIG_MAPS: Type = Type {
    name: "ConfigMaps",
    resource: Resource::namespaced("", "v1", "configmaps"),
    kind: "ConfigMap",
    field: "data",
    built_in: true,
};
pub(crate) static CUSTOM: Type = Type {
    name: "custom resources",
    resource: Resource::namespaced(GROUP, "v1", "widgets"),
    kind: "Widget",
    field: "spec",
    built_in: false,
};

impl Type {
    fn object(&self, name: &str, fill: char) -> Value {
        json!({
            "apiVersion": self.resource.api_version(), "kind": self.kind,
            "metadata": {"name": name, "labels": {"app": "bench"}},
            self.field: {"text": fill.to_string().repeat(SIZE)},
        })
    }

    fn path(&self, namespace: &str, name: &str) -> String {
        self.resource.object_path(Some(namespace), name, None)
    }

    /// Creates an object.
    pub(crate) fn create(&self, namespace: &str, name: &str) -> RawRequest {
        let path = self.resource.collection_path(Some(namespace));
        RawRequest::new(Method::POST, path).json(&self.object(name, 'a'))
    }

    /// Replaces it by one that `round` makes differ from the one before.
    pub(crate) fn update(&self, namespace: &str, name: &str, round: usize) -> RawRequest {
        let fill = char::from(b'b' + u8::try_from(round % 20).unwrap_or_default());
        RawRequest::new(Method::PUT, self.path(namespace, name)).json(&self.object(name, fill))
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> RawRequest {
        RawRequest::get(self.path(namespace, name))
    }

    pub(crate) fn delete(&self, namespace: &str, name: &str) -> RawRequest {
        RawRequest::new(Method::DELETE, self.path(namespace, name))
    }

    /// All objects of a namespace, with query parameters (`?resourceVersion=0`).
    pub(crate) fn list(&self, namespace: &str, query: &str) -> RawRequest {
        RawRequest::get(self.resource.collection_path(Some(namespace)) + query)
    }

    /// Deletes what a label selector, as a URL has it, gives.
    pub(crate) fn delete_selected(&self, namespace: &str, selector: &str) -> RawRequest {
        let path = format!("{}?labelSelector={selector}", self.resource.collection_path(Some(namespace)));
        RawRequest::new(Method::DELETE, path)
    }

    /// Sets one small field to what `content_type` and `round` make it: merge or strategic merge patch.
    pub(crate) fn patch(
        &self,
        content_type: &'static str,
        namespace: &str,
        name: &str,
        round: usize,
    ) -> RawRequest {
        let body = json!({self.field: {"round": format!("{round} {content_type}")}}).to_string();
        RawRequest {
            content_type,
            body: Bytes::from(body),
            ..RawRequest::new(Method::PATCH, self.path(namespace, name))
        }
    }

    /// Applies one small field on the server's side.
    pub(crate) fn apply(&self, namespace: &str, name: &str, round: usize) -> RawRequest {
        let body = json!({
            "apiVersion": self.resource.api_version(), "kind": self.kind, "metadata": {"name": name},
            self.field: {"applied": round.to_string()},
        });
        RawRequest {
            content_type: "application/apply-patch+yaml",
            body: Bytes::from(body.to_string()),
            ..RawRequest::new(Method::PATCH, self.path(namespace, name) + "?fieldManager=bench&force=true")
        }
    }
}

pub(crate) fn namespace(name: &str) -> RawRequest {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    RawRequest::new(Method::POST, NAMESPACES.collection_path(None)).json(&object)
}

/// Removes a namespace, as far as the server has somebody to empty it.
pub(crate) fn delete_namespace(name: &str) -> RawRequest {
    RawRequest::new(Method::DELETE, NAMESPACES.object_path(None, name, None))
}

/// Lets a group read what is in a namespace.
pub(crate) fn role_binding(namespace: &str) -> RawRequest {
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "developers"}],
    });
    RawRequest::new(Method::POST, ROLE_BINDINGS.collection_path(Some(namespace))).json(&object)
}

/// Makes the custom resources' type, unless it is there, and waits until it is served.
pub(crate) async fn define(client: &Client) -> Result<()> {
    let text = json!({"type": "string"});
    let spec = json!({"type": "object", "properties": {"text": text, "round": text, "applied": text}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    match client.create(&CRDS, &object).await {
        Err(error) if !error.is_already_exists() => return Err(error.into()),
        _ => {}
    }
    let list = CUSTOM.list("default", "?limit=1");
    let served = async {
        while client.request(&list).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, served)
        .await
        .with_context(|| format!("{list:?} is not answered in {PATIENCE:?}"))
}
