//! Ctrl-C and SIGTERM, and the one signal that must not end a server.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Number of the signal that a write beyond the limit of file sizes brings (`ulimit -f`). It ends a process that does not
/// listen to it; to one that does, the write fails, as on a full disk.
const SIGXFSZ: i32 = 25;

/// A token that the first Ctrl-C or SIGTERM cancels. The second ends the process at once.
pub(crate) fn on_signal() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut too_large = signal(SignalKind::from_raw(SIGXFSZ))?;
    tokio::spawn(async move { while too_large.recv().await.is_some() {} });
    let stop = token.clone();
    tokio::spawn(async move {
        for round in 0..2 {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if round == 1 {
                std::process::exit(130);
            }
            stop.cancel();
        }
    });
    Ok(token)
}
