//! Processes: starting one in a group of its own, ending a whole group, and finding those of a previous run.
//!
//! Guarantees: a process is written down (its id, when it started, and in which boot) before its container counts as
//! running, so that a node that was killed finds and ends every process of its earlier life, and never one that merely
//! has the same number.

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Child;

use crate::terminal::{self, Terminal};

/// The file in a container's directory that says which process it is.
const PID_FILE: &str = "process";
/// How long the end of a killed leftover is waited for.
const LEFTOVER_WAIT: Duration = Duration::from_secs(2);

/// What is to be run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Command {
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// All its variables; it inherits none.
    pub(crate) variables: HashMap<String, String>,
    /// Where it runs.
    pub(crate) directory: PathBuf,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Its exit code; 128 and the signal where a signal ended it.
    pub(crate) code: i32,
    /// The signal that ended it, or 0.
    pub(crate) signal: i32,
}

/// What a process reads from and writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// It prints, and reads nothing.
    Output,
    /// It reads and prints.
    Pipes,
    /// It has a terminal of its own.
    Terminal,
}

/// The node's ends of what a process reads from and writes to.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub(crate) output: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Nothing where a terminal mixes both.
    pub(crate) errors: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) terminal: Option<Terminal>,
}

/// A running process and its group.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    file: PathBuf,
}

impl Process {
    /// Starts a process, whose container's directory is `home`.
    pub(crate) fn start(command: &Command, home: &Path, attached: Attached) -> io::Result<(Self, Ends)> {
        let mut ends = Ends::default();
        let mut starting = match attached {
            Attached::Terminal => {
                let (terminal, leader) = terminal::open(&command.program)?;
                ends.input = Some(Box::new(terminal.writer()?));
                ends.output = Some(Box::new(terminal.reader()?));
                ends.terminal = Some(terminal);
                tokio::process::Command::from(leader)
            }
            Attached::Output | Attached::Pipes => {
                let input = if attached == Attached::Pipes { Stdio::piped() } else { Stdio::null() };
                let mut piped = tokio::process::Command::new(&command.program);
                piped.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
                piped
            }
        };
        let mut child = starting
            .args(&command.args)
            .env_clear()
            .envs(&command.variables)
            .current_dir(&command.directory)
            .kill_on_drop(true)
            .spawn()?;
        let raw = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = raw.ok_or_else(|| io::Error::other("the process has no id"))?;
        let file = home.join(PID_FILE);
        std::fs::write(&file, Identity::of(pid).map(|id| id.to_line()).unwrap_or_default())?;
        if attached != Attached::Terminal {
            ends.input = child.stdin.take().map(|end| Box::new(end) as _);
            ends.output = child.stdout.take().map(|end| Box::new(end) as _);
            ends.errors = child.stderr.take().map(|end| Box::new(end) as _);
        }
        Ok((Self { child, pid, file }, ends))
    }

    /// The process id.
    pub(crate) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits for its end; then nothing of its group is left either. Safe to drop and call again.
    pub(crate) async fn wait(&mut self) -> Exit {
        let status = self.child.wait().await;
        // A group without members is what is wanted.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let _ = std::fs::remove_file(&self.file);
        match status {
            Ok(status) => {
                let signal = status.signal().unwrap_or(0);
                Exit { code: status.code().unwrap_or(128 + signal), signal }
            }
            Err(_) => Exit { code: 255, signal: 0 },
        }
    }

    /// Asks the group to end, and after `grace` ends it.
    pub(crate) async fn stop(&mut self, grace: Duration) -> Exit {
        // The group may be gone already; then waiting returns at once.
        let _ = kill_process_group(self.pid, Signal::TERM);
        if let Ok(exit) = tokio::time::timeout(grace, self.wait()).await {
            return exit;
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.wait().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child's own kill_on_drop reaches the leader only. Once it has been waited for its number can be another's.
        if self.child.id().is_some() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// Which process it was: numbers are used again, but not with the same start in the same boot.
#[derive(Debug, PartialEq)]
struct Identity {
    pid: Pid,
    start: u64,
    boot: String,
}

impl Identity {
    fn of(pid: Pid) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // The command's name stands in brackets and can contain anything; `starttime` is the 20th field after it.
        let (_, after) = stat.rsplit_once(')')?;
        let start = after.split_whitespace().nth(19)?.parse().ok()?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        Some(Self { pid, start, boot })
    }

    fn to_line(&self) -> String {
        format!("{} {} {}\n", self.pid.as_raw_nonzero(), self.start, self.boot)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split_whitespace();
        let pid = Pid::from_raw(parts.next()?.parse().ok()?)?;
        Some(Self { pid, start: parts.next()?.parse().ok()?, boot: parts.next()?.to_owned() })
    }

    fn is_running(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
}

/// Ends what a predecessor left running: every process that is written down in one of `directories` or below it. Gives
/// how many there were.
pub(crate) async fn end_leftovers(directories: impl IntoIterator<Item = PathBuf>) -> usize {
    let mut ended = 0;
    for file in directories.into_iter().flat_map(|directory| pid_files(&directory)) {
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        let _ = std::fs::remove_file(&file);
        let Some(identity) = Identity::parse(&written).filter(Identity::is_running) else { continue };
        let _ = kill_process_group(identity.pid, Signal::KILL)
            .or_else(|_| kill_process(identity.pid, Signal::KILL));
        wait_for_end(identity.pid).await;
        ended += 1;
    }
    ended
}

async fn wait_for_end(pid: Pid) {
    let gone = async {
        while test_kill_process(pid).is_ok() && !is_zombie(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = tokio::time::timeout(LEFTOVER_WAIT, gone).await;
}

fn is_zombie(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, after)| after.trim_start().starts_with('Z'))
}

fn pid_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir {
            found.extend(pid_files(&entry.path()));
        } else if entry.file_name() == PID_FILE {
            found.push(entry.path());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    fn shell(script: &str, home: &Path) -> Command {
        Command {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            variables: HashMap::from([("PATH".into(), "/usr/bin:/bin".into())]),
            directory: home.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_process_ends_with_its_code_or_its_signal() {
        let home = tempfile::tempdir().unwrap();
        for (script, code, signal) in [("exit 0", 0, 0), ("exit 3", 3, 0), ("kill -9 $$", 137, 9)] {
            let (mut process, _ends) =
                Process::start(&shell(script, home.path()), home.path(), Attached::Output).unwrap();
            assert_eq!(process.wait().await, Exit { code, signal }, "{script}");
        }
        assert!(pid_files(home.path()).is_empty());
    }

    #[tokio::test]
    async fn a_process_that_ignores_sigterm_is_killed_with_its_children() {
        let home = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; sleep 1000 & echo $!; wait; wait";
        let (mut process, ends) =
            Process::start(&shell(script, home.path()), home.path(), Attached::Output).unwrap();
        let mut out = ends.output.unwrap();
        let mut bytes = [0; 16];
        let n = out.read(&mut bytes).await.unwrap();
        let child: i32 = std::str::from_utf8(&bytes[..n]).unwrap().trim().parse().unwrap();
        let exit = process.stop(Duration::from_millis(50)).await;
        assert_eq!(exit.signal, 9);
        let child = Pid::from_raw(child).unwrap();
        wait_for_end(child).await;
        assert!(test_kill_process(child).is_err() || is_zombie(child));
    }

    #[tokio::test]
    async fn a_leftover_is_ended_and_a_stranger_with_its_number_is_not() {
        let home = tempfile::tempdir().unwrap();
        let sleep = shell("sleep 1000", home.path());
        let (mut left, _l) = Process::start(&sleep, home.path(), Attached::Output).unwrap();
        let other = home.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let (mut stranger, _s) = Process::start(&sleep, &other, Attached::Output).unwrap();
        let mut identity = Identity::of(stranger.pid).unwrap();
        identity.start += 1;
        std::fs::write(other.join(PID_FILE), identity.to_line()).unwrap();
        assert_eq!(end_leftovers([home.path().to_owned()]).await, 1);
        assert_eq!(left.wait().await.signal, 9);
        assert!(test_kill_process(stranger.pid).is_ok(), "it started at another time");
        stranger.stop(Duration::ZERO).await;
    }
}
