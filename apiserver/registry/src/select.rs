//! Selectors on entries of the cache.

use crate::ListOptions;
use freehold_apiserver_cache::Entry;
use freehold_machinery::{
    ResourceType, Result, Status,
    selector::{Fields, Labels},
};

/// Which objects of a resource a request is about.
pub(crate) struct Selection {
    labels: Labels,
    fields: Fields,
    namespace: Option<String>,
}

impl Selection {
    /// From what the client gave; 400 for what can't be parsed or is not selectable.
    pub(crate) fn new(ty: &ResourceType, namespace: Option<&str>, options: &ListOptions) -> Result<Self> {
        let labels = Labels::parse(&options.label_selector)
            .map_err(|why| Status::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = Fields::parse(&options.field_selector).map_err(Status::bad_request)?;
        let known = |path: &str| {
            path == "metadata.name"
                || path == "metadata.namespace"
                || ty.selectable_fields.iter().any(|f| f == path)
        };
        fields.check(known).map_err(Status::bad_request)?;
        Ok(Self { labels, fields, namespace: namespace.map(str::to_owned) })
    }

    /// Whether everything is selected.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an entry is selected.
    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        if self.namespace.as_deref().is_some_and(|namespace| namespace != entry.namespace()) {
            return false;
        }
        self.labels.matches(|key| entry.label(key)) && self.fields.matches(|path| Some(entry.field(path)))
    }
}
