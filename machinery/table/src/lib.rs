//! Objects as rows of a Table, for `kubectl get`
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>).
//!
//! Columns are data of the type: JSON paths for CRDs, named functions with arguments for built-in kinds. The result
//! is a `Table` of `meta.k8s.io`, whichever type the rows have.

mod call;
mod cells;
mod cluster;
mod duration;
pub mod jsonpath;
mod network;
mod pods;
mod workloads;

use call::Call;
pub use duration::human as human_duration;
use freehold_machinery::{
    Map, ResourceType, Value, meta,
    resource::{Cell, Column},
};
use jiff::Timestamp;
use jsonpath::JsonPath;
use serde_json::json;

/// What `ObjectMeta` says of names, which describes the first column.
pub const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
    intended for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
/// What it says of the time of creation, which describes ages.
pub const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. \
    It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this \
    value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. \
    More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// How much of the object goes with its row (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata, as `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; empty is the default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "None" => Some(Self::None),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// Whether there is a cell function of that name and arguments, for [`Cell::Function`].
pub fn is_function(text: &'static str) -> bool {
    Call::parse(text).is_some()
}

/// What stands in a list's metadata.
#[derive(Clone, Debug, Default)]
pub struct ListMeta<'a> {
    /// The resource version of the list, or of the object where there is only one.
    pub resource_version: &'a str,
    /// The token for the next page; empty on the last one.
    pub continue_token: &'a str,
    /// How many objects are on the pages after this one, where that is known.
    pub remaining: Option<u64>,
}

/// A column that the caller adds, and its cell.
pub type Extra<'a> = (&'a Column, &'a (dyn Fn(&Value) -> Value + Sync));

/// Makes rows of one type's objects. Compile it once for a list or watch.
pub struct Printer<'a> {
    columns: Vec<Printed<'a>>,
    pods: bool,
    api_version: &'static str,
}

struct Printed<'a> {
    column: Column,
    cell: Source<'a>,
}

enum Source<'a> {
    Name,
    Path(Option<JsonPath>),
    Call(Call),
    Extra(&'a (dyn Fn(&Value) -> Value + Sync)),
}

impl<'a> Printer<'a> {
    /// Compiles the columns of a type; the extra one comes first. A path or function that can't be compiled gives
    /// empty cells.
    pub fn new(ty: &ResourceType, extra: Option<Extra<'a>>) -> Self {
        let mut columns: Vec<_> = extra
            .into_iter()
            .map(|(column, cell)| Printed { column: column.clone(), cell: Source::Extra(cell) })
            .collect();
        if !ty.columns.iter().any(|column| column.format == "name") {
            columns.push(Printed { column: name_column(), cell: Source::Name });
        }
        let age = ty.columns.is_empty().then(age_column);
        columns.extend(ty.columns.iter().chain(&age).map(|column| {
            let cell = match &column.cell {
                Cell::Path(path) => Source::Path(JsonPath::parse(path).ok()),
                Cell::Function(call) => Call::parse(call).map_or(Source::Path(None), Source::Call),
            };
            Printed { column: column.clone(), cell }
        }));
        Self { columns, pods: ty.group.is_empty() && ty.plural == "pods", api_version: "meta.k8s.io/v1" }
    }

    /// Prints Tables of another `apiVersion` than `meta.k8s.io/v1`.
    pub fn of_version(self, api_version: &'static str) -> Self {
        Self { api_version, ..self }
    }

    /// The `columnDefinitions` of a Table.
    pub fn headers(&self) -> Value {
        let header = |printed: &Printed<'_>| {
            let Column { name, kind, format, description, priority, cell } = &printed.column;
            // A column of a CRD without a description is described by its path.
            let described = match cell {
                Cell::Path(path) if description.is_empty() => {
                    format!("Custom resource definition column (in JSONPath format): {path}")
                }
                _ => description.clone(),
            };
            json!({
                "name": name, "type": kind, "format": format, "description": described, "priority": priority,
            })
        };
        self.columns.iter().map(header).collect()
    }

    /// The row of an object.
    pub fn row(&self, object: Value, include: IncludeObject, now: Timestamp) -> Value {
        let cells: Vec<Value> = self.columns.iter().map(|column| column.cell(&object, now)).collect();
        let mut row = Map::new();
        if self.pods
            && let Some(condition) = pods::row_condition(&object)
        {
            row.insert("conditions".to_owned(), json!([condition]));
        }
        row.insert("cells".to_owned(), cells.into());
        row.insert("object".to_owned(), self.included(object, include));
        row.into()
    }

    fn included(&self, mut object: Value, include: IncludeObject) -> Value {
        match include {
            IncludeObject::Object => return object,
            IncludeObject::None => return Value::Null,
            IncludeObject::Metadata => {}
        }
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": self.api_version,
            "metadata": object.get_mut("metadata").map(Value::take),
        })
    }

    /// A Table of some rows.
    pub fn table(&self, rows: Vec<Value>, meta: &ListMeta<'_>, with_headers: bool) -> Value {
        let mut metadata = json!({"resourceVersion": meta.resource_version});
        if !meta.continue_token.is_empty() {
            metadata["continue"] = meta.continue_token.into();
        }
        if let Some(remaining) = meta.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        let headers = if with_headers { self.headers() } else { Value::Null };
        json!({
            "kind": "Table",
            "apiVersion": self.api_version,
            "metadata": metadata,
            "columnDefinitions": headers,
            "rows": rows,
        })
    }
}

/// How a table is wanted.
pub struct Options<'a> {
    /// What goes with each row.
    pub include: IncludeObject,
    /// The time against which ages are measured.
    pub now: Timestamp,
    /// Whether column definitions are there, as they are in all but the later events of a watch.
    pub with_headers: bool,
    /// A column that the caller adds.
    pub extra: Option<Extra<'a>>,
}

/// A Table of objects of one type.
pub fn render(
    ty: &ResourceType,
    objects: impl IntoIterator<Item = Value>,
    options: &Options<'_>,
    meta: &ListMeta<'_>,
) -> Value {
    let printer = Printer::new(ty, options.extra);
    let rows = objects.into_iter().map(|object| printer.row(object, options.include, options.now)).collect();
    printer.table(rows, meta, options.with_headers)
}

impl Printed<'_> {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.cell {
            Source::Name => meta::name(object).into(),
            Source::Path(None) => Value::Null,
            Source::Path(Some(path)) => {
                path.first(object).map_or(Value::Null, |value| self.declared(value, now))
            }
            Source::Call(call) => call.run(object, now),
            Source::Extra(cell) => cell(object),
        }
    }

    /// A value in a CRD's column: null where it isn't of the type that the column declares.
    fn declared(&self, value: &Value, now: Timestamp) -> Value {
        match (self.column.kind.as_str(), value) {
            (_, Value::Null) => Value::Null,
            ("string", Value::String(_)) => value.clone(),
            ("string", other) => other.to_string().into(),
            ("integer", Value::Number(number)) => {
                let truncated = || number.as_f64().map(|float| float.trunc() as i64);
                number.as_i64().or_else(truncated).map_or(Value::Null, Value::from)
            }
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => date(text, now).into(),
            _ => Value::Null,
        }
    }
}

fn date(text: &str, now: Timestamp) -> String {
    match text {
        "" => "<unknown>".to_owned(),
        _ if duration::parse(text).is_none() => "<invalid>".to_owned(),
        _ => duration::since(Some(text), now),
    }
}

fn name_column() -> Column {
    Column {
        name: "Name".to_owned(),
        kind: "string".to_owned(),
        format: "name".to_owned(),
        description: NAME.to_owned(),
        priority: 0,
        cell: Cell::Path(".metadata.name".to_owned()),
    }
}

fn age_column() -> Column {
    Column {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        format: String::new(),
        description: CREATED.to_owned(),
        priority: 0,
        cell: Cell::Path(".metadata.creationTimestamp".to_owned()),
    }
}

#[cfg(test)]
mod tests;
