//! Selectors on entries of the cache.

use crate::strategy;
use crate::{ListOptions, Shown};
use freehold_apiserver_cache::{By, Entry};
use freehold_machinery::{
    ResourceType, Result, Status, Value,
    resource::Conversion,
    selector::{Fields, Labels},
};
use std::sync::Arc;

/// Which objects of a resource a request is about.
pub(crate) struct Selection {
    labels: Labels,
    fields: Fields,
    namespace: Option<String>,
    place: Option<String>,
    kind: Kind,
    shown: Option<Arc<Shown>>,
    /// The version in which fields are looked at, where a webhook converts to it: an entry of another one is judged
    /// when it is converted ([`Selection::shows`]).
    converted: Option<String>,
}

/// How fields of objects are found.
#[derive(Clone, Copy)]
enum Kind {
    Event,
    BuiltIn,
    Custom,
}

impl Selection {
    /// From what the client gave; 400 for what can't be parsed or is not selectable.
    pub(crate) fn new(ty: &ResourceType, namespace: Option<&str>, options: &ListOptions) -> Result<Self> {
        let labels = Labels::parse(&options.label_selector).map_err(Status::bad_request)?;
        let fields = Fields::parse(&options.field_selector).map_err(Status::bad_request)?;
        let known = |path: &str| {
            path == "metadata.name"
                || path == "metadata.namespace"
                || ty.selectable_fields.iter().any(|f| f == path)
        };
        fields.check(known).map_err(|label| Status::bad_request(unknown_field(ty, &label)))?;
        let kind = match ty.custom {
            true => Kind::Custom,
            false if ty.storage.group.is_empty() && ty.storage.resource == "events" => Kind::Event,
            false => Kind::BuiltIn,
        };
        let by_content = fields.requirements().iter().any(|r| !r.field.starts_with("metadata."));
        let webhook = matches!(ty.storage.conversion, Conversion::Webhook(_));
        let converted = (webhook && by_content).then(|| ty.api_version());
        let shown = options.shown.clone().filter(|shown| !shown.is_all());
        let exact = |field| fields.exact(field).filter(|value| is_segment(value));
        let namespace = namespace.or_else(|| exact("metadata.namespace").filter(|_| ty.namespaced));
        let place = exact("metadata.name").and_then(|name| match (ty.namespaced, namespace) {
            (false, _) => Some(name.to_owned()),
            (true, Some(namespace)) => Some(format!("{namespace}/{name}")),
            (true, None) => None,
        });
        let namespace = namespace.map(str::to_owned);
        Ok(Self { labels, fields, namespace, place, kind, shown, converted })
    }

    /// The one namespace that objects are selected from: the one of the request or of its field selector.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The place (`namespace/name` or `name`) of the only object that can be selected, where the request and its field
    /// selector name it.
    pub(crate) fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// The view that hides some of the objects.
    pub(crate) fn shown(&self) -> Option<&Shown> {
        self.shown.as_deref()
    }

    /// A value that each selected object has, by which an index may find them.
    pub(crate) fn by(&self) -> Option<(By<&str>, &str)> {
        if let Some((key, value)) = self.labels.first_exact() {
            return Some((By::Label(key), value));
        }
        let mut fields = self.fields.requirements().iter().filter(|r| !r.negated && self.is_plain(&r.field));
        let found = fields.find(|r| !r.value.is_empty())?;
        Some((By::Field(&found.field), &found.value))
    }

    /// Whether the text of a field is what is compared, as it stands in each object.
    fn is_plain(&self, path: &str) -> bool {
        let of_kind = match self.kind {
            Kind::Custom => self.converted.is_none(),
            Kind::BuiltIn => !DEFAULTED.contains(&path),
            Kind::Event => path.starts_with("involvedObject.") || matches!(path, "reason" | "type"),
        };
        of_kind && !path.starts_with("metadata.")
    }

    /// Whether everything is selected.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.shown.is_none()
    }

    /// Whether some entries are only judged when they are converted.
    pub(crate) fn needs_conversion(&self) -> bool {
        self.converted.is_some()
    }

    /// Whether a converted object has the fields that are wanted.
    pub(crate) fn shows(&self, object: &Value) -> bool {
        self.converted.is_none()
            || self.fields.matches(|path| {
                let found = path.split('.').try_fold(object, |value, key| value.get(key))?;
                match found {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(_) | Value::Bool(_) => Some(found.to_string()),
                    _ => None,
                }
            })
    }

    /// Whether an entry is selected, or may be when it is converted.
    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        if self.namespace.as_deref().is_some_and(|namespace| namespace != entry.namespace())
            || self.shown.as_ref().is_some_and(|shown| !shown.shows(entry))
        {
            return false;
        }
        let field = |path: &str| {
            Some(match self.kind {
                Kind::Event => event_field(entry, path),
                Kind::BuiltIn => built_in_field(entry, path),
                Kind::Custom => entry.field(path),
            })
        };
        let other = self.converted.as_ref().is_some_and(|version| entry.field("apiVersion") != version);
        self.labels.matches(|key| entry.label(key)) && (other || self.fields.matches(field))
    }
}

/// Whether a text can be a part of a place: other texts are the name of no object.
fn is_segment(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}

/// What is said of a field that is not selectable: kinds without any of their own name those that all have.
fn unknown_field(ty: &ResourceType, why: &str) -> String {
    let label = why.rsplit(": ").next().unwrap_or_default();
    match strategy::of(ty).unknown_field {
        _ if ty.custom => why.to_owned(),
        Some(words) => words(label),
        None if ty.selectable_fields.is_empty() => {
            format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        _ => why.to_owned(),
    }
}

/// Fields of built-in kinds that count as something where they are absent.
const DEFAULTED: [&str; 4] =
    ["spec.unschedulable", "spec.hostNetwork", "status.replicas", "status.successful"];

/// A field of a built-in kind: a flag or number that is absent has the value that it has in Go.
fn built_in_field<'e>(entry: &'e Entry, path: &str) -> &'e str {
    let (path, absent) = match path {
        "spec.unschedulable" | "spec.hostNetwork" => (path, "false"),
        "status.replicas" => (path, "0"),
        "status.successful" => ("status.succeeded", "0"),
        _ => (path, ""),
    };
    match entry.field(path) {
        "" => absent,
        found => found,
    }
}

/// A field of an event. Those of both groups are kept in the words of the older one, and either of two fields says what
/// reported it.
fn event_field<'e>(entry: &'e Entry, path: &str) -> &'e str {
    match path.strip_prefix("regarding.") {
        Some(field) => entry.field(&format!("involvedObject.{field}")),
        None if path == "source" => match entry.field("source.component") {
            "" => entry.field("reportingComponent"),
            component => component,
        },
        None if path == "reportingController" => entry.field("reportingComponent"),
        None => entry.field(path),
    }
}
