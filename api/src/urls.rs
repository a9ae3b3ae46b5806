//! The paths under which contexts are served. Each is a prefix to `/api` and `/apis`, without a `/` at its end.

use freehold_machinery::PlaneId;

/// A project's plane, by the project's name, for everyone who may use it.
pub fn project_path(project: &str) -> String {
    format!("/projects/{project}")
}

/// An organization's view of the core plane, and of all its projects.
pub fn organization_path(organization: &str) -> String {
    format!("/organizations/{organization}")
}

/// Any plane by its identifier: for platform admins and Freehold's own controllers.
pub fn plane_path(plane: &PlaneId) -> String {
    format!("/planes/{plane}")
}

/// Lists and watches over every plane that a server serves.
pub fn all_planes_path() -> &'static str {
    "/planes/-"
}

/// The address of a project's plane, below a server's external URL.
pub fn project_url(external_url: &str, project: &str) -> String {
    format!("{}{}", external_url.trim_end_matches('/'), project_path(project))
}

/// The address of an organization's view, below a server's external URL.
pub fn organization_url(external_url: &str, organization: &str) -> String {
    format!("{}{}", external_url.trim_end_matches('/'), organization_path(organization))
}
