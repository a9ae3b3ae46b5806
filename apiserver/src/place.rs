//! How webhooks are told where they are asked.

use freehold_api::keys::{ORGANIZATION, PLANE_ANNOTATION, PROJECT};
use freehold_machinery::PlaneId;
use std::sync::Arc;

/// Extra keys of a user, and what a webhook is told in them of where it is asked; empty for nothing.
pub(crate) type PlaceKeys = [(&'static str, String); 3];

/// Where a webhook is told that it is asked.
pub(crate) fn place(plane: &PlaneId, project: Option<Arc<str>>, organization: Option<Arc<str>>) -> PlaceKeys {
    let text = |name: Option<Arc<str>>| name.as_deref().unwrap_or_default().to_owned();
    [(PLANE_ANNOTATION, plane.to_string()), (PROJECT, text(project)), (ORGANIZATION, text(organization))]
}
