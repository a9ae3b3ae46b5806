//! What a query may see.

use crate::sql::Sql;
use crate::{Error, Result};
use std::collections::BTreeSet;

/// Namespaces that a scope can name one by one.
pub const MAX_NAMESPACES: usize = 64;

/// What a namespace is kept by: its name and its uid, divided by a character that no name has.
pub(crate) fn key(namespace: &str, uid: &str) -> String {
    if uid.is_empty() { namespace.to_owned() } else { format!("{namespace}/{uid}") }
}

/// Name and uid of a namespace that is kept by a [`key`].
pub(crate) fn parts(key: &str) -> (String, String) {
    let (namespace, uid) = key.split_once('/').unwrap_or((key, ""));
    (namespace.to_owned(), uid.to_owned())
}

/// The plane and the namespaces that a query may see. No query can be made without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    plane: String,
    /// `None` for all of them.
    namespaces: Option<BTreeSet<String>>,
}

impl Scope {
    /// All namespaces of a plane.
    pub fn plane(plane: impl Into<String>) -> Self {
        Self { plane: plane.into(), namespaces: None }
    }

    /// One namespace of a plane.
    pub fn namespace(plane: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self { plane: plane.into(), namespaces: Some(BTreeSet::from([namespace.into()])) }
    }

    /// A namespace of a plane by its uid as well: what one of the same name had before it is not seen.
    pub fn namespace_of(plane: impl Into<String>, namespace: &str, uid: &str) -> Self {
        Self::namespace(plane, key(namespace, uid))
    }

    /// Some namespaces of a plane; none at all is a scope that sees nothing.
    ///
    /// # Errors
    /// [`Error::Query`] for more than [`MAX_NAMESPACES`].
    pub fn namespaces(
        plane: impl Into<String>,
        namespaces: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let namespaces: BTreeSet<String> = namespaces.into_iter().collect();
        if namespaces.len() > MAX_NAMESPACES {
            return Err(Error::Query(format!(
                "{} namespaces; a query names at most {MAX_NAMESPACES}",
                namespaces.len()
            )));
        }
        Ok(Self { plane: plane.into(), namespaces: Some(namespaces) })
    }

    /// Returns the identifier of the plane.
    pub fn plane_id(&self) -> &str {
        &self.plane
    }

    /// The namespaces, where they are named one by one.
    pub fn named(&self) -> Option<&BTreeSet<String>> {
        self.namespaces.as_ref()
    }

    /// Whether a namespace is in it.
    pub fn contains(&self, plane: &str, namespace: &str) -> bool {
        self.plane == plane && self.namespaces.as_ref().is_none_or(|named| named.contains(namespace))
    }

    /// Appends the condition that confines a statement to the scope.
    pub(crate) fn confine(&self, sql: &mut Sql) {
        sql.push("plane = ").text(&self.plane);
        let Some(named) = &self.namespaces else { return };
        sql.push(" AND namespace IN (");
        if named.is_empty() {
            sql.push("NULL");
        }
        for (i, namespace) in named.iter().enumerate() {
            sql.push(if i > 0 { ", " } else { "" }).text(namespace);
        }
        sql.push(")");
    }
}
