//! Processes that a server has started, by their command lines.

use std::process::Command;

/// The processes whose command line has all of `words`, or arguments that end in them (`--plane=ID`), by their ids.
pub fn processes_with(words: &[&str]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.iter().all(|word| line.iter().any(|argument| argument.ends_with(word.as_bytes())))
    })
    .collect()
}

/// Kills a process at once.
pub fn end_with_kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "process {pid} can't be killed");
}
