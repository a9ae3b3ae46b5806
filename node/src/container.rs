//! One container: runs it, probes it, and runs it again, as its restart policy wants.

use crate::backoff::Backoff;
use crate::environment::{Downward, environment};
use crate::expand::{expand, rewrite};
use crate::logbook::Key;
use crate::logs::RunLog;
use crate::message;
use crate::pod::PodRun;
use crate::ports;
use crate::probe::{Finding, Probes, Target};
use crate::process::{Attached, Command, Ends, Exit, Process};
use crate::running::RunningContainer;
use crate::sources::{list, text};
use crate::status::{ContainerState, Now, Termination};
use freehold_machinery::{Value, meta};
use freehold_runtime::EventType;
use jiff::Timestamp;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait before something that is missing is looked for again.
const RETRY: Duration = Duration::from_secs(1);
/// How long a process's output is read after its end.
const DRAIN: Duration = Duration::from_secs(1);

/// When a container runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// After each end.
    Always,
    /// After a failure.
    OnFailure,
    /// Not at all.
    Never,
}

impl Restart {
    /// The restart policy of a Pod's containers.
    pub(crate) fn of(pod: &Value) -> Self {
        match pod["spec"]["restartPolicy"].as_str() {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// The restart policy of a Pod's init containers, which are done once they succeeded.
    pub(crate) fn of_init(pod: &Value) -> Self {
        if Self::of(pod) == Self::Never { Self::Never } else { Self::OnFailure }
    }

    fn again(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// One container of a running Pod.
pub(crate) struct Container {
    pub(crate) run: Arc<PodRun>,
    /// Where its state is in [`PodRun::states`].
    pub(crate) index: usize,
    pub(crate) spec: Value,
    pub(crate) restart: Restart,
}

enum Outcome {
    Stopped,
    /// Reason and message.
    NotStarted(&'static str, String),
    Ended(Termination),
}

impl Container {
    /// Runs the container until it is done or the Pod is stopped.
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::default();
        loop {
            let began = Instant::now();
            let wait = match self.run_once().await {
                Outcome::Stopped => return,
                Outcome::NotStarted(reason, message) => {
                    self.not_started(reason, message);
                    RETRY
                }
                Outcome::Ended(end) => {
                    if self.run.is_stopping() || !self.restart.again(end.exit_code) {
                        return self.update(|state| state.now = Now::Terminated(end));
                    }
                    let wait = backoff.next(began.elapsed());
                    self.back_off(end, wait);
                    wait
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = self.run.stopping() => return self.update(end_waiting),
            }
        }
    }

    fn name(&self) -> &str {
        self.spec["name"].as_str().unwrap_or_default()
    }

    fn update(&self, change: impl FnOnce(&mut ContainerState)) {
        self.run.update(self.index, change);
    }

    fn not_started(&self, reason: &'static str, message: String) {
        let mut told_before = false;
        let event = format!("Error: {message}");
        self.update(|state| {
            let before = matches!(&state.now, Now::Waiting { message: old, .. } if *old == message);
            told_before = before;
            let reason = if before && reason == "ErrImagePull" { "ImagePullBackOff" } else { reason };
            state.now = Now::Waiting { reason: reason.to_owned(), message };
        });
        if !told_before {
            self.run.record(EventType::Warning, "Failed", event);
        }
    }

    fn back_off(&self, end: Termination, wait: Duration) {
        let pod = &self.run.pod;
        let message = format!(
            "back-off {}s restarting failed container={} pod={}_{}({})",
            wait.as_secs(),
            self.name(),
            meta::name(pod),
            meta::namespace(pod),
            meta::uid(pod)
        );
        if wait >= RETRY {
            let event =
                format!("Back-off restarting failed container {} in pod {}", self.name(), meta::name(pod));
            self.run.record(EventType::Warning, "BackOff", event);
        }
        self.update(|state| {
            (state.ready, state.started) = (false, false);
            state.restarts += 1;
            state.last = Some(end);
            state.now = Now::Waiting { reason: "CrashLoopBackOff".into(), message };
        });
    }

    async fn run_once(&self) -> Outcome {
        let Some(program) = self.run.node.images.program(self.spec["image"].as_str().unwrap_or_default())
        else {
            let image = &self.spec["image"];
            return Outcome::NotStarted(
                "ErrImagePull",
                format!("image {image} is not in this node's table of programs"),
            );
        };
        let home = self.run.home.join("containers").join(self.name());
        let (command, mounts) = match self.command(program, &home) {
            Ok(command) => command,
            Err(message) => {
                self.run.refresh().await;
                return Outcome::NotStarted("CreateContainerConfigError", message);
            }
        };
        let started = Timestamp::now();
        match self.start(&command, &home) {
            Ok((process, log, ends)) => {
                let target = Arc::new(Target { address: self.run.address.into(), command, home, mounts });
                let once = self.spec["stdinOnce"] == true;
                let (container, [out, err]) = RunningContainer::new(target.clone(), process.id(), ends, once);
                let keep = |stream, from| log.clone().keep_all(stream, from);
                let pumps = futures_util::future::join(keep("stdout", out), keep("stderr", err));
                let pumps = tokio::spawn(pumps);
                let listed = self.run.node.containers.list(self.key(), container);
                let (exit, decided) = self.watch(process, started, &target).await;
                // Whoever else holds the pipes is not of the container's group, and not waited for.
                let _ = tokio::time::timeout(DRAIN, pumps).await;
                drop(listed);
                log.close();
                let message = self.message(exit, decided, &target, &log).await;
                Outcome::Ended(termination(exit, message, started))
            }
            Err(_) if self.run.is_stopping() => Outcome::Stopped,
            Err(error) => {
                let message = format!("failed to start {}: {error}", command.program.display());
                self.run.record(EventType::Warning, "Failed", format!("Error: {message}"));
                let end = termination(Exit { code: 128, signal: 0 }, message, started);
                Outcome::Ended(Termination { reason: "StartError".into(), ..end })
            }
        }
    }

    /// What there is to say about an end: what the container says, or `decided` here, or that another has its port.
    async fn message(&self, exit: Exit, decided: String, target: &Target, log: &Arc<RunLog>) -> String {
        let conflict = (exit.code != 0 && decided.is_empty() && !self.run.is_stopping())
            .then(|| ports::conflict(&self.spec, target.address, &self.run.node.containers))
            .flatten();
        if let Some(why) = &conflict {
            self.run.record(EventType::Warning, "PortConflict", format!("Container {}: {why}", self.name()));
        }
        let left = message::left_by(&self.spec, &target.home, exit.code, log).await;
        if left.is_empty() { conflict.unwrap_or(decided) } else { left }
    }

    fn start(&self, command: &Command, home: &Path) -> std::io::Result<(Process, Arc<RunLog>, Ends)> {
        if self.run.is_stopping() {
            return Err(std::io::Error::other("the Pod is being stopped"));
        }
        std::fs::create_dir_all(home)?;
        message::prepare(home)?;
        let number = self.run.state(self.index).restarts;
        let log = self.run.node.logs.begin(self.key(), meta::uid(&self.run.pod), home, number)?;
        let (process, ends) = Process::start(command, home, self.attached())?;
        Ok((process, log, ends))
    }

    /// Namespace, Pod and name.
    fn key(&self) -> Key {
        let pod = &self.run.pod;
        (meta::namespace(pod).to_owned(), meta::name(pod).to_owned(), self.name().to_owned())
    }

    fn attached(&self) -> Attached {
        match (self.spec["tty"] == true, self.spec["stdin"] == true) {
            (true, _) => Attached::Terminal,
            (false, true) => Attached::Pipes,
            (false, false) => Attached::Output,
        }
    }

    /// Sees a process to its end. Gives how it ended, and why where that was decided here.
    async fn watch(&self, mut process: Process, started: Timestamp, target: &Target) -> (Exit, String) {
        let name = self.name();
        self.run.record(EventType::Normal, "Started", format!("Started container {name}"));
        self.update(|state| {
            state.id = format!("process://{}", process.id());
            state.now = Now::Running(started);
        });
        let probes = Probes::of(&self.spec);
        let grace = tokio::select! {
            exit = process.wait() => return (exit, String::new()),
            reason = probes.run(target, |finding| self.found(finding)) => {
                let message = format!("Container {name} {reason}, will be restarted");
                self.run.record(EventType::Normal, "Killing", message.clone());
                let grace = self.run.pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
                self.update(|state| state.ready = false);
                return (self.stop(&mut process, Duration::from_secs(grace)).await, message);
            }
            grace = self.run.stopping() => grace,
        };
        self.run.record(EventType::Normal, "Killing", format!("Stopping container {name}"));
        self.update(|state| state.ready = false);
        (process.stop(grace).await, String::new())
    }

    /// Stops a process for its own sake, but not longer than a stop of the whole Pod allows.
    async fn stop(&self, process: &mut Process, grace: Duration) -> Exit {
        let stopped = tokio::select! {
            exit = process.stop(grace) => Ok(exit),
            grace = self.run.stopping() => Err(grace),
        };
        match stopped {
            Ok(exit) => exit,
            Err(grace) => process.stop(grace).await,
        }
    }

    fn found(&self, finding: Finding) {
        match finding {
            Finding::Started => self.update(|state| state.started = true),
            Finding::Ready(ready) => self.update(|state| state.ready = ready),
            Finding::Unhealthy(which, why) => {
                self.run.record(EventType::Warning, "Unhealthy", format!("{which} probe failed: {why}"));
            }
        }
    }

    fn command(&self, program: &Path, home: &Path) -> Result<(Command, Vec<(String, PathBuf)>), String> {
        let run = &self.run;
        let address = run.address.to_string();
        let node = &run.node;
        let downward = Downward {
            pod: &run.pod,
            pod_ip: &address,
            node: &node.name,
            host_ip: &node.host_ip.to_string(),
        };
        let materials = run.materials();
        let mut mounts = materials.placed.mounts(&self.spec)?;
        mounts.push(message::mount(&self.spec, home));
        let mut variables = environment(&self.spec, &downward, &materials.sources)?;
        let defaults = [
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", home.to_string_lossy().into_owned()),
            ("HOSTNAME", meta::name(&run.pod).to_owned()),
        ];
        let service = node.service.iter().flat_map(|(host, port)| {
            [("KUBERNETES_SERVICE_HOST", host.clone()), ("KUBERNETES_SERVICE_PORT", port.to_string())]
        });
        for (name, value) in defaults.into_iter().chain(service) {
            variables.entry(name.to_owned()).or_insert(value);
        }
        Ok((command(&self.spec, program, variables, &mounts, home), mounts))
    }
}

/// A container that waited for its next run when its Pod was stopped is what it was after its last.
fn end_waiting(state: &mut ContainerState) {
    if let Some(end) = state.last.take() {
        state.now = Now::Terminated(end);
    }
}

fn termination(exit: Exit, message: String, started: Timestamp) -> Termination {
    Termination {
        exit_code: exit.code,
        signal: exit.signal,
        reason: if exit.code == 0 { "Completed" } else { "Error" }.to_owned(),
        message,
        started,
        finished: Timestamp::now(),
    }
}

/// What a container runs.
///
/// `args` alone go to the image's program. `command` names the program itself: where that is the image's own (by its
/// file name or by the image's), the table decides what it is; anything else is looked for on this machine.
fn command(
    container: &Value,
    program: &Path,
    variables: HashMap<String, String>,
    mounts: &[(String, PathBuf)],
    home: &Path,
) -> Command {
    let here = |part: &str| rewrite(&expand(part, &variables), mounts);
    let parts =
        |field: &str| list(&container[field]).filter_map(|p| p.as_str()).map(here).collect::<Vec<_>>();
    let (mut words, args) = (parts("command"), parts("args"));
    let mut program = program.to_owned();
    if !words.is_empty() {
        let first = words.remove(0);
        if !is_program_of(&first, container["image"].as_str().unwrap_or_default(), &program) {
            program = PathBuf::from(first);
        }
    }
    words.extend(args);
    let directory = text(&container["workingDir"]).map(|dir| PathBuf::from(here(&dir)));
    let variables = variables.iter().map(|(name, value)| (name.clone(), rewrite(value, mounts))).collect();
    Command { program, args: words, variables, directory: directory.unwrap_or_else(|| home.to_owned()) }
}

fn is_program_of(word: &str, image: &str, program: &Path) -> bool {
    let base = image.rsplit('/').next().unwrap_or(image);
    let base = base.split([':', '@']).next().unwrap_or(base);
    let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or(word);
    name == base || Some(name) == program.file_name().and_then(|name| name.to_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_command_line_follows_image_command_and_args() {
        let variables = HashMap::from([("IP".to_owned(), "127.64.0.1".to_owned())]);
        let mounts = [("/etc/x".to_owned(), PathBuf::from("/d/x"))];
        let rows = [
            (json!({"args": ["a"]}), "/bin/prog a"),
            (json!({"command": ["freehold", "b"], "args": ["$(IP):1"]}), "/bin/prog b 127.64.0.1:1"),
            (json!({"command": ["/usr/bin/prog"]}), "/bin/prog"),
            (json!({"command": ["sh", "-c"], "args": ["cat /etc/x/a"]}), "sh -c cat /d/x/a"),
            (json!({"command": ["/etc/x/run"]}), "/d/x/run"),
        ];
        for (mut container, expected) in rows {
            container["image"] = "registry.example/freehold:v1".into();
            let made =
                command(&container, Path::new("/bin/prog"), variables.clone(), &mounts, Path::new("/h"));
            let line =
                std::iter::once(made.program.display().to_string()).chain(made.args).collect::<Vec<_>>();
            assert_eq!(line.join(" "), expected);
            assert_eq!(made.directory, Path::new("/h"));
        }
    }

    #[test]
    fn the_restart_policy_decides_by_exit_code() {
        let rows = [
            (Restart::Always, true, true),
            (Restart::OnFailure, false, true),
            (Restart::Never, false, false),
        ];
        for (policy, after_success, after_failure) in rows {
            assert_eq!((policy.again(0), policy.again(1)), (after_success, after_failure), "{policy:?}");
        }
    }
}
