//! One watch for each stream: a request that creates it, then requests for progress.

use super::{Access, kv};
use crate::{
    error::{DENIED, to_status},
    proto::{
        self, EventType, WatchAsk, WatchCreateRequest, WatchRequest, WatchResponse, header, signed, unsigned,
    },
};
use freehold_apiserver_storage::{Event, StoreError, WatchItem, WatchStream};
use futures_util::{
    StreamExt,
    future::{Ready, ready},
    stream::{self, BoxStream},
};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Request, Response, Status, Streaming, server::StreamingService};

/// The id that etcd gives to what concerns no watch, or one that was not made.
const NO_WATCH: i64 = -1;

pub(super) struct Serve(pub(super) Access);

impl StreamingService<WatchRequest> for Serve {
    type Response = WatchResponse;
    type ResponseStream = BoxStream<'static, Result<WatchResponse, Status>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<WatchRequest>>) -> Self::Future {
        let serving = Serving::Waiting(self.0.clone(), request.into_inner());
        let responses = stream::unfold(serving, |serving| async { serving.step().await });
        ready(Ok(Response::new(responses.boxed())))
    }
}

/// How far a stream is.
enum Serving {
    /// Nothing was asked for yet.
    Waiting(Access, Streaming<WatchRequest>),
    Watching(Watched, Streaming<WatchRequest>, WatchStream),
    /// Told that it is created; what comes next is the reason why it is not.
    Failed(StoreError),
    Over,
}

/// A watch that goes on, and the place that it takes.
struct Watched {
    access: Access,
    _place: Option<OwnedSemaphorePermit>,
}

type Step = Option<(Result<WatchResponse, Status>, Serving)>;

impl Serving {
    async fn step(self) -> Step {
        match self {
            Self::Waiting(access, requests) => create(access, requests).await,
            Self::Watching(watched, requests, watch) => serve(watched, requests, watch).await,
            Self::Failed(error) => Some((ended(&error), Self::Over)),
            Self::Over => None,
        }
    }
}

async fn create(access: Access, mut requests: Streaming<WatchRequest>) -> Step {
    let ask = match requests.message().await {
        Ok(Some(WatchRequest { ask: Some(WatchAsk::Create(ask)) })) => ask,
        Ok(Some(_)) => return Some((Err(Status::invalid_argument("nothing is watched yet")), Serving::Over)),
        Ok(None) => return None,
        Err(status) => return Some((Err(status), Serving::Over)),
    };
    let place = access.client.as_ref().map(|(client, _)| client.watch()).transpose();
    let begun = match place {
        Ok(place) => begin(&access, &ask).await.map(|begun| (begun, place)),
        Err(error) => Err(error),
    };
    match begun {
        Ok(((created, watch), _place)) => {
            Some((Ok(created), Serving::Watching(Watched { access, _place }, requests, watch)))
        }
        Err(error @ StoreError::Compacted { .. }) => {
            let created = WatchResponse { created: true, ..WatchResponse::default() };
            Some((Ok(created), Serving::Failed(error)))
        }
        Err(error) => {
            let cancel_reason = to_status(&error).message().to_owned();
            let refused = WatchResponse {
                watch_id: NO_WATCH,
                created: true,
                canceled: true,
                cancel_reason,
                ..WatchResponse::default()
            };
            Some((Ok(refused), Serving::Over))
        }
    }
}

async fn begin(
    access: &Access,
    ask: &WatchCreateRequest,
) -> Result<(WatchResponse, WatchStream), StoreError> {
    let keys = access.range(&ask.key, &ask.range_end).map_err(|_| StoreError::Denied(DENIED.to_owned()))?;
    let revision = access.store.revision().await?;
    let after = unsigned(ask.start_revision).checked_sub(1).unwrap_or(revision);
    let watch = access.store.watch(keys, after, ask.prev_kv).await?;
    Ok((WatchResponse { header: header(revision), created: true, ..WatchResponse::default() }, watch))
}

async fn serve(watched: Watched, mut requests: Streaming<WatchRequest>, mut watch: WatchStream) -> Step {
    let access = &watched.access;
    loop {
        tokio::select! {
            item = watch.next() => return match item {
                Some(Ok(item)) => {
                    let response = response(access, item);
                    Some((Ok(response), Serving::Watching(watched, requests, watch)))
                }
                Some(Err(error)) => Some((ended(&error), Serving::Over)),
                None => None,
            },
            request = requests.message() => match request {
                Ok(Some(WatchRequest { ask: Some(WatchAsk::Progress(_)) })) => {
                    if let Err(error) = access.store.request_progress().await {
                        return Some((Err(to_status(&error)), Serving::Over));
                    }
                }
                Ok(Some(WatchRequest { ask: Some(WatchAsk::Create(_)) })) => {
                    let status = Status::invalid_argument("this server has one watch for each stream");
                    return Some((Err(status), Serving::Over));
                }
                // Canceled, closed or broken: nobody listens any more.
                _ => return None,
            },
        }
    }
}

fn response(access: &Access, item: WatchItem) -> WatchResponse {
    match item {
        WatchItem::Progress(revision) => {
            WatchResponse { header: header(revision), watch_id: NO_WATCH, ..WatchResponse::default() }
        }
        WatchItem::Events(events) => WatchResponse {
            header: header(events.last().map_or(0, |last| last.revision)),
            events: events.into_iter().map(|event| message(access, event)).collect(),
            ..WatchResponse::default()
        },
    }
}

fn message(access: &Access, event: Event) -> proto::Event {
    let kind = if event.value.is_some() { EventType::Put } else { EventType::Delete };
    let kv = proto::KeyValue {
        key: access.prefix.key(&event.key),
        create_revision: signed(event.created),
        mod_revision: signed(event.revision),
        value: event.value.unwrap_or_default(),
    };
    let prev_kv = event.previous.map(|previous| kv::message(&access.prefix, previous));
    proto::Event { kind: kind.into(), kv: Some(kv), prev_kv }
}

/// The last response of a watch that failed.
fn ended(error: &StoreError) -> Result<WatchResponse, Status> {
    match error {
        StoreError::Compacted { oldest, .. } => Ok(WatchResponse {
            header: header(*oldest),
            canceled: true,
            compact_revision: signed(*oldest),
            ..WatchResponse::default()
        }),
        other => Err(to_status(other)),
    }
}
