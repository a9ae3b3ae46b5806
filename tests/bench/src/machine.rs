//! What the figures were measured on.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often the disk is asked for a durable write.
const SYNCS: u32 = 200;
/// How long threads do nothing but look at the clock.
const LOOKING: Duration = Duration::from_secs(10);
/// The shortest interval in which such a thread did not run that counts as a pause.
const PAUSE: Duration = Duration::from_millis(1);

/// Sentences for the document: commit, date, cores, memory, kernel, what a durable write costs in `folder`, and for how long the
/// machine keeps its processors from threads that have them to themselves.
pub(crate) fn describe(folder: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    // Before those who look, who are a load themselves.
    let load = read("/proc/loadavg");
    let pauses = pauses(cores);
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    format!(
        "Commit {}, {date}, on {cores} cores ({}), {} MB of memory, Linux {}, load average {} before it began; a durable \
         write of 4 KiB takes {:.0} µs there. In {} s before any server was started the machine took the processor {} \
         times for {} ms or more from {cores} threads that looked at the clock, for {:.1} ms at most.",
        commit(),
        processor(),
        memory_mb(),
        read("/proc/sys/kernel/osrelease").trim(),
        load.split(' ').next().unwrap_or_default(),
        durable_write(folder).as_secs_f64() * 1e6,
        LOOKING.as_secs(),
        pauses.len(),
        PAUSE.as_millis(),
        pauses.iter().max().copied().unwrap_or_default().as_secs_f64() * 1e3,
    )
}

/// How long the machine kept its processors from so many threads that never wait, each time.
fn pauses(threads: usize) -> Vec<Duration> {
    let look = || {
        let (begun, mut found) = (Instant::now(), Vec::new());
        let mut last = begun;
        while last.duration_since(begun) < LOOKING {
            let now = Instant::now();
            found.extend(Some(now.duration_since(last)).filter(|pause| *pause >= PAUSE));
            last = now;
        }
        found
    };
    std::thread::scope(|scope| {
        let looking: Vec<_> = (0..threads).map(|_| scope.spawn(look)).collect();
        looking.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn processor() -> String {
    let info = read("/proc/cpuinfo");
    let line = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    line.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

fn memory_mb() -> u64 {
    let info = read("/proc/meminfo");
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024 / 1_000_000
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        output
            .ok()
            .filter(|o| o.status.success())
            .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { format!("{commit} with changes") } else { commit }
}

/// The mean time of appending 4 KiB to a file and waiting until they are on disk.
fn durable_write(folder: &Path) -> Duration {
    let write = || -> std::io::Result<Duration> {
        let mut file = tempfile::tempfile_in(folder)?;
        let begun = Instant::now();
        for _ in 0..SYNCS {
            std::io::Write::write_all(&mut file, &[1; 4096])?;
            file.sync_data()?;
        }
        Ok(begun.elapsed() / SYNCS)
    };
    write().unwrap_or_default()
}
