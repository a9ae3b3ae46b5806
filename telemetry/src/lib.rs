//! Spans of a request on its way through servers, store, webhooks and pairs, as OpenTelemetry has them.
//!
//! Off, which is the default, a request costs one look at a flag. On, the server decides for each request whether it is traced:
//! a client's own word counts only where it comes from a peer that is trusted, such as the core server in front of a pair.
//!
//! Guarantees: what was not exported in time is dropped and counted, never waited for; names and values have limits. This
//! crate must not know where spans go: whoever installs it takes them from a queue.

mod context;
mod otlp;
mod span;

pub use context::{Context, TRACEPARENT};
pub use otlp::{Resource, encode};
pub use span::{Finished, Kind, Options, Span, child, inject, install, is_enabled, request, within};
