//! The engine: the port's operations as etcd's.

use crate::{
    client::{Client, EtcdOptions, Method, no_answer},
    error::{Meaning, in_words, meaning, store_error},
    prefix::Prefix,
    proto::{
        self, COMPACT, CompactionRequest, CompactionResponse, Compare, CompareTarget, CompareWith,
        DeleteRangeRequest, PutRequest, RANGE, RangeRequest, RangeResponse, Request, RequestOp, ResponseKind,
        TXN, TxnRequest, TxnResponse, signed, unsigned,
    },
    single_flight::SingleFlight,
    watch,
};
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, KeyRange, KeyValue, Range, RangeResult, Revision, Store, StoreError,
    Usage, Watched,
};
use std::sync::Arc;
use tokio::{sync::watch::Sender, time::timeout};
use tonic::Status;

const READ: Method = Method { path: RANGE, repeatable: true };
const WRITE: Method = Method { path: TXN, repeatable: false };
const FORGET: Method = Method { path: COMPACT, repeatable: false };

/// A store on an etcd cluster. See the crate's documentation.
pub struct Etcd {
    shared: Arc<Shared>,
}

/// What the engine shares with its watches.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) prefix: Prefix,
    /// Counted up when watches shall yield their progress.
    pub(crate) progress: Sender<u64>,
    revisions: SingleFlight,
    home: KeyRange,
    page: usize,
}

impl Etcd {
    /// Connects to etcd, and reads the revision once, so that a wrong address or missing rights show at once.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Denied`] from that read.
    pub async fn connect(options: EtcdOptions) -> Result<Arc<Self>, StoreError> {
        let shared = Shared {
            client: Client::new(&options)?,
            prefix: Prefix::new(&options.prefix),
            progress: Sender::new(0),
            revisions: SingleFlight::default(),
            home: options.home,
            page: options.page.max(1),
        };
        shared.revision().await?;
        Ok(Arc::new(Self { shared: Arc::new(shared) }))
    }
}

impl Shared {
    pub(crate) async fn revision(&self) -> Result<Revision, StoreError> {
        // A question of others that is on its way may take all the time there is.
        let asked = timeout(self.client.timeout(), self.revisions.ask(|| self.ask_revision()));
        asked.await.unwrap_or_else(|_| Err(plain_error(&no_answer())))
    }

    async fn ask_revision(&self) -> Result<Revision, StoreError> {
        let (key, _) = self.prefix.range(&self.home);
        let ask = RangeRequest { key, limit: 1, count_only: true, ..RangeRequest::default() };
        let answer: RangeResponse =
            self.client.call(READ, ask).await.map_err(|status| plain_error(&status))?;
        Ok(proto::revision(&answer.header))
    }

    /// The port's error. Asks for the current revision if the one that was asked for is beyond it.
    pub(crate) async fn error(&self, status: Status, asked: Revision) -> StoreError {
        let meaning = meaning(status.code(), status.message());
        let current = match meaning {
            Meaning::Future => self.revision().await.unwrap_or(0),
            _ => 0,
        };
        store_error(meaning, status.message(), asked, current)
    }

    pub(crate) fn key_value(&self, found: proto::KeyValue) -> Result<KeyValue, StoreError> {
        let key = self
            .prefix
            .strip(&found.key)
            .ok_or_else(|| StoreError::Corrupt("etcd gave a foreign key".into()))?;
        let (created, modified) = (unsigned(found.create_revision), unsigned(found.mod_revision));
        Ok(KeyValue { key, value: found.value, created, modified })
    }

    async fn page(&self, range: &Range, limit: usize) -> Result<RangeResult, StoreError> {
        let (key, range_end) = self.prefix.range(&range.keys);
        let ask = RangeRequest {
            key,
            range_end,
            limit: signed(limit as u64),
            revision: range.at.map_or(0, signed),
            keys_only: range.keys_only,
            count_only: false,
        };
        let answer: RangeResponse = match self.client.call(READ, ask).await {
            Ok(answer) => answer,
            Err(status) => return Err(self.error(status, range.at.unwrap_or(0)).await),
        };
        Ok(RangeResult {
            revision: proto::revision(&answer.header),
            more: answer.more,
            items: answer.kvs.into_iter().map(|found| self.key_value(found)).collect::<Result<_, _>>()?,
        })
    }

    /// Reads a range page by page, all at one revision; hands each page to `take`.
    async fn pages(&self, mut range: Range, mut take: impl FnMut(RangeResult)) -> Result<(), StoreError> {
        loop {
            let page = self.page(&range, self.page).await?;
            range.at = range.at.or(Some(page.revision));
            let rest = page.rest(&range.keys);
            take(page);
            match rest {
                Some(rest) => range.keys = rest,
                None => return Ok(()),
            }
        }
    }

    fn request(&self, change: Change) -> RequestOp {
        let request = match change {
            Change::Put(key, value) => Request::Put(PutRequest { key: self.prefix.key(&key), value }),
            Change::Delete(key) => Request::DeleteRange(DeleteRangeRequest {
                key: self.prefix.key(&key),
                range_end: Bytes::new(),
            }),
            Change::DeleteRange(range) => {
                let (key, range_end) = self.prefix.range(&range);
                Request::DeleteRange(DeleteRangeRequest { key, range_end })
            }
        };
        RequestOp { request: Some(request) }
    }

    fn compare(&self, expect: &Expect) -> Compare {
        Compare {
            result: 0,
            target: CompareTarget::Mod.into(),
            key: self.prefix.key(&expect.key),
            with: Some(CompareWith::ModRevision(signed(expect.modified))),
        }
    }

    fn read_expected(&self, expect: &Expect) -> RequestOp {
        let ask = RangeRequest { key: self.prefix.key(&expect.key), ..RangeRequest::default() };
        RequestOp { request: Some(Request::Range(ask)) }
    }
}

#[async_trait]
impl Store for Etcd {
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError> {
        if range.at == Some(0) {
            // etcd takes 0 for "latest".
            return Err(StoreError::Compacted { asked: 0, oldest: 1 });
        }
        if range.limit > 0 {
            return self.shared.page(&range, range.limit).await;
        }
        let mut all: Option<RangeResult> = None;
        let take = |page: RangeResult| match &mut all {
            Some(all) => all.items.extend(page.items),
            None => all = Some(page),
        };
        self.shared.pages(range, take).await?;
        let mut all = all.ok_or_else(|| StoreError::Unavailable("etcd gave no page".into()))?;
        all.more = false;
        Ok(all)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        commit.validate()?;
        let shared = &self.shared;
        let ask = TxnRequest {
            compare: commit.expect.iter().map(|expect| shared.compare(expect)).collect(),
            failure: commit.expect.iter().map(|expect| shared.read_expected(expect)).collect(),
            success: commit.changes.into_iter().map(|change| shared.request(change)).collect(),
        };
        let answer: TxnResponse =
            shared.client.call(WRITE, ask).await.map_err(|status| plain_error(&status))?;
        if answer.succeeded {
            return Ok(Committed::Done(proto::revision(&answer.header)));
        }
        let found = answer.responses.into_iter().map(|response| match response.response {
            Some(ResponseKind::Range(mut range)) => {
                range.kvs.pop().map(|found| shared.key_value(found)).transpose()
            }
            None => Err(StoreError::Corrupt("etcd answered a read with something else".into())),
        });
        Ok(Committed::Refused(found.collect::<Result<_, _>>()?))
    }

    async fn watch(&self, keys: KeyRange, after: Revision, previous: bool) -> Watched {
        watch::watch(self.shared.clone(), keys, after, previous).await
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.shared.progress.send_modify(|asked| *asked += 1);
        Ok(())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.shared.revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let ask = CompactionRequest { revision: signed(revision) };
        match self.shared.client.call::<_, CompactionResponse>(FORGET, ask).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.shared.error(status, revision).await),
        }
    }

    async fn usage(&self, keys: KeyRange) -> Result<Usage, StoreError> {
        let mut usage = Usage::default();
        let take = |page: RangeResult| {
            usage.keys += page.items.len() as u64;
            let bytes = page.items.iter().map(|item| item.key.as_bytes().len() + item.value.len());
            usage.bytes += bytes.sum::<usize>() as u64;
        };
        self.shared.pages(Range::all(keys), take).await?;
        Ok(usage)
    }
}

/// The port's error for a call that asked for no particular revision.
pub(crate) fn plain_error(status: &Status) -> StoreError {
    store_error(meaning(status.code(), status.message()), &in_words(status), 0, 0)
}
