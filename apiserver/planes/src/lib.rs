//! Planes: which there are, where a URL points, what each serves and who may do what in it.
//!
//! A [`Context`](context::Context) is what a URL asks in; [`Planes::resolve`] turns it into a [`Target`]: a plane that
//! this process serves, a dedicated pair to pass the request on to, or several planes at once.
//!
//! This crate must not know: HTTP beyond the path, how objects are written.

pub mod context;

use freehold_machinery::PlaneId;
use std::sync::Arc;

/// Where a request goes.
#[derive(Clone)]
pub enum Target {
    /// A plane that this process serves.
    Local(PlaneId),
    /// The organization's view: core objects of it alone, and any type over all of its projects.
    Organization(OrganizationScope),
    /// A user's view: what the user is a member of.
    User(String),
    /// Every plane that is served here (Freehold's own controllers).
    AllPlanes,
    /// A dedicated pair.
    Dedicated(DedicatedTarget),
}

/// An organization that a request is confined to.
#[derive(Clone, Debug)]
pub struct OrganizationScope {
    /// The organization's name.
    pub name: Arc<str>,
    /// Its namespace in the core plane.
    pub namespace: Arc<str>,
}

/// Where a dedicated pair's apiserver is.
#[derive(Clone, Debug)]
pub struct DedicatedTarget {
    /// The plane that it serves.
    pub plane: PlaneId,
    /// `https://IP:PORT`, without a path.
    pub endpoint: Arc<str>,
    /// The DNS name that its certificate is for (`apiserver.project-<uid>.svc`).
    pub server_name: Arc<str>,
}
