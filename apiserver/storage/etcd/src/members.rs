//! What each member of an etcd says of itself, for those who look for what is wrong.

use crate::{
    EtcdOptions,
    client::{Client, Method},
    engine::{Etcd, plain_error},
    proto::{STATUS, StatusRequest, StatusResponse},
};
use freehold_apiserver_storage::{Store as _, StoreError};
use std::time::{Duration, Instant};

/// A member's state, as it tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// Version of the program: `3.6.8`.
    pub version: String,
    /// Bytes of the database.
    pub database: u64,
    /// Bytes that the database may have; 0 where the member does not tell (before 3.6).
    pub quota: u64,
    /// Whether the member knows a leader.
    pub has_leader: bool,
    /// Alarms and other complaints of the member.
    pub errors: Vec<String>,
    /// Time of a read that the members had to agree on.
    pub read: Duration,
}

const TELL: Method = Method { path: STATUS, repeatable: true };

/// Asks each endpoint of the options; gives its URL and what came of it, in their order.
pub async fn members(options: &EtcdOptions) -> Vec<(String, Result<MemberStatus, StoreError>)> {
    let asked = options.endpoints.iter().map(|url| async move {
        let one = EtcdOptions { endpoints: vec![url.clone()], ..options.clone() };
        (url.clone(), member(one).await)
    });
    futures_util::future::join_all(asked).await
}

async fn member(options: EtcdOptions) -> Result<MemberStatus, StoreError> {
    let client = Client::new(&options)?;
    let told: StatusResponse =
        client.call(TELL, StatusRequest {}).await.map_err(|status| plain_error(&status))?;
    let store = Etcd::connect(options).await?;
    let begun = Instant::now();
    store.revision().await?;
    let bytes = |signed: i64| u64::try_from(signed).unwrap_or(0);
    Ok(MemberStatus {
        version: told.version,
        database: bytes(told.db_size),
        quota: bytes(told.db_size_quota),
        has_leader: told.leader != 0,
        errors: told.errors,
        read: begun.elapsed(),
    })
}
