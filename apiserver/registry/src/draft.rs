//! What a write wants, and what it makes of it.

use crate::{Body, FieldValidation, Patch, WriteOptions};
use freehold_apiserver_cache::Entry;
use freehold_machinery::{Result, Status, Value, schema::default::Empty};
use freehold_machinery_patch as patch;
use std::sync::Arc;

/// What the client wants done.
pub(crate) enum Want<'a> {
    Create(&'a Body),
    Update(&'a Body),
    Patch(&'a Patch),
}

impl Want<'_> {
    /// Bytes of what the client sent, as far as they were counted.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Create(body) | Self::Update(body) => body.bytes,
            Self::Patch(
                Patch::Json(body) | Patch::Merge(body) | Patch::Strategic(body) | Patch::Apply(body),
            ) => body.bytes,
        }
    }
}

/// What a JSON patch makes of an object, and what a strict reader says of the patch.
pub(crate) fn operated(base: &Value, body: &Body, options: &WriteOptions) -> Result<(Value, Vec<String>)> {
    let mut found = Vec::new();
    if options.field_validation != FieldValidation::Ignore {
        let undecodable = |why| Status::bad_request(format!("error decoding patch: {why}"));
        let unknown = patch::json_unknown(&body.value).map_err(undecodable)?;
        found.extend(body.duplicates.iter().chain(&unknown).map(|field| format!("json patch {field}")));
    }
    Ok((patch::json(base, &body.value)?, found))
}

/// The object as the client wants it.
pub(crate) struct Draft {
    pub(crate) value: Value,
    /// What of it is empty, and left out where it is stored.
    pub(crate) empties: Vec<Empty>,
}

/// The object as it is now, in the version that was asked for.
pub(crate) struct Live {
    pub(crate) value: Value,
    pub(crate) modified: u64,
    pub(crate) entry: Arc<Entry>,
}
