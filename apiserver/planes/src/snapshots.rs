//! Snapshots that are being made.

use crate::stored::LayerRecord;
use freehold_apiserver_storage::LayerId;
use freehold_machinery::Result;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use std::collections::HashMap;

pub(crate) type Running = Shared<BoxFuture<'static, Result<LayerRecord>>>;

/// Snapshots that are being made. A client that gives up and asks again waits for the same one.
#[derive(Default)]
pub(crate) struct Snapshots(pub(crate) Mutex<HashMap<LayerId, Running>>);
