//! Processes of a test: ending them, and ending what they left.

use crate::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// How long a process may take to end once it was killed.
const KILLED: Duration = Duration::from_secs(60);

/// Asks a process to end, as Ctrl-C or a service manager does.
pub(crate) fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Waits for the end of a process; `None` when it did not come in time.
pub(crate) fn wait_for_end(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let begun = std::time::Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if begun.elapsed() < patience => std::thread::sleep(Duration::from_millis(10)),
            _ => return None,
        }
    }
}

/// Kills a process and waits for its end.
pub(crate) fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Kills every process that has `folder` on its command line: what a server that was killed left running.
///
/// One that has just been started has no command line for a moment, so that none has to be found several times.
pub(crate) fn sweep(folder: &Path) {
    let mut none_found = 0;
    until("leftover processes end", KILLED, || {
        let left = with_folder(folder);
        none_found = if left.is_empty() { none_found + 1 } else { 0 };
        for pid in &left {
            // It may have ended already.
            let _ = kill_process(*pid, Signal::KILL);
        }
        (none_found >= 3).then_some(())
    });
}

fn with_folder(folder: &Path) -> Vec<Pid> {
    let folder = folder.to_string_lossy().into_owned();
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(|pid| *pid != own);
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&folder)
    })
    .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    .collect()
}

/// Resident memory of a process in KiB; 0 when there is no such process.
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_names_the_folder_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let script = "while :; do sleep 1; done";
        let mut inside = Command::new("sh").args(["-c", script]).arg(folder.path()).spawn().unwrap();
        let mut other = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let reaped = std::thread::spawn(move || inside.wait().unwrap());
        sweep(folder.path());
        assert!(!reaped.join().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        kill(&mut other);
    }

    #[test]
    fn resident_memory_is_read() {
        assert!(resident_kib(std::process::id()) > 100);
        assert_eq!(resident_kib(u32::MAX), 0);
    }
}
