//! Reads, transactions and compaction.

use super::{Access, Scope};
use crate::{
    error::{DENIED, to_status},
    prefix::Prefix,
    proto::{
        CompactionRequest, CompactionResponse, Compare, CompareTarget, CompareWith, KeyValue, RangeRequest,
        RangeResponse, Request, RequestOp, ResponseKind, ResponseOp, TxnRequest, TxnResponse, header, signed,
        unsigned,
    },
};
use bytes::Bytes;
use freehold_apiserver_storage::{self as storage, Change, Commit, Committed, Expect, Key, Range};
use tonic::Status;

fn unsupported(what: &str) -> Status {
    Status::invalid_argument(format!("this server does not support {what}"))
}

/// A key-value pair as a message.
pub(super) fn message(prefix: &Prefix, found: storage::KeyValue) -> KeyValue {
    KeyValue {
        key: prefix.key(&found.key),
        create_revision: signed(found.created),
        mod_revision: signed(found.modified),
        value: found.value,
    }
}

/// Reads a range. The count is exact where nothing was left out, and otherwise one more than what is given: the engine on
/// the other side asks no more of it than that.
pub(super) async fn range(access: Access, ask: RangeRequest) -> Result<RangeResponse, Status> {
    let keys = match access.readable(&ask.key, &ask.range_end) {
        Ok(keys) => keys,
        Err(denied) => access.layer(&ask.key, &ask.range_end).await.ok_or(denied)?,
    };
    let range = Range {
        keys,
        at: (ask.revision > 0).then(|| unsigned(ask.revision)),
        limit: usize::try_from(ask.limit).unwrap_or(0),
        keys_only: ask.keys_only || ask.count_only,
    };
    let found = access.store.range(range).await.map_err(|error| to_status(&error))?;
    let count = found.items.len() + usize::from(found.more);
    let items = if ask.count_only { Vec::new() } else { found.items };
    Ok(RangeResponse {
        header: header(found.revision),
        kvs: items.into_iter().map(|item| message(&access.prefix, item)).collect(),
        more: found.more,
        count: signed(count as u64),
    })
}

pub(super) async fn txn(access: Access, ask: TxnRequest) -> Result<TxnResponse, Status> {
    let expect =
        ask.compare.into_iter().map(|compare| access.expect(compare)).collect::<Result<Vec<_>, _>>()?;
    check_failure_reads(&access, &expect, &ask.failure)?;
    let changes = ask.success.into_iter().map(|op| access.change(op)).collect::<Result<_, _>>()?;
    let committed =
        access.store.commit(Commit { expect, changes }).await.map_err(|error| to_status(&error))?;
    match committed {
        Committed::Done(revision) => {
            Ok(TxnResponse { header: header(revision), succeeded: true, responses: Vec::new() })
        }
        Committed::Refused(found) => {
            let responses = found.into_iter().map(|found| access.read(found)).collect();
            Ok(TxnResponse { header: None, succeeded: false, responses })
        }
    }
}

pub(super) async fn compact(access: Access, ask: CompactionRequest) -> Result<CompactionResponse, Status> {
    if access.scope != Scope::All {
        return Err(Status::permission_denied(DENIED));
    }
    access.store.compact(unsigned(ask.revision)).await.map_err(|error| to_status(&error))?;
    Ok(CompactionResponse { header: None })
}

/// A refusal tells the expected keys in order: so that must be what the client asks to read then.
fn check_failure_reads(access: &Access, expect: &[Expect], failure: &[RequestOp]) -> Result<(), Status> {
    let reads = |op: &RequestOp, expect: &Expect| {
        matches!(&op.request, Some(Request::Range(read))
            if read.range_end.is_empty() && read.key == access.prefix.key(&expect.key))
    };
    let same =
        failure.len() == expect.len() && failure.iter().zip(expect).all(|(op, expect)| reads(op, expect));
    if same {
        Ok(())
    } else {
        Err(unsupported("other operations on failure than reads of what was compared"))
    }
}

impl Access {
    fn key(&self, key: &Bytes) -> Result<Key, Status> {
        self.range(key, &Bytes::new())?;
        self.prefix.strip(key).ok_or_else(|| Status::permission_denied(DENIED))
    }

    fn expect(&self, compare: Compare) -> Result<Expect, Status> {
        let key = self.key(&compare.key)?;
        match compare.with {
            Some(CompareWith::ModRevision(modified))
                if compare.result == 0 && compare.target == i32::from(CompareTarget::Mod) =>
            {
                Ok(Expect { key, modified: unsigned(modified) })
            }
            _ => Err(unsupported("comparisons other than of the last revision for equality")),
        }
    }

    fn change(&self, op: RequestOp) -> Result<Change, Status> {
        match op.request {
            Some(Request::Put(put)) => Ok(Change::Put(self.key(&put.key)?, put.value)),
            Some(Request::DeleteRange(delete)) if delete.range_end.is_empty() => {
                Ok(Change::Delete(self.key(&delete.key)?))
            }
            Some(Request::DeleteRange(delete)) => {
                Ok(Change::DeleteRange(self.range(&delete.key, &delete.range_end)?))
            }
            Some(Request::Range(_)) | None => {
                Err(unsupported("operations on success other than put and delete"))
            }
        }
    }

    fn read(&self, found: Option<storage::KeyValue>) -> ResponseOp {
        let kvs: Vec<_> = found.map(|found| message(&self.prefix, found)).into_iter().collect();
        let count = signed(kvs.len() as u64);
        let response = ResponseKind::Range(RangeResponse { header: None, kvs, more: false, count });
        ResponseOp { response: Some(response) }
    }
}
