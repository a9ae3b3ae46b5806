//! `/metrics` and `/healthz` of a process that serves no API, over plain HTTP/1.1.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// How long a question and its answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest head of a question, in bytes.
const MOST: usize = 8 << 10;
/// Connections at a time.
const CONNECTIONS: usize = 16;

/// The format of a process' metrics.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// Prometheus' own.
    Text,
    /// OpenMetrics, whose types and end Prometheus reads only under this name.
    OpenMetrics,
}

impl Format {
    fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Makes the text of a process' metrics.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves `/metrics`, `/healthz`, `/livez` and `/readyz` without TLS until `stop`.
///
/// # Errors
/// The address can't be listened at.
pub async fn serve_metrics(
    address: SocketAddr,
    format: Format,
    render: Render,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "metrics");
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let connection = tokio::select! {
                () = stop.cancelled() => return,
                connection = listener.accept() => connection,
            };
            let Ok((stream, _)) = connection else { continue };
            let render = render.clone();
            tokio::spawn(async move {
                // Who went away meanwhile gets nothing.
                let _ = timeout(PATIENCE, answer(stream, format, &render)).await;
                drop(place);
            });
        }
    });
    Ok(())
}

/// Answers one question and closes the connection.
async fn answer(mut stream: TcpStream, format: Format, render: &Render) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MOST || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let (status, media_type, body) = match path(&head) {
        Some("/metrics") => ("200 OK", format.media_type(), render()),
        Some("/healthz" | "/livez" | "/readyz") => ("200 OK", "text/plain", "ok".to_owned()),
        _ => ("404 Not Found", "text/plain", "not found\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// The path that is asked for with GET, without its query.
fn path(head: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    target.split('?').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_from_a_question_with_get() {
        let rows: [(&[u8], Option<&str>); 4] = [
            (b"GET /metrics?x=y HTTP/1.1\r\nHost: a\r\n\r\n", Some("/metrics")),
            (b"POST /metrics HTTP/1.1\r\n\r\n", None),
            (b"GET \r\n", Some("")),
            (b"\xff\xfe\r\n", None),
        ];
        for (head, expected) in rows {
            assert_eq!(path(head), expected);
        }
    }
}
