//! `/openapi/v2` and `/openapi/v3`.
use crate::{call::Call, respond::Reply};
use freehold_machinery::Status;
pub(crate) async fn serve(_call: &Call<'_>, _segments: &[&str]) -> Result<Reply, Status> {
    Err(Status::no_such_resource())
}
