//! Accepting connections, within a limit.

use std::{sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

/// Pause after a connection that could not be accepted, for instance for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves each connection to `listener` in a task of its own until `stop`, which ends those tasks too. At most `most` are
/// served at once; one more is closed.
pub async fn accept<F>(
    listener: &TcpListener,
    most: usize,
    stop: CancellationToken,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(most));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "failed to accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (serving, stop) = (serve(stream), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = serving => {}
            }
            drop(place);
        });
    }
}
