//! Groups of which another part of the process answers the reads: no objects, but what is kept beside them, in a plane.
//!
//! A request comes here authenticated, authorized as any for a resource of its group, and within the plane's share of the
//! server. The answer names no plane: whoever answers is told which.

use crate::config::{PlaneRead, ReadApi};
use crate::{
    call::Call,
    info::ResourcePath,
    respond::{self, Reply},
};
use freehold_apiserver_planes::Target;
use freehold_machinery::{PlaneId, Status, meta};

/// Longest query.
const QUERY: usize = 8 << 10;

/// The group that a request is about, if it is one of these in a plane.
pub(crate) fn find<'a>(call: &'a Call<'_>) -> Option<(&'a ReadApi, PlaneId)> {
    let about = call.info.resource.as_ref()?;
    let Target::Local(plane) = &call.target else { return None };
    let found =
        call.edge.reads.iter().find(|api| (api.group, api.version) == (&*about.group, &*about.version));
    Some((found?, plane.clone()))
}

/// Answers it.
pub(crate) async fn serve(call: &Call<'_>, api: &ReadApi, plane: PlaneId) -> Result<Reply, Status> {
    let Some(about) = &call.info.resource else { return Err(Status::no_such_resource()) };
    if about.deeper || about.nameless {
        return Err(Status::no_such_resource());
    }
    if call.parts.method != http::Method::GET || !matches!(call.info.verb.as_str(), "get" | "list") {
        return Err(Status::no_such_method());
    }
    let query = call.parts.uri.query().unwrap_or_default();
    if query.len() > QUERY {
        return Err(Status::bad_request(format!("the query is longer than {QUERY} bytes")));
    }
    let read = PlaneRead {
        plane,
        namespace_uid: uid_of(call, about).await?,
        namespace: about.namespace.clone(),
        resource: about.resource.clone(),
        name: about.name.clone().filter(|_| about.named),
        subresource: about.subresource.clone(),
        query: query.to_owned(),
    };
    Ok(respond::json(200, (api.handler)(read).await?.into()))
}

/// The uid of the namespace that a request is about; 404 where there is none.
async fn uid_of(call: &Call<'_>, about: &ResourcePath) -> Result<String, Status> {
    let Some(name) = &about.namespace else { return Ok(String::new()) };
    let types = call.types().await?;
    let ty = types.find("", "v1", "namespaces").ok_or_else(Status::no_such_resource)?;
    let path = ResourcePath { name: Some(name.clone()), named: true, ..ResourcePath::default() };
    let found = call.edge.backend.get(&call.target, call.operation(&types, ty, &path), "").await?.value();
    Ok(meta::uid(&found).to_owned())
}
