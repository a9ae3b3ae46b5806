//! Objects and lists as the client asked for them: whole, as metadata, or as a Table.
//!
//! What is cached is passed on as it is: a whole object costs no copy, a list one for each item, metadata is cut out of
//! the bytes. Only Tables, YAML and indentation need an object to be parsed.

use crate::{
    call::Call,
    negotiate::{self, Accepted, Format, Shape},
    payload::{Payload, Pieces},
    query::Query,
    respond::{self, Reply},
};
use bytes::Bytes;
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::{List, Object, Operation, Written};
use freehold_machinery::{
    ResourceType, Status, Value, meta,
    resource::{Cell, Column},
    table::{IncludeObject, ListMeta, Printer},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::{Arc, LazyLock};

/// The annotation with which lists over several projects tell where an object is from.
const PROJECT: &str = "resourcemanager.freehold.dev/project";

/// The column of Tables over several projects.
static PROJECT_COLUMN: LazyLock<Column> = LazyLock::new(|| Column {
    name: "Project".to_owned(),
    kind: "string".to_owned(),
    format: String::new(),
    description: "Project that the object is in.".to_owned(),
    priority: 0,
    cell: Cell::Path(String::new()),
});

fn project_cell(object: &Value) -> Value {
    meta::annotation(object, PROJECT).unwrap_or("").into()
}

/// A value in a negotiated format.
pub(crate) fn document(accepted: Accepted, code: u16, value: &Value) -> Result<Reply, Status> {
    respond::value(accepted, code, value)
}

/// How the objects of one request go out.
pub(crate) struct Output {
    pub(crate) accepted: Accepted,
    ty: Arc<ResourceType>,
    include: IncludeObject,
    across: bool,
}

impl Output {
    /// What the client accepts; 406 where nothing of it can be had.
    pub(crate) fn of(call: &Call<'_>, op: &Operation) -> Result<Self, Status> {
        Self::new(negotiate::object(&call.parts.headers, call.query)?, call, op)
    }

    /// The same for a watch.
    pub(crate) fn of_watch(call: &Call<'_>, op: &Operation) -> Result<Self, Status> {
        Self::new(negotiate::watch(&call.parts.headers, call.query)?, call, op)
    }

    fn new(mut accepted: Accepted, call: &Call<'_>, op: &Operation) -> Result<Self, Status> {
        // Columns are those of the resource, which say nothing of another kind.
        let other_kind = op.subresource.as_deref().is_some_and(|s| s != "status");
        if other_kind && accepted.shape == Shape::Table {
            accepted.shape = Shape::Whole;
        }
        let across = matches!(call.target, Target::Organization(_) | Target::AllPlanes);
        Ok(Self { accepted, ty: op.ty.clone(), include: include(accepted, call.query)?, across })
    }

    /// One object.
    pub(crate) fn object(&self, code: u16, object: &Object) -> Result<Reply, Status> {
        let bytes = match self.accepted.shape {
            Shape::Whole => return self.whole(code, object),
            _ if is_status(object) => return self.whole(code, object),
            Shape::Metadata => self.finish(partial(&object.bytes())?)?,
            Shape::Table => {
                let value = Arc::unwrap_or_clone(object.value());
                let version = meta::resource_version(&value).to_owned();
                let list = ListMeta { resource_version: &version, ..ListMeta::default() };
                respond::encode(self.accepted, &self.table(vec![value], &list))?
            }
        };
        Ok(respond::reply(code, respond::content_type(self.accepted.format), Payload::Full(bytes)))
    }

    fn whole(&self, code: u16, object: &Object) -> Result<Reply, Status> {
        if self.is_raw() {
            return Ok(respond::json(code, object.bytes()));
        }
        respond::value(self.accepted, code, &object.value())
    }

    /// Whether bytes go out as they are.
    fn is_raw(&self) -> bool {
        self.accepted.format == Format::Json && !self.accepted.pretty
    }

    /// Bytes of JSON in the negotiated format.
    fn finish(&self, json: Bytes) -> Result<Bytes, Status> {
        if self.is_raw() {
            return Ok(json);
        }
        let value: Value = serde_json::from_slice(&json).map_err(Status::internal)?;
        respond::encode(self.accepted, &value)
    }

    /// The outcome of a write: 201 for what is new.
    pub(crate) fn written(&self, written: Written) -> Result<Reply, Status> {
        let mut reply = self.object(if written.created { 201 } else { 200 }, &written.object)?;
        respond::warn(&mut reply, &written.warnings);
        Ok(reply)
    }

    /// A list.
    pub(crate) fn list(&self, list: List) -> Result<Reply, Status> {
        let content_type = respond::content_type(self.accepted.format);
        if self.accepted.shape == Shape::Table {
            let version = list.revision.to_string();
            let meta = ListMeta {
                resource_version: &version,
                continue_token: &list.continue_token,
                remaining: list.remaining,
            };
            let values = list.items.iter().map(|o| Arc::unwrap_or_clone(o.value())).collect();
            let bytes = respond::encode(self.accepted, &self.table(values, &meta))?;
            return Ok(respond::reply(200, content_type, Payload::Full(bytes)));
        }
        let pieces = self.list_pieces(&list)?;
        let payload = match self.is_raw() {
            true => Payload::Pieces(Pieces::new(pieces)),
            false => Payload::Full(self.finish(Bytes::from(pieces.concat()))?),
        };
        Ok(respond::reply(200, content_type, payload))
    }

    /// A list's JSON: its head, the items' bytes with commas between them, its end.
    fn list_pieces(&self, list: &List) -> Result<Vec<Bytes>, Status> {
        let metadata = self.accepted.shape == Shape::Metadata;
        let mut pieces = Vec::with_capacity(list.items.len() * 2 + 2);
        pieces.push(self.list_head(list, metadata));
        for (index, item) in list.items.iter().enumerate() {
            if index > 0 {
                pieces.push(Bytes::from_static(b","));
            }
            pieces.push(if metadata { partial(&item.bytes())? } else { item.bytes() });
        }
        pieces.push(Bytes::from_static(b"]}"));
        Ok(pieces)
    }

    fn list_head(&self, list: &List, metadata: bool) -> Bytes {
        let (kind, version) = match metadata {
            true => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
            false => (self.ty.list_kind.as_str(), self.ty.api_version()),
        };
        let mut head = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{{\"resourceVersion\":\"{}\"",
            list.revision
        );
        if !list.continue_token.is_empty() {
            head.push_str(&format!(",\"continue\":{}", Value::from(list.continue_token.as_str())));
        }
        if let Some(remaining) = list.remaining {
            head.push_str(&format!(",\"remainingItemCount\":{remaining}"));
        }
        head.push_str("},\"items\":[");
        head.into()
    }

    fn table(&self, objects: Vec<Value>, list: &ListMeta<'_>) -> Value {
        let project = self.across && objects.iter().any(|o| meta::annotation(o, PROJECT).is_some());
        let printer = self.printer(project);
        let now = jiff::Timestamp::now();
        let rows = objects.into_iter().map(|o| printer.row(o, self.include, now)).collect();
        printer.table(rows, list, true)
    }

    /// The compiled columns, with that of the project or without.
    fn printer(&self, project: bool) -> Printer<'static> {
        Printer::new(&self.ty, project.then_some((&*PROJECT_COLUMN, &project_cell)))
    }

    /// What makes the frames of a watch.
    pub(crate) fn events(self) -> EventEncoder {
        EventEncoder { output: self, printer: None, first: true }
    }
}

/// `includeObject` of a Table; 400 in Kubernetes' words for an unknown value.
fn include(accepted: Accepted, query: &Query) -> Result<IncludeObject, Status> {
    let given = query.text("includeObject");
    match IncludeObject::parse(given) {
        Some(include) => Ok(include),
        None if accepted.shape != Shape::Table => Ok(IncludeObject::default()),
        None => Err(Status::bad_request(format!("unrecognized includeObject value: {given:?}"))),
    }
}

/// A delete that is done answers with a Status, which has neither metadata nor columns of use.
fn is_status(object: &Object) -> bool {
    matches!(object, Object::Value(value) if value["kind"] == "Status" && value["apiVersion"] == "v1")
}

/// The `PartialObjectMetadata` of an object, cut out of its JSON.
fn partial(object: &[u8]) -> Result<Bytes, Status> {
    #[derive(Deserialize)]
    struct Partial<'a> {
        #[serde(borrow, default)]
        metadata: Option<&'a RawValue>,
    }
    let partial: Partial<'_> = serde_json::from_slice(object).map_err(Status::internal)?;
    let metadata = partial.metadata.map_or("{}", RawValue::get);
    const HEAD: &str = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
    let mut out = String::with_capacity(HEAD.len() + metadata.len() + 1);
    out.push_str(HEAD);
    out.push_str(metadata);
    out.push('}');
    Ok(out.into())
}

/// Makes the objects of a watch's events.
pub(crate) struct EventEncoder {
    output: Output,
    printer: Option<Printer<'static>>,
    first: bool,
}

impl EventEncoder {
    /// The JSON of an event's object.
    pub(crate) fn object(&mut self, object: &Object) -> Result<Bytes, Status> {
        match self.output.accepted.shape {
            Shape::Whole => Ok(object.bytes()),
            Shape::Metadata => partial(&object.bytes()),
            Shape::Table => {
                let value = Arc::unwrap_or_clone(object.value());
                Ok(self.table(value).to_string().into())
            }
        }
    }

    /// The JSON of a bookmark's object.
    pub(crate) fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let ty = &self.output.ty;
        let mut metadata =
            serde_json::json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = serde_json::json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, version) = match self.output.accepted.shape {
            Shape::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            _ => (ty.kind.as_str(), ty.api_version()),
        };
        let object = serde_json::json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        match self.output.accepted.shape {
            Shape::Table => self.table(object).to_string().into(),
            _ => object.to_string().into(),
        }
    }

    /// A Table of one row; column definitions go with the first event only. The first object decides whether projects
    /// are told apart.
    fn table(&mut self, object: Value) -> Value {
        let project = self.output.across && meta::annotation(&object, PROJECT).is_some();
        if self.printer.is_none() {
            self.printer = Some(self.output.printer(project));
        }
        let printer = self.printer.as_ref().expect("made above");
        let version = meta::resource_version(&object).to_owned();
        let row = printer.row(object, self.output.include, jiff::Timestamp::now());
        let list = ListMeta { resource_version: &version, ..ListMeta::default() };
        printer.table(vec![row], &list, std::mem::take(&mut self.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_cut_out_as_it_stands() {
        let rows = [
            (
                r#"{"kind":"Pod","metadata":{"name":"a", "labels":{"x":"y"}},"spec":{"metadata":1}}"#,
                r#"{"name":"a", "labels":{"x":"y"}}"#,
            ),
            (r#"{"kind":"Pod"}"#, "{}"),
        ];
        for (object, metadata) in rows {
            let expected = format!(
                r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#
            );
            assert_eq!(partial(object.as_bytes()).unwrap(), expected);
        }
    }
}
