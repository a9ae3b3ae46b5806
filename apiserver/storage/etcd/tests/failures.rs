//! What goes wrong with a real etcd, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use bytes::Bytes;
use common::{Server, events_until, key, put};
use freehold_apiserver_storage::{
    Change, Commit, Committed, Key, KeyRange, Range, Store, StoreError, WatchItem,
};
use freehold_apiserver_storage_etcd::{Etcd, EtcdOptions};
use freehold_pki::{Authority, ClientName};
use futures_util::StreamExt;
use http::uri::PathAndQuery;
use prost::Message;
use std::{net::TcpListener, time::Duration};
use tonic::{Request, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

/// Where nobody listens.
const CLOSED: &str = "http://127.0.0.1:1";

async fn refusal(options: EtcdOptions) -> StoreError {
    match Etcd::connect(options).await {
        Ok(_) => panic!("connected"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn an_etcd_that_is_not_there_or_does_not_answer_is_unavailable() {
    let closed = EtcdOptions { timeout: Duration::from_secs(1), ..EtcdOptions::new([CLOSED]) };
    let error = refusal(closed).await;
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let quick =
        |urls: Vec<String>| EtcdOptions { timeout: Duration::from_millis(200), ..EtcdOptions::new(urls) };
    let error = refusal(quick(vec![format!("http://{}", mute.local_addr().unwrap())])).await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let error = refusal(EtcdOptions::new(["not a url"])).await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let error = refusal(EtcdOptions::new(Vec::<String>::new())).await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_is_passed_over() {
    let (server, _) = Server::start(&[]).await;
    let store = Etcd::connect(EtcdOptions::new([CLOSED.to_owned(), server.url()])).await.unwrap();
    let revision = put(&store, "a", b"x".to_vec()).await.unwrap();
    let mut watch = store.watch(KeyRange::everything(), revision - 1, false).await.unwrap();
    assert_eq!(events_until(&mut watch, revision).await.len(), 1);
}

#[tokio::test]
async fn a_watch_outlives_a_crash_of_etcd_and_misses_nothing() {
    let (mut server, _) = Server::start(&[]).await;
    let store = Etcd::connect(server.options()).await.unwrap();
    let hasty = EtcdOptions { timeout: Duration::from_secs(5), ..server.options() };
    let hasty = Etcd::connect(hasty).await.unwrap();
    let before = store.revision().await.unwrap();
    let mut watch = store.watch(KeyRange::everything(), before, true).await.unwrap();
    let first = put(&store, "a", b"1".to_vec()).await.unwrap();
    assert_eq!(events_until(&mut watch, first).await.len(), 1);
    put(&store, "a", b"2".to_vec()).await.unwrap();
    server.kill();
    assert!(matches!(put(&hasty, "a", b"lost".to_vec()).await, Err(StoreError::Unavailable(_))));
    server.restart();
    let late = server.ready(&server.options()).await;
    for value in ["3", "4"] {
        put(&late, "a", value).await.unwrap();
    }
    let last = put(&store, "a", b"5".to_vec()).await.unwrap();
    let values: Vec<_> =
        events_until(&mut watch, last).await.into_iter().map(|event| event.value.unwrap()).collect();
    assert_eq!(values, ["2", "3", "4", "5"]);
}

#[tokio::test]
async fn an_etcd_without_space_is_full_and_can_be_read() {
    let (_server, store) = Server::start(&["--quota-backend-bytes", "4000000", "--unsafe-no-fsync"]).await;
    let mut written = 0;
    let error = loop {
        match put(&store, &written.to_string(), vec![0x5a; 1_000_000]).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        // etcd looks at its size ten times a second.
        assert!(written < 500, "the quota has no effect");
    };
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    assert!(store.range(Range::all(KeyRange::everything())).await.unwrap().items.len() >= written);
}

#[tokio::test]
async fn a_commit_larger_than_etcd_takes_is_too_large() {
    let (_server, store) = Server::start(&["--max-request-bytes", "100000"]).await;
    for len in [200_000, 2_000_000] {
        let error = put(&store, "a", vec![0; len]).await.unwrap_err();
        assert!(matches!(error, StoreError::TooLarge(_)), "{error}");
    }
}

#[tokio::test]
async fn a_range_of_many_pages_is_read_at_one_revision() {
    let (server, store) = Server::start(&["--unsafe-no-fsync"]).await;
    for nth in 0..10 {
        put(&store, &nth.to_string(), vec![nth; 10]).await.unwrap();
    }
    let mut options = server.options();
    options.page = 3;
    let paged = Etcd::connect(options).await.unwrap();
    let (one, many) = (Range::all(KeyRange::everything()), Range::all(KeyRange::everything()));
    let (one, many) = (store.range(one).await.unwrap(), paged.range(many).await.unwrap());
    assert_eq!((many.items.len(), many.items, many.more), (10, one.items, false));
    assert_eq!(
        paged.usage(KeyRange::everything()).await.unwrap(),
        store.usage(KeyRange::everything()).await.unwrap()
    );
}

/// What a watch sends with its previous values is more than etcd puts into one message.
#[tokio::test]
async fn the_deletion_of_a_large_range_is_one_item_however_many_fragments_it_has() {
    let (_server, store) = Server::start(&["--unsafe-no-fsync"]).await;
    let mut last = 0;
    for batch in 0..20 {
        let value = Bytes::from(vec![batch; 10_000]);
        let puts = (0..100).map(|nth| Change::Put(key(&format!("{batch}-{nth}")), value.clone()));
        let commit = Commit { expect: vec![], changes: puts.collect() };
        let Committed::Done(revision) = store.commit(commit).await.unwrap() else { panic!("refused") };
        last = revision;
    }
    let mut watch = store.watch(KeyRange::everything(), last, true).await.unwrap();
    let all = Commit { expect: vec![], changes: vec![Change::DeleteRange(KeyRange::everything())] };
    let Committed::Done(revision) = store.commit(all).await.unwrap() else { panic!("refused") };
    loop {
        match watch.next().await.unwrap().unwrap() {
            WatchItem::Progress(passed) => assert!(passed < revision),
            WatchItem::Events(events) => {
                assert_eq!(events.len(), 2000);
                assert!(events.iter().all(|event| event.previous.as_ref().unwrap().value.len() == 10_000));
                return;
            }
        }
    }
}

#[tokio::test]
async fn tls_needs_the_right_authority_and_a_client_certificate() {
    let (authority, stranger) =
        (Authority::generate("etcd").unwrap(), Authority::generate("stranger").unwrap());
    let day = Duration::from_secs(86_400);
    let serving = authority.issue_server(&["127.0.0.1"], day).unwrap();
    let name = ClientName { user: "freehold", groups: &[], plane: None };
    let client = authority.issue_client(&name, day).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files =
        [file("ca", authority.cert_pem()), file("cert", &serving.cert_pem), file("key", &serving.key_pem)];
    let [ca, cert, key_file] = &files;
    let args = ["--client-cert-auth", "--trusted-ca-file", ca, "--cert-file", cert, "--key-file", key_file];
    let server = Server::spawn("https", &args);
    let mut options = server.options();
    options.ca = Some(authority.cert_pem().into());
    options.identity = Some((client.cert_pem.clone().into(), client.key_pem.clone().into()));
    let store = server.ready(&options).await;
    put(&store, "a", b"x".to_vec()).await.unwrap();

    let mut anonymous = options.clone();
    anonymous.identity = None;
    let mut misled = options.clone();
    misled.ca = Some(stranger.cert_pem().into());
    for (refused, words) in [(anonymous, ""), (misled, "UnknownIssuer")] {
        let error = refusal(EtcdOptions { timeout: Duration::from_secs(5), ..refused }).await;
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    second: String,
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(string, tag = "1")]
    role: String,
    #[prost(message, optional, tag = "2")]
    permission: Option<Permission>,
}

#[derive(Clone, PartialEq, Message)]
struct Permission {
    /// 2: read and write.
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    end: Vec<u8>,
}

async fn auth<M: Message + 'static>(server: &Server, method: &str, message: M) {
    let channel = Endpoint::from_shared(server.url()).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::try_from(format!("/etcdserverpb.Auth/{method}")).unwrap();
    grpc.unary::<M, (), _>(Request::new(message), path, ProstCodec::default()).await.unwrap();
}

/// Turns authorization on, with a user that may only reach one plane.
async fn require_users(server: &Server) {
    let named = |name: &str, second: &str| Named { name: name.into(), second: second.into() };
    for (user, password) in [("root", "r"), ("dedicated", "d")] {
        auth(server, "UserAdd", named(user, password)).await;
        auth(server, "RoleAdd", named(user, "")).await;
        auth(server, "UserGrantRole", named(user, user)).await;
    }
    let permission =
        Permission { kind: 2, key: b"/freehold/planes/core/".into(), end: b"/freehold/planes/core0".into() };
    let grant = Grant { role: "dedicated".into(), permission: Some(permission) };
    auth(server, "RoleGrantPermission", grant).await;
    auth(server, "AuthEnable", Named::default()).await;
}

#[tokio::test]
async fn a_user_is_kept_to_its_role_and_gets_a_new_token_when_etcd_forgot_the_old_one() {
    let (mut server, _) = Server::start(&[]).await;
    require_users(&server).await;
    let home = KeyRange::plane(&freehold_machinery::PlaneId::core());
    let options = |user: &str, password: &str| {
        let mut options = server.options();
        options.user = Some((user.into(), password.into()));
        options.home = home.clone();
        options
    };
    let (wrong, right) = (options("dedicated", "wrong"), options("dedicated", "d"));
    for (refused, words) in [(server.options(), "user name is empty"), (wrong, "invalid user ID or password")]
    {
        let error = refusal(refused).await;
        assert!(matches!(error, StoreError::Denied(_)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let store = Etcd::connect(right.clone()).await.unwrap();
    let everything = Range::all(KeyRange::everything());
    assert!(matches!(store.range(everything).await, Err(StoreError::Denied(_))));
    assert!(matches!(put(&store, "a", b"x".to_vec()).await, Err(StoreError::Denied(_))));
    let revision = store.revision().await.unwrap();
    assert!(matches!(store.watch(KeyRange::everything(), revision, false).await, Err(StoreError::Denied(_))));

    let mut watch = store.watch(home.clone(), revision, false).await.unwrap();
    // Tokens are kept in memory.
    server.kill();
    server.restart();
    server.ready(&right).await;
    let object = Key::from_store(Bytes::from_static(b"planes/core/core/secrets/a"));
    let changes = vec![Change::Put(object, Bytes::from_static(b"x"))];
    let committed = store.commit(Commit { expect: vec![], changes }).await.unwrap();
    let Committed::Done(last) = committed else { panic!("nothing was expected") };
    assert_eq!(events_until(&mut watch, last).await.len(), 1);
    // Whoever finds the token gone while another gets a new one waits for that.
    server.kill();
    server.restart();
    server.ready(&right).await;
    let reads = (0..50).map(|_| store.range(Range::all(home.clone())));
    for found in futures_util::future::join_all(reads).await {
        assert_eq!(found.unwrap().items.len(), 1);
    }
}

#[tokio::test]
async fn an_etcd_without_users_asks_for_no_password() {
    let (server, _) = Server::start(&[]).await;
    let options = EtcdOptions { user: Some(("someone".into(), "secret".into())), ..server.options() };
    let store = Etcd::connect(options).await.unwrap();
    put(&store, "a", b"x".to_vec()).await.unwrap();
}
