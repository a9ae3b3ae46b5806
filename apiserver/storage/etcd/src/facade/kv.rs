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
use freehold_apiserver_storage::{
    self as storage, Change, Commit, Committed, Expect, Key, Range, RangeResult,
};
use tonic::Status;

/// Most keys that a confined client is given at a time.
const MOST_KEYS: usize = 5_000;
/// From how many bytes of values on it gets no more at a time.
const MOST_BYTES: usize = 8 << 20;
/// How many values are read at a time for it, each of which may have 2 MiB.
const STEP: usize = 32;

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
    let found = access.read(range).await?;
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
    let committed = access.commit(Commit { expect, changes }).await?;
    match committed {
        Committed::Done(revision) => {
            Ok(TxnResponse { header: header(revision), succeeded: true, responses: Vec::new() })
        }
        Committed::Refused(found) => {
            let responses = found.into_iter().map(|found| access.found(found)).collect();
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
    /// Reads a range. A confined client gets no more at a time than fits into a bounded piece of memory: it is told that
    /// there is more, and asks on.
    async fn read(&self, range: Range) -> Result<RangeResult, Status> {
        let Some((client, _)) = &self.client else {
            return self.store.range(range).await.map_err(|error| to_status(&error));
        };
        let limit = match range.limit {
            0 => MOST_KEYS,
            limit => limit.min(MOST_KEYS),
        };
        let step = if range.keys_only { MOST_KEYS } else { STEP };
        let _room = client.values(if range.keys.is_one() { 1 } else { STEP }).await?;
        let mut all: Option<RangeResult> = None;
        let mut next = range.clone();
        loop {
            let items = all.as_ref().map_or(0, |all| all.items.len());
            next.limit = step.min(limit - items);
            let page = self.store.range(next.clone()).await.map_err(|error| to_status(&error))?;
            next.at = Some(next.at.unwrap_or(page.revision));
            let all = match &mut all {
                None => all.insert(page),
                Some(all) => {
                    all.more = page.more;
                    all.items.extend(page.items);
                    all
                }
            };
            let bytes: usize = all.items.iter().map(|item| item.value.len()).sum();
            match all.rest(&range.keys).filter(|_| all.items.len() < limit && bytes < MOST_BYTES) {
                Some(rest) => next.keys = rest,
                None => break,
            }
        }
        all.ok_or_else(|| Status::internal("a range gave no page"))
    }

    /// Commits, within the bounds of a confined client.
    async fn commit(&self, commit: Commit) -> Result<Committed, Status> {
        let mut _room = None;
        if let (Some((client, bounds)), Scope::Plane(plane)) = (&self.client, &self.scope) {
            let admitted = commit.validate().and_then(|()| client.admit(&commit, bounds, &self.store, plane));
            admitted.map_err(|error| to_status(&error))?;
            _room = Some(client.values(commit.expect.len() + commit.changes.len()).await?);
        }
        self.store.commit(commit).await.map_err(|error| to_status(&error))
    }

    /// A key that the client may compare.
    fn key(&self, key: &Bytes) -> Result<Key, Status> {
        self.range(key, &Bytes::new())?;
        self.prefix.strip(key).ok_or_else(|| Status::permission_denied(DENIED))
    }

    /// A key that the client may change.
    fn written(&self, key: &Bytes) -> Result<Key, Status> {
        let key = self.key(key)?;
        if self.scope.allows_writing(&key) { Ok(key) } else { Err(Status::permission_denied(DENIED)) }
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
            Some(Request::Put(put)) => {
                let key = self.written(&put.key)?;
                if self.client.is_some() {
                    let wrong = |why| Status::permission_denied(format!("{DENIED}: {why}"));
                    self.scope.check(self.check, &key, &put.value).map_err(wrong)?;
                }
                Ok(Change::Put(key, put.value))
            }
            Some(Request::DeleteRange(delete)) if delete.range_end.is_empty() => {
                Ok(Change::Delete(self.written(&delete.key)?))
            }
            // A range of a plane's keys has its records in it, or can't be told from one that has.
            Some(Request::DeleteRange(delete)) if self.scope == Scope::All => {
                Ok(Change::DeleteRange(self.range(&delete.key, &delete.range_end)?))
            }
            Some(Request::DeleteRange(_)) => Err(Status::permission_denied(DENIED)),
            Some(Request::Range(_)) | None => {
                Err(unsupported("operations on success other than put and delete"))
            }
        }
    }

    fn found(&self, found: Option<storage::KeyValue>) -> ResponseOp {
        let kvs: Vec<_> = found.map(|found| message(&self.prefix, found)).into_iter().collect();
        let count = signed(kvs.len() as u64);
        let response = ResponseKind::Range(RangeResponse { header: None, kvs, more: false, count });
        ResponseOp { response: Some(response) }
    }
}
