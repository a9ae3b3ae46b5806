//! A process that a client talks to: one that is started for it (`exec`), or the container's own (`attach`).

use super::{Query, Refusal};
use crate::process::{Attached, Ends, Exit, Process};
use crate::running::{RunningContainer, Stream};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{broadcast::error::RecvError, mpsc};

/// Bytes that are read from a process at once.
const READ_AT_ONCE: usize = 32 << 10;
/// How long output is read after the end of a process: others may have its pipes.
const DRAIN: Duration = Duration::from_secs(1);

/// Which of the client's streams is meant, by its number in a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Channel {
    Input = 0,
    Output = 1,
    Errors = 2,
    /// How it ended.
    Status = 3,
    Size = 4,
}

/// The streams that a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) input: bool,
    pub(crate) output: bool,
    pub(crate) errors: bool,
    pub(crate) terminal: bool,
}

impl Wanted {
    pub(crate) fn of(query: &Query) -> Self {
        let terminal = query.has(["tty", "tty"]);
        Self {
            input: query.has(["input", "stdin"]),
            output: query.has(["output", "stdout"]),
            // A terminal mixes both.
            errors: query.has(["error", "stderr"]) && !terminal,
            terminal,
        }
    }

    /// The channels that a client of SPDY opens.
    pub(crate) fn channels(self) -> Vec<Channel> {
        let rows = [
            (true, Channel::Status),
            (self.input, Channel::Input),
            (self.output, Channel::Output),
            (self.errors, Channel::Errors),
            (self.terminal, Channel::Size),
        ];
        rows.into_iter().filter(|(wanted, _)| *wanted).map(|(_, channel)| channel).collect()
    }
}

/// The client's side of a process.
pub(crate) struct Client {
    /// What it types; ends where it types no more.
    pub(crate) input: mpsc::Receiver<Bytes>,
    /// Columns and rows of its window.
    pub(crate) sizes: mpsc::Receiver<(u16, u16)>,
    /// What it is shown. Closed when it has left.
    pub(crate) output: mpsc::Sender<(Channel, Bytes)>,
}

/// What a client talks to.
pub(crate) struct Remote {
    container: Arc<RunningContainer>,
    /// What is started; nothing to attach to the container itself.
    command: Option<Vec<String>>,
    pub(crate) wanted: Wanted,
}

impl Remote {
    /// # Errors
    /// No stream is wanted, or there is no command.
    pub(crate) fn new(
        container: Arc<RunningContainer>,
        command: Option<Vec<String>>,
        wanted: Wanted,
    ) -> Result<Self, Refusal> {
        let bad = |why: &str| Err((StatusCode::BAD_REQUEST, why.to_owned()));
        if !(wanted.input || wanted.output || wanted.errors) {
            return bad("you must specify at least 1 of stdin, stdout, stderr");
        }
        if command.as_ref().is_some_and(Vec::is_empty) {
            return bad("you must specify at least 1 command");
        }
        Ok(Self { container, command, wanted })
    }

    /// Serves the client until the process ends or the client leaves.
    pub(crate) async fn run(self, client: Client) {
        let output = client.output.clone();
        let status = match &self.command {
            Some(command) => self.exec(command, client).await,
            None => self.attach(client).await,
        };
        // The client may have left.
        let _ = output.send((Channel::Status, Bytes::from(status.to_string()))).await;
    }

    async fn exec(&self, words: &[String], client: Client) -> Value {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let target = &self.container.target;
        let home = target.home.join("exec").join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
        let mut command = target.command(words);
        let attached = match self.wanted {
            Wanted { terminal: true, .. } => Attached::Terminal,
            Wanted { input: true, .. } => Attached::Pipes,
            _ => Attached::Output,
        };
        if self.wanted.terminal {
            command.variables.entry("TERM".into()).or_insert_with(|| "xterm".into());
        }
        let started = std::fs::create_dir_all(&home).and_then(|()| Process::start(&command, &home, attached));
        let status = match started {
            Ok((process, ends)) => self.converse(process, ends, client).await,
            Err(error) => failed_to_start(&command.program, &error),
        };
        // What can't be removed now goes with the Pod.
        let _ = std::fs::remove_dir_all(&home);
        status
    }

    async fn converse(&self, mut process: Process, ends: Ends, mut client: Client) -> Value {
        let shown = |channel, wanted: bool| (channel, client.output.clone(), wanted);
        let output = show(ends.output, shown(Channel::Output, self.wanted.output));
        let errors = show(ends.errors, shown(Channel::Errors, self.wanted.errors));
        let mut pumps = tokio::spawn(async move { tokio::join!(output, errors) });
        let terminal = ends.terminal;
        let resize = async {
            while let Some((columns, rows)) = client.sizes.recv().await {
                terminal.iter().for_each(|terminal| terminal.resize(columns, rows));
            }
        };
        let type_in = async {
            if let Some(mut to) = ends.input {
                type_all(&mut client.input, &mut to).await;
            }
        };
        let exit = tokio::select! {
            exit = process.wait() => Some(exit),
            () = client.output.closed() => None,
            () = talk(resize, type_in) => None,
        };
        let exit = match exit {
            Some(exit) => exit,
            None => process.stop(Duration::ZERO).await,
        };
        if tokio::time::timeout(DRAIN, &mut pumps).await.is_err() {
            pumps.abort();
        }
        exited(exit)
    }

    async fn attach(&self, mut client: Client) -> Value {
        let Some(mut pieces) = self.container.subscribe() else { return success() };
        let show = async {
            loop {
                let (stream, bytes) = match pieces.recv().await {
                    Ok(piece) => piece,
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                };
                let (channel, wanted) = match stream {
                    Stream::Output => (Channel::Output, self.wanted.output),
                    Stream::Errors => (Channel::Errors, self.wanted.errors),
                };
                if wanted && client.output.send((channel, bytes)).await.is_err() {
                    return;
                }
            }
        };
        let resize = async {
            while let Some((columns, rows)) = client.sizes.recv().await {
                self.container.terminal.iter().for_each(|terminal| terminal.resize(columns, rows));
            }
        };
        let type_in = async {
            if !self.wanted.input {
                return;
            }
            let mut input = self.container.input.lock().await;
            if let Some(to) = input.as_mut() {
                type_all(&mut client.input, to).await;
            }
            if self.container.is_input_once {
                input.take();
            }
        };
        tokio::select! {
            () = show => {}
            () = client.output.closed() => {}
            () = talk(resize, type_in) => {}
        }
        success()
    }
}

/// Does what the client says until it says no more. Never ends: what is shown goes on.
async fn talk(resize: impl Future<Output = ()>, type_in: impl Future<Output = ()>) {
    tokio::join!(resize, type_in);
    std::future::pending().await
}

/// Shows what a process writes, to its end.
async fn show(
    from: Option<Box<dyn AsyncRead + Send + Unpin>>,
    (channel, to, is_wanted): (Channel, mpsc::Sender<(Channel, Bytes)>, bool),
) {
    let Some(mut from) = from else { return };
    let mut bytes = vec![0; READ_AT_ONCE];
    // A terminal gives an error where a pipe gives nothing: no process has it any more.
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if is_wanted && to.send((channel, Bytes::copy_from_slice(&bytes[..count]))).await.is_err() {
            return;
        }
    }
}

/// Gives a process what the client types, until the client types no more or nobody reads it.
async fn type_all(from: &mut mpsc::Receiver<Bytes>, to: &mut (impl AsyncWrite + Unpin + ?Sized)) {
    while let Some(bytes) = from.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

/// How a process ended, as the status channel says it.
fn exited(exit: Exit) -> Value {
    match exit.code {
        0 => success(),
        code => json!({
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
    }
}

fn failed_to_start(program: &Path, error: &std::io::Error) -> Value {
    let message =
        format!("error executing command in container: failed to start {}: {error}", program.display());
    json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_the_exit_code() {
        assert_eq!(exited(Exit { code: 0, signal: 0 })["status"], "Success");
        let failed = exited(Exit { code: 3, signal: 0 });
        assert_eq!(failed["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
    }
}
