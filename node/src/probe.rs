//! Probes: asking a container whether it has started, lives and is ready, as `core/v1 Probe` describes it.
//!
//! A certificate is not verified, as kubelet does not either: what is asked is whether somebody answers.

use crate::process::{Attached, Command, Process};
use crate::sources::{list, text};
use crate::tls;
use freehold_machinery::Value;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// While a container is young and was not ready yet, it is asked this often, whatever the period: who waits for a
/// control plane waits for this.
const EAGER_PERIOD: Duration = Duration::from_millis(50);
/// How long a container is young.
const EAGER_FOR: Duration = Duration::from_secs(5);
/// Bytes of an answer's body that are read.
const MAX_BODY: usize = 64 << 10;

/// One probe of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Probe {
    check: Check,
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum Check {
    Http { tls: bool, host: Option<String>, port: u16, path: String, headers: Vec<(String, String)> },
    Tcp { host: Option<String>, port: u16 },
    Exec(Vec<String>),
}

/// What probes are directed at.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The Pod's address.
    pub(crate) address: IpAddr,
    /// What a command of an exec probe runs as: variables and directory of the container.
    pub(crate) command: Command,
    /// The container's directory.
    pub(crate) home: PathBuf,
    /// Mount paths of the container, which commands can name.
    pub(crate) mounts: Vec<(String, PathBuf)>,
}

impl Target {
    /// What runs a command in the container.
    pub(crate) fn command(&self, words: &[String]) -> Command {
        let mut parts = words.iter().map(|part| crate::expand::rewrite(part, &self.mounts));
        let program = parts.next().unwrap_or_default();
        Command { program: program.into(), args: parts.collect(), ..self.command.clone() }
    }
}

/// The probes of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Probes {
    /// Until it succeeds, the others wait.
    pub(crate) startup: Option<Probe>,
    /// Whether requests can be sent.
    pub(crate) readiness: Option<Probe>,
    /// Whether it has to be started again.
    pub(crate) liveness: Option<Probe>,
}

/// What probing found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Finding {
    /// The container has started.
    Started,
    /// It is ready, or is not any more.
    Ready(bool),
    /// One probe failed: which one, and how.
    Unhealthy(&'static str, String),
}

impl Probes {
    /// The probes of a container's spec.
    pub(crate) fn of(container: &Value) -> Self {
        let probe = |field: &str| Probe::parse(&container[field], container);
        Self {
            startup: probe("startupProbe"),
            readiness: probe("readinessProbe"),
            liveness: probe("livenessProbe"),
        }
    }

    /// Probes for as long as it is polled, and tells what it finds. Ends, with a reason, when the container has to be
    /// started again.
    pub(crate) async fn run(&self, target: &Target, tell: impl Fn(Finding)) -> String {
        if let Some(startup) = &self.startup
            && let Err(reason) = startup.until_started(target, &tell).await
        {
            return reason;
        }
        tell(Finding::Started);
        if self.readiness.is_none() {
            tell(Finding::Ready(true));
        }
        let readiness = async {
            match &self.readiness {
                Some(probe) => {
                    probe.watch("Readiness", target, &tell, |ready| tell(Finding::Ready(ready))).await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            reason = self.liveness(target, &tell) => reason,
            () = readiness => unreachable!("a readiness probe goes on for ever"),
        }
    }

    async fn liveness(&self, target: &Target, tell: &impl Fn(Finding)) -> String {
        match &self.liveness {
            Some(probe) => probe.until_dead("Liveness", target, tell).await,
            None => std::future::pending().await,
        }
    }
}

impl Probe {
    fn parse(probe: &Value, container: &Value) -> Option<Self> {
        let number = |field: &str, default: u64| probe[field].as_u64().unwrap_or(default);
        let count =
            |field: &str, default: u64| u32::try_from(number(field, default).max(1)).unwrap_or(u32::MAX);
        Some(Self {
            check: Check::parse(probe, container)?,
            initial_delay: Duration::from_secs(number("initialDelaySeconds", 0)),
            period: Duration::from_secs(number("periodSeconds", 10).max(1)),
            timeout: Duration::from_secs(number("timeoutSeconds", 1).max(1)),
            success_threshold: count("successThreshold", 1),
            failure_threshold: count("failureThreshold", 3),
        })
    }

    async fn until_started(&self, target: &Target, tell: &impl Fn(Finding)) -> Result<(), String> {
        let mut tracker = Tracker::default();
        let started = Instant::now();
        tokio::time::sleep(self.initial_delay).await;
        loop {
            let result = self.ask(target).await;
            if let Err(reason) = &result {
                tell(Finding::Unhealthy("Startup", reason.clone()));
            }
            match tracker.observe(self, result.is_ok(), self.is_eager(started)) {
                Some(true) => return Ok(()),
                Some(false) => {
                    return Err(format!("failed startup probe: {}", result.err().unwrap_or_default()));
                }
                None => tokio::time::sleep(self.pause(started, false)).await,
            }
        }
    }

    async fn until_dead(&self, name: &'static str, target: &Target, tell: &impl Fn(Finding)) -> String {
        let mut tracker = Tracker::default();
        tokio::time::sleep(self.initial_delay).await;
        loop {
            tokio::time::sleep(self.period).await;
            let result = self.ask(target).await;
            let verdict = tracker.observe(self, result.is_ok(), false);
            if let Err(reason) = result {
                tell(Finding::Unhealthy(name, reason.clone()));
                if verdict == Some(false) {
                    return format!("failed liveness probe: {reason}");
                }
            }
        }
    }

    /// Probes for ever, and tells each change of the verdict.
    async fn watch(
        &self,
        name: &'static str,
        target: &Target,
        tell: &impl Fn(Finding),
        change: impl Fn(bool),
    ) {
        let mut tracker = Tracker::default();
        let mut ready = false;
        let started = Instant::now();
        tokio::time::sleep(self.initial_delay).await;
        loop {
            let result = self.ask(target).await;
            let eager = !ready && self.is_eager(started);
            if let Some(verdict) = tracker.observe(self, result.is_ok(), false)
                && verdict != ready
            {
                ready = verdict;
                change(ready);
            }
            match result {
                Err(reason) if !eager => tell(Finding::Unhealthy(name, reason)),
                _ => {}
            }
            tokio::time::sleep(self.pause(started, ready)).await;
        }
    }

    fn is_eager(&self, started: Instant) -> bool {
        self.initial_delay.is_zero() && started.elapsed() < EAGER_FOR
    }

    fn pause(&self, started: Instant, ready: bool) -> Duration {
        if !ready && self.is_eager(started) { EAGER_PERIOD.min(self.period) } else { self.period }
    }

    async fn ask(&self, target: &Target) -> Result<(), String> {
        match tokio::time::timeout(self.timeout, self.check.run(target)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs())),
        }
    }
}

/// Answers in a row.
#[derive(Debug, Default)]
struct Tracker {
    successes: u32,
    failures: u32,
}

impl Tracker {
    /// Counts an answer; a verdict when enough of a kind came in a row. Failures don't count where they are forgiven.
    fn observe(&mut self, probe: &Probe, success: bool, forgive: bool) -> Option<bool> {
        if success {
            self.successes += 1;
            self.failures = 0;
            (self.successes >= probe.success_threshold).then_some(true)
        } else {
            self.failures += u32::from(!forgive);
            self.successes = 0;
            (self.failures >= probe.failure_threshold).then_some(false)
        }
    }
}

impl Check {
    fn parse(probe: &Value, container: &Value) -> Option<Self> {
        let (http, tcp, exec) = (&probe["httpGet"], &probe["tcpSocket"], &probe["exec"]);
        if http.is_object() {
            let header = |h: &Value| Some((text(&h["name"])?, h["value"].as_str()?.to_owned()));
            return Some(Self::Http {
                tls: http["scheme"] == "HTTPS",
                host: text(&http["host"]),
                port: port(&http["port"], container)?,
                path: text(&http["path"]).unwrap_or_else(|| "/".to_owned()),
                headers: list(&http["httpHeaders"]).filter_map(header).collect(),
            });
        }
        if tcp.is_object() {
            return Some(Self::Tcp { host: text(&tcp["host"]), port: port(&tcp["port"], container)? });
        }
        let command: Vec<String> =
            list(&exec["command"]).filter_map(|part| part.as_str().map(str::to_owned)).collect();
        (!command.is_empty()).then_some(Self::Exec(command))
    }

    async fn run(&self, target: &Target) -> Result<(), String> {
        match self {
            Self::Http { tls, host, port, path, headers } => {
                let stream = connect(host, *port, target).await?;
                let status = if *tls {
                    let stream = tls::connect_unverified(stream).await.map_err(|e| e.to_string())?;
                    get(stream, host.as_deref(), *port, target, path, headers).await?
                } else {
                    get(stream, host.as_deref(), *port, target, path, headers).await?
                };
                let well = (200..400).contains(&status);
                if well { Ok(()) } else { Err(format!("HTTP probe failed with statuscode: {status}")) }
            }
            Self::Tcp { host, port } => connect(host, *port, target).await.map(drop),
            Self::Exec(command) => exec(command, target).await,
        }
    }
}

/// A port by its number or by its name among the container's.
fn port(port: &Value, container: &Value) -> Option<u16> {
    if let Some(number) = port.as_u64() {
        return u16::try_from(number).ok();
    }
    let name = port.as_str()?;
    let named =
        list(&container["ports"]).find(|p| p["name"] == name).and_then(|p| p["containerPort"].as_u64());
    named.and_then(|number| u16::try_from(number).ok()).or_else(|| name.parse().ok())
}

async fn connect(host: &Option<String>, port: u16, target: &Target) -> Result<TcpStream, String> {
    let connecting = match host {
        Some(host) => TcpStream::connect((host.as_str(), port)).await,
        None => TcpStream::connect((target.address, port)).await,
    };
    connecting.map_err(|e| {
        format!("dial tcp {}:{port}: {e}", host.clone().unwrap_or_else(|| target.address.to_string()))
    })
}

async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: Option<&str>,
    port: u16,
    target: &Target,
    path: &str,
    headers: &[(String, String)],
) -> Result<u16, String> {
    let failed = |e: &dyn std::fmt::Display| format!("GET {path}: {e}");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
    let host = host.map_or_else(|| target.address.to_string(), str::to_owned);
    let mut request = http::Request::get(path)
        .header("host", format!("{host}:{port}"))
        .header("user-agent", "kube-probe/1.36")
        .header("connection", "close");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<bytes::Bytes>::new()).map_err(|e| failed(&e))?;
    let talking = async {
        let answer = sender.send_request(request).await.map_err(|e| failed(&e))?;
        let status = answer.status().as_u16();
        let body = http_body_util::Limited::new(answer.into_body(), MAX_BODY);
        // The status is the answer; the body is read so that the server need not log a broken connection.
        let _ = body.collect().await;
        Ok(status)
    };
    tokio::pin!(talking);
    tokio::select! {
        status = &mut talking => status,
        _ = connection => talking.await,
    }
}

async fn exec(command: &[String], target: &Target) -> Result<(), String> {
    let command = target.command(command);
    let home = target.home.join("probe");
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    let (mut process, _ends) =
        Process::start(&command, &home, Attached::Output).map_err(|e| e.to_string())?;
    let exit = process.wait().await;
    if exit.code == 0 { Ok(()) } else { Err(format!("command terminated with exit code {}", exit.code)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::HashMap;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn parse(probe: Value) -> Option<Probe> {
        let container = json!({"ports": [{"name": "web", "containerPort": 8080}]});
        Probe::parse(&probe, &container)
    }

    #[test]
    fn a_verdict_needs_enough_answers_in_a_row() {
        let probe =
            parse(json!({"tcpSocket": {"port": "web"}, "failureThreshold": 2, "successThreshold": 2}))
                .unwrap();
        let mut tracker = Tracker::default();
        let answers = [true, true, false, true, false, false, true];
        let verdicts: Vec<_> = answers.iter().map(|ok| tracker.observe(&probe, *ok, false)).collect();
        assert_eq!(verdicts, [None, Some(true), None, None, None, Some(false), None]);
        assert_eq!(tracker.observe(&probe, false, true), None);
    }

    #[test]
    fn a_probe_without_a_check_is_none_and_names_of_ports_are_looked_up() {
        assert_eq!(parse(json!({})), None);
        assert_eq!(parse(json!({"tcpSocket": {"port": "other"}})), None);
        let probe = parse(json!({"tcpSocket": {"port": "web"}})).unwrap();
        assert_eq!(probe.check, Check::Tcp { host: None, port: 8080 });
        assert_eq!((probe.period.as_secs(), probe.timeout.as_secs(), probe.failure_threshold), (10, 1, 3));
    }

    #[tokio::test]
    async fn an_http_probe_takes_every_status_below_400() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            for status in [200, 302, 404, 500] {
                let (mut stream, _) = listener.accept().await.unwrap();
                // All of the request: a connection that is closed on unread bytes is reset, and its answer lost.
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
                }
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let command =
            Command { program: "/".into(), args: vec![], variables: HashMap::new(), directory: "/".into() };
        let target = Target { address: [127, 0, 0, 1].into(), command, home: "/".into(), mounts: vec![] };
        let http = json!({"httpGet": {"port": port, "path": "/x"}, "timeoutSeconds": 60});
        let probe = parse(http).unwrap();
        for well in [true, true, false, false] {
            assert_eq!(probe.ask(&target).await.is_ok(), well);
        }
        server.await.unwrap();
        // A process that another test starts just now has the listener too, until it runs its own program.
        let mut refused = String::new();
        for _ in 0..1000 {
            refused = probe.ask(&target).await.unwrap_err();
            if refused.starts_with("dial tcp 127.0.0.1:") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{refused}");
    }
}
