//! A resource type: everything special about a kind, as data.

use crate::{PlaneId, document::Document, gvk::*, schema::Schema};
use std::sync::{Arc, OnceLock};

/// The annotation of a CRD that says in which contexts its types show: `project,organization`.
pub const CONTEXTS_ANNOTATION: &str = "freehold.dev/contexts";
/// The contexts that types can be bound to.
pub const CONTEXTS: [&str; 4] = ["platform", "organization", "project", "user"];

/// One served version of one resource. Built-in kinds and CRDs both become this.
#[derive(Debug)]
pub struct ResourceType {
    /// API group, empty for core.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Kind, in CamelCase.
    pub kind: String,
    /// Kind of a list of them.
    pub list_kind: String,
    /// Plural, lower-case: the name in URLs.
    pub plural: String,
    /// Singular, lower-case.
    pub singular: String,
    /// What people type instead.
    pub short_names: Vec<String>,
    /// `all`, `api-extensions`, ...
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Verbs of the main resource, in discovery's words.
    pub verbs: Vec<&'static str>,
    /// Subresources, without the main resource's name in front.
    pub subresources: Vec<Subresource>,
    /// Where objects of this resource are kept, which several served groups and versions can share
    /// (`events` of core and of events.k8s.io).
    pub storage: StorageAs,
    /// The structural schema, compiled on first use.
    pub schema: LazySchema,
    /// The schema of the version in which objects are stored, where that is another version of a CRD.
    pub stored_schema: Option<LazySchema>,
    /// What is published about the schema, with descriptions.
    pub openapi: Documentation,
    /// Columns of a Table after `Name`, in order. Empty: `Age` alone.
    pub columns: Vec<Column>,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`: the JSON paths as clients spell them,
    /// without a leading dot (`spec.nodeName`).
    pub selectable_fields: Vec<String>,
    /// Whether `metadata.generation` counts changes outside metadata and status.
    pub generation: bool,
    /// Whether this comes from a CRD: its objects are pruned by schema and told apart in errors.
    pub custom: bool,
    /// A warning for each request, where this version is deprecated.
    pub deprecation: Option<String>,
    /// Whether its definition is being deleted: nothing new is made, and discovery tells so.
    pub terminating: bool,
    /// The contexts in which it shows, as [`CONTEXTS`] names them; empty means all.
    pub contexts: Vec<String>,
    /// The revision since which an export has this schema; 0 for a type that is built in or defined in its plane.
    pub since: u64,
    /// Names content: equal for equal types, so that compiled things can be shared. Hex.
    pub hash: String,
}

/// Where and in which version objects are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageAs {
    /// Group in the key.
    pub group: String,
    /// Resource in the key.
    pub resource: String,
    /// `apiVersion` in the stored object.
    pub api_version: String,
    /// How the served version is had from the stored one.
    pub conversion: Conversion,
}

/// How versions of a resource are converted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Conversion {
    /// Only `apiVersion` differs.
    #[default]
    None,
    /// A named built-in conversion (`events`, `horizontalpodautoscalers`).
    BuiltIn(&'static str),
    /// A webhook is asked.
    Webhook(Arc<ConversionWebhook>),
}

/// A webhook that converts objects between the versions of a CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionWebhook {
    /// Its configuration: `spec.conversion.webhook` of the CRD.
    pub config: serde_json::Value,
    /// The plane on whose behalf it is called, where objects of other planes are converted too: the provider's of an
    /// export. `None` stands for the plane of the objects.
    pub home: Option<PlaneId>,
}

impl Conversion {
    /// The webhook of a provider that converts objects of all its consumers.
    pub fn of_provider(&self) -> Option<&ConversionWebhook> {
        match self {
            Self::Webhook(webhook) => Some(&**webhook).filter(|webhook| webhook.home.is_some()),
            _ => None,
        }
    }
}

/// A subresource that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `scale`, `token`, ...
    pub name: String,
    /// The kind that it speaks, with its group and version: the resource's own for `status`.
    pub kind: GroupVersionKind,
    /// Verbs, in discovery's words.
    pub verbs: Vec<&'static str>,
    /// For `scale`: where its numbers are.
    pub scale: Option<ScalePaths>,
}

/// The JSON paths of a scale subresource, with a leading dot (`.spec.replicas`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted number.
    pub spec_replicas: String,
    /// The observed number.
    pub status_replicas: String,
    /// The selector as a string, where there is one.
    pub label_selector: Option<String>,
}

/// A column of a Table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Header, as `kubectl get` prints it in capitals.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// OpenAPI format, `name` for the first column.
    pub format: String,
    /// For `kubectl explain`-like help.
    pub description: String,
    /// 0 is shown always, others with `-o wide`.
    pub priority: i32,
    /// Where its cell comes from.
    pub cell: Cell,
}

/// Where the cell of a [`Column`] comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A JSON path with a leading dot, as CRDs declare it.
    Path(String),
    /// A named function of `table`, for built-in kinds whose cell is computed (`pod-ready`, `service-ports`).
    Function(&'static str),
}

/// Where the published OpenAPI schema of a type is to be had. It is never kept parsed.
#[derive(Clone, Debug, Default)]
pub enum Documentation {
    /// Nowhere: the type is published as an object of which nothing is known.
    #[default]
    None,
    /// Among the definitions of the built-in kinds, by name (`io.k8s.api.core.v1.Pod`).
    BuiltIn(String),
    /// Here: the version's `openAPIV3Schema` as its CRD states it.
    Schema(Document),
}

/// A schema compiled on first use and then kept.
pub struct LazySchema {
    cell: OnceLock<Option<Arc<Schema>>>,
    load: Box<dyn Fn() -> Option<Arc<Schema>> + Send + Sync>,
}

impl LazySchema {
    /// A schema that `load` gives when it is first asked for; `None` means that anything goes.
    pub fn new(load: impl Fn() -> Option<Arc<Schema>> + Send + Sync + 'static) -> Self {
        Self { cell: OnceLock::new(), load: Box::new(load) }
    }

    /// A schema that is there already.
    pub fn ready(schema: Option<Arc<Schema>>) -> Self {
        Self { cell: OnceLock::from(schema), load: Box::new(|| None) }
    }

    /// The schema; `None` where the type has none.
    pub fn get(&self) -> Option<&Arc<Schema>> {
        self.cell.get_or_init(|| (self.load)()).as_ref()
    }
}

impl std::fmt::Debug for LazySchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.cell.get().is_some() { "schema" } else { "schema, not loaded" })
    }
}

impl ResourceType {
    /// `apiVersion` of the served version.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The resource as errors name it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// The kind as it stands in objects.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }

    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether status is written through its own subresource only.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}
