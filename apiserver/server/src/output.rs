//! Objects and lists as the client asked for them: whole, as metadata, or as a Table.
//!
//! What is cached is passed on as it is: a whole object costs no copy, nor do those of a list, metadata is cut out of the
//! bytes, protobuf is written in one pass over them. Only Tables, YAML and indentation need an object to be parsed.

use crate::{
    call::Call,
    negotiate::{self, Accepted, Format, MetaVersion, Shape},
    query::Query,
    respond::{self, Reply},
};
use bytes::Bytes;
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::{List, Object, Operation, Piece, Written};
use freehold_apiserver_transport::{payload::Payload, pieces::Pieces};
use freehold_machinery::{
    ResourceType, Status, Value, go, meta,
    resource::{Cell, Column},
};
use freehold_machinery_protobuf as protobuf;
use freehold_machinery_table::{IncludeObject, ListMeta, Printer};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, LazyLock},
};

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
    pub(crate) include: IncludeObject,
    across: bool,
}

impl Output {
    /// What the client accepts; 406 where nothing of it can be had.
    pub(crate) fn of(call: &Call<'_>, op: &Operation) -> Result<Self, Status> {
        // A Scale is of a built-in kind, whatever it scales.
        let custom = op.ty.custom && op.subresource.as_deref() != Some("scale");
        let listed = call.info.verb == "list";
        let accepted = negotiate::object(&call.parts.headers, call.query, custom, listed)?;
        check_list(&accepted, call, op, listed)?;
        Self::new(accepted, call, op)
    }

    /// Reads from a request in which form a watch is to answer.
    pub(crate) fn of_watch(call: &Call<'_>, op: &Operation) -> Result<Self, Status> {
        Self::new(negotiate::watch(&call.parts.headers, call.query, op.ty.custom)?, call, op)
    }

    fn new(mut accepted: Accepted, call: &Call<'_>, op: &Operation) -> Result<Self, Status> {
        // Columns are those of the resource, which say nothing of another kind.
        let other_kind = op.subresource.as_deref().is_some_and(|s| s != "status");
        if other_kind && matches!(accepted.shape, Shape::Table(_)) {
            accepted.shape = Shape::Whole;
        }
        let across = matches!(call.target, Target::Organization(_) | Target::AllPlanes | Target::Provider(_));
        Ok(Self { accepted, ty: op.ty.clone(), include: include(accepted, call.query)?, across })
    }

    /// A number that is equal where objects of one collection go out as the same bytes.
    pub(crate) fn encoding(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.accepted.format, self.accepted.shape, self.include, self.across).hash(&mut hasher);
        (&self.ty.version, &self.ty.group, &self.ty.hash).hash(&mut hasher);
        hasher.finish()
    }

    /// One object.
    pub(crate) fn object(&self, code: u16, object: &Object) -> Result<Reply, Status> {
        let bytes = match self.accepted.shape {
            Shape::Whole => return self.whole(code, object),
            _ if is_status(object) => return self.whole(code, object),
            Shape::Metadata(version) => self.finish(partial(&object.bytes(), version)?)?,
            Shape::Table(_) => {
                let value = Arc::unwrap_or_clone(object.value());
                let version = meta::resource_version(&value).to_owned();
                let list = ListMeta { resource_version: &version, ..ListMeta::default() };
                respond::encode(self.accepted, &self.table(vec![value], &list))?
            }
        };
        Ok(respond::reply(code, respond::content_type(self.accepted.format), Payload::Full(bytes)))
    }

    fn whole(&self, code: u16, object: &Object) -> Result<Reply, Status> {
        let bytes = match self.accepted.format {
            _ if self.is_raw() => object.bytes(),
            Format::Protobuf => binary(&object.bytes())?,
            _ => return respond::value(self.accepted, code, &object.value()),
        };
        Ok(respond::reply(code, respond::content_type(self.accepted.format), Payload::Full(bytes)))
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
        if self.accepted.format == Format::Protobuf {
            return binary(&json);
        }
        let value: Value = serde_json::from_slice(&json).map_err(Status::internal)?;
        respond::encode(self.accepted, &value)
    }

    /// The names of the objects' kind in the negotiated shape.
    pub(crate) fn names(&self) -> (&str, String) {
        match self.accepted.shape {
            Shape::Metadata(version) => ("PartialObjectMetadata", version.api_version().to_owned()),
            _ => (&self.ty.kind, self.ty.api_version()),
        }
    }

    /// The message of the objects' kind.
    pub(crate) fn message(&self) -> Result<protobuf::Kind, Status> {
        let (kind, version) = self.names();
        protobuf::Kind::of(&version, kind).ok_or_else(|| no_message(&version, kind))
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
        if matches!(self.accepted.shape, Shape::Table(_)) {
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
        let payload = match self.accepted.format {
            Format::Protobuf => Payload::Pieces(Pieces::new(self.list_messages(&list)?)),
            _ if self.is_raw() => Payload::Pieces(Pieces::new(self.list_pieces(list)?)),
            _ => Payload::Full(self.finish(Pieces::new(self.list_pieces(list)?).concat())?),
        };
        Ok(respond::reply(200, content_type, payload))
    }

    /// A list's JSON: its head, the items' bytes with commas between them, its end.
    fn list_pieces(&self, list: List) -> Result<Vec<Piece>, Status> {
        let metadata = self.metadata();
        let (kind, version) = self.list_names();
        let mut pieces = Vec::with_capacity(list.items.len() + 2);
        let meta = list_meta(&list, self.ty.custom && metadata.is_none());
        let head =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"items\":[");
        pieces.push(head.into());
        let is_empty = list.items.is_empty();
        for item in list.items {
            pieces.push(match metadata {
                Some(version) => cut_out(&item.bytes(), version, "},")?.into(),
                None => item.into_item(),
            });
        }
        if !is_empty && let Some(last) = pieces.pop() {
            pieces.push(last.without_last());
        }
        pieces.push(Bytes::from_static(b"]}").into());
        Ok(pieces)
    }

    /// A list in protobuf. Its length stands at its beginning, so that the items come before it is known.
    fn list_messages(&self, list: &List) -> Result<Vec<Bytes>, Status> {
        let metadata = self.metadata();
        let message = self.message()?;
        let mut items = Vec::new();
        for item in &list.items {
            let json = match metadata {
                Some(version) => partial(&item.bytes(), version)?,
                None => item.bytes(),
            };
            let item = message.message(&json).map_err(Status::internal)?;
            protobuf::item_head(&mut items, item.len());
            items.extend_from_slice(&item);
        }
        let (kind, version) = self.list_names();
        let whole = protobuf::Kind::of(&version, kind).ok_or_else(|| no_message(&version, kind))?;
        let (head, tail) =
            whole.list(list_meta(list, false).as_bytes(), items.len()).map_err(Status::internal)?;
        Ok(vec![head.into(), items.into(), tail.into()])
    }

    /// Whether nothing but the metadata of objects goes out.
    pub(crate) fn shows_metadata_alone(&self) -> bool {
        self.metadata().is_some()
    }

    /// The version of the metadata that goes out alone; `None` where objects are whole.
    fn metadata(&self) -> Option<MetaVersion> {
        match self.accepted.shape {
            Shape::Metadata(version) => Some(version),
            _ => None,
        }
    }

    fn list_names(&self) -> (&str, String) {
        match self.accepted.shape {
            Shape::Metadata(version) => ("PartialObjectMetadataList", version.api_version().to_owned()),
            _ => (&self.ty.list_kind, self.ty.api_version()),
        }
    }

    fn table(&self, objects: Vec<Value>, list: &ListMeta<'_>) -> Value {
        let project = objects.iter().any(|object| self.tells_projects(object));
        let printer = self.printer(project);
        let now = jiff::Timestamp::now();
        let rows = objects.into_iter().map(|o| printer.row(o, self.include, now)).collect();
        printer.table(rows, list, true)
    }

    /// Whether an object is shown with the project that it is in.
    pub(crate) fn tells_projects(&self, object: &Value) -> bool {
        self.across && meta::annotation(object, PROJECT).is_some()
    }

    /// The compiled columns, with that of the project or without.
    pub(crate) fn printer(&self, project: bool) -> Printer<'static> {
        let version = match self.accepted.shape {
            Shape::Table(version) => version,
            _ => MetaVersion::default(),
        };
        let extra = project.then_some((&*PROJECT_COLUMN, &project_cell as &(dyn Fn(&Value) -> Value + Sync)));
        Printer::new(&self.ty, extra).of_version(version.api_version())
    }
}

/// A list's metadata as JSON. Lists of custom resources say that they have no token.
fn list_meta(list: &List, custom: bool) -> String {
    let mut meta = format!("{{\"resourceVersion\":\"{}\"", list.revision);
    if custom || !list.continue_token.is_empty() {
        meta.push_str(&format!(",\"continue\":{}", Value::from(list.continue_token.as_str())));
    }
    if let Some(remaining) = list.remaining {
        meta.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    meta.push('}');
    meta
}

/// An object in protobuf, from JSON that says of which kind it is.
fn binary(json: &[u8]) -> Result<Bytes, Status> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Names<'a> {
        #[serde(borrow)]
        api_version: Cow<'a, str>,
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    let names: Names<'_> = serde_json::from_slice(json).map_err(Status::internal)?;
    let kind = protobuf::Kind::of(&names.api_version, &names.kind)
        .ok_or_else(|| no_message(&names.api_version, &names.kind))?;
    kind.encode(json).map(Bytes::from).map_err(Status::internal)
}

fn no_message(api_version: &str, kind: &str) -> Status {
    Status::not_acceptable(&format!(
        "application/json, application/yaml ({api_version} {kind} has no protobuf form)"
    ))
}

/// 406 for the metadata of a list where there is one object, and the other way round.
fn check_list(accepted: &Accepted, call: &Call<'_>, op: &Operation, listed: bool) -> Result<(), Status> {
    let asked =
        call.parts.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    // What was chosen is the first that can be had; with one clause it is the one that was asked for.
    if !matches!(accepted.shape, Shape::Metadata(_))
        || asked.contains(',')
        || !matches!(call.info.verb.as_str(), "get" | "list")
    {
        return Ok(());
    }
    let wants_list = asked.contains("as=PartialObjectMetadataList");
    let package = freehold_apiserver_catalog::internal_name(&op.ty.gvk()).filter(|_| !op.ty.custom);
    let kind = package.unwrap_or("unstructured.Unstructured");
    let said = match (wants_list, listed) {
        (true, false) => format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{kind})"
        ),
        (false, true) => {
            format!("you requested PartialObjectMetadata, but the requested object is a list (*{kind}List)")
        }
        _ => return Ok(()),
    };
    Err(Status::new(406, "NotAcceptable", said))
}

/// `includeObject` of a Table; 400 in Kubernetes' words for an unknown value.
fn include(accepted: Accepted, query: &Query) -> Result<IncludeObject, Status> {
    let given = query.text("includeObject");
    match IncludeObject::parse(given) {
        Some(include) => Ok(include),
        None if !matches!(accepted.shape, Shape::Table(_)) => Ok(IncludeObject::default()),
        None => Err(Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
            go::quote(given)
        ))),
    }
}

/// A delete that is done answers with a Status, which has neither metadata nor columns of use.
fn is_status(object: &Object) -> bool {
    matches!(object, Object::Value(value) if value["kind"] == "Status" && value["apiVersion"] == "v1")
}

/// The `PartialObjectMetadata` of an object, cut out of its JSON.
pub(crate) fn partial(object: &[u8], version: MetaVersion) -> Result<Bytes, Status> {
    cut_out(object, version, "}")
}

/// Cuts the metadata out of an object, with `end` behind it.
fn cut_out(object: &[u8], version: MetaVersion, end: &str) -> Result<Bytes, Status> {
    #[derive(Deserialize)]
    struct Partial<'a> {
        #[serde(borrow, default)]
        metadata: Option<&'a RawValue>,
    }
    let partial: Partial<'_> = serde_json::from_slice(object).map_err(Status::internal)?;
    let metadata = partial.metadata.map_or("{}", RawValue::get);
    let pieces = [
        r#"{"kind":"PartialObjectMetadata","apiVersion":""#,
        version.api_version(),
        r#"","metadata":"#,
        metadata,
        end,
    ];
    let out = pieces.concat();
    Ok(out.into())
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
            assert_eq!(partial(object.as_bytes(), MetaVersion::V1).unwrap(), expected);
        }
    }
}
