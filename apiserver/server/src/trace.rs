//! What is learned about a request on its way.

use crate::{audit::Recording, fair::Flow, info::RequestInfo};

/// What is learned about a request on its way, for metrics and logs.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) info: Option<RequestInfo>,
    /// Whether the resource is one that is served.
    pub(crate) known: bool,
    pub(crate) recording: Recording,
    /// The uids of its flow schema and priority level.
    pub(crate) flow: Flow,
}
