//! What processes and folders use, from `/proc` and the file system.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often memory is looked at until it rests.
const POLL: Duration = Duration::from_millis(250);
/// Memory rests when it has not changed by more than 1 % for so long.
const REST: Duration = Duration::from_secs(3);
/// How long to wait for that.
const PATIENCE: Duration = Duration::from_secs(30);
/// Clock ticks a second in `/proc/PID/stat`; the same on every Linux that Freehold runs on.
const TICKS: u64 = 100;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Resident, the program's own pages included.
    pub(crate) resident: i64,
    /// Resident and not backed by a file: heap and stacks.
    pub(crate) anonymous: i64,
    /// Resident, with what several processes share divided among them.
    pub(crate) proportional: i64,
}

/// Reads what memory a process has now; zeros when there is no such process.
pub(crate) fn memory(pid: u32) -> Memory {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let field = |name: &str| kib(&rollup, name) * 1024;
    Memory { resident: field("Rss:"), anonymous: field("Anonymous:"), proportional: field("Pss:") }
}

fn kib(text: &str, name: &str) -> i64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Waits until the memory of a process rests, and reads it.
pub(crate) async fn memory_at_rest(pid: u32) -> Memory {
    let begun = Instant::now();
    let mut since = Instant::now();
    let mut before = memory(pid);
    while since.elapsed() < REST && begun.elapsed() < PATIENCE {
        tokio::time::sleep(POLL).await;
        let now = memory(pid);
        if (now.resident - before.resident).abs() > before.resident / 100 {
            before = now;
            since = Instant::now();
        }
    }
    memory(pid)
}

/// Prints which mappings hold a process's resident memory, largest first.
pub(crate) fn print_maps(pid: u32) {
    let mut by_name: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let mut name = String::new();
    for line in fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default().lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !first.ends_with(':') {
            name = line.split_whitespace().nth(5).unwrap_or("anonymous").to_owned();
        }
        let entry = by_name.entry(name.clone()).or_default();
        entry.0 += kib(line, "Rss:");
        entry.1 += kib(line, "Anonymous:");
    }
    let mut rows: Vec<_> = by_name.into_iter().filter(|(_, (resident, _))| *resident > 100).collect();
    rows.sort_by_key(|(_, (resident, _))| -resident);
    for (name, (resident, anonymous)) in rows {
        println!("    {resident:>8} KiB resident, {anonymous:>8} KiB anonymous  {name}");
    }
}

/// CPU time that a process has used, user and system, to a hundredth of a second; `None` when it has ended.
pub(crate) fn cpu(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may have spaces in it.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ended = matches!(fields.first(), None | Some(&"Z" | &"X"));
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = ticks(11)? + ticks(12)?;
    (!ended).then(|| Duration::from_millis(ticks * 1000 / TICKS))
}

/// How many threads a process has.
pub(crate) fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// How many sockets a process has open.
pub(crate) fn sockets(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// The processes that a process started and that run, with their command lines.
pub(crate) fn children(parent: u32) -> Vec<(u32, Vec<String>)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).map(|pid| (pid, command_line(pid))).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

fn command_line(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}

/// Bytes that a folder takes on disk, in whole blocks.
pub(crate) fn disk(folder: &Path) -> i64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => disk(&entry.path()),
            Ok(found) => i64::try_from(found.blocks() * 512).unwrap_or(i64::MAX),
            // Removed in this very moment.
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_no_children() {
        let own = std::process::id();
        let memory = memory(own);
        assert!(memory.resident > memory.anonymous && memory.anonymous > 0, "{memory:?}");
        assert!(threads(own) >= 1);
        assert!(children(own).is_empty());
        assert!(cpu(own).is_some() && cpu(0).is_none());
    }

    #[test]
    fn a_folder_takes_the_blocks_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b"), vec![1; 10_000]).unwrap();
        assert!(disk(folder.path()) >= 10_000);
    }
}
