//! CPU time and memory of processes and of the machine, from `/proc` (`proc(5)`).

use std::collections::{HashMap, HashSet};

/// Nanoseconds of one tick: `/proc` counts hundredths of seconds (`USER_HZ`) on each architecture that Rust has.
const TICK: u64 = 10_000_000;
/// Steps to an ancestor, which end where a process was replaced while it was looked at.
const DEEPEST: usize = 64;

/// CPU time and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// CPU time until now, in nanoseconds.
    pub(crate) cpu_nanos: u64,
    /// Memory that is resident, in bytes.
    pub(crate) memory_bytes: u64,
}

/// A process, as its `stat` tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    group: i32,
    session: i32,
    /// Its own time, and that of children that it has waited for.
    ticks: u64,
}

/// What process groups use, with whatever their members have started. A group of which nothing runs uses nothing.
pub(crate) fn of_groups(groups: &HashSet<i32>) -> HashMap<i32, Times> {
    let mut found: HashMap<i32, Times> = groups.iter().map(|group| (*group, Times::default())).collect();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // Processes may end while they are read.
    let read = |id: i32| Some((id, Stat::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?));
    let all: HashMap<i32, Stat> = ids.filter_map(read).collect();
    for (id, stat) in &all {
        let Some(times) = owner(&all, *id, groups).and_then(|group| found.get_mut(&group)) else { continue };
        times.cpu_nanos += stat.ticks.saturating_mul(TICK);
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        times.memory_bytes += kib(&status, "VmRSS:").unwrap_or(0) * 1024;
    }
    found
}

/// The group that a process belongs to: its own, that of its session, or that of an ancestor.
fn owner(all: &HashMap<i32, Stat>, id: i32, groups: &HashSet<i32>) -> Option<i32> {
    let mut id = id;
    for _ in 0..DEEPEST {
        let stat = all.get(&id)?;
        if let Some(group) = [stat.group, stat.session].into_iter().find(|group| groups.contains(group)) {
            return Some(group);
        }
        id = stat.parent;
    }
    None
}

/// The CPU time of the machine since it started, without what it was idle or waited, in nanoseconds.
pub(crate) fn machine_times() -> u64 {
    busy_ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or(0).saturating_mul(TICK)
}

/// The memory of the machine that can't be had without taking it from somebody, in bytes.
pub(crate) fn machine_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let [total, available] = ["MemTotal:", "MemAvailable:"].map(|name| kib(&text, name).unwrap_or(0));
    total.saturating_sub(available) * 1024
}

impl Stat {
    /// Reads `/proc/PID/stat`. The command's name stands in brackets and can contain anything; what follows is counted from
    /// the state, the third field.
    fn parse(text: &str) -> Option<Self> {
        let (_, after) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3);
        let id = |number: usize| field(number)?.parse::<i32>().ok();
        let ticks = (14..=17).filter_map(|number| field(number)?.parse::<u64>().ok()).sum();
        Some(Self { parent: id(4)?, group: id(5)?, session: id(6)?, ticks })
    }
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields = line.split_whitespace().take(7).enumerate().filter(|(at, _)| !matches!(at, 3 | 4));
    fields.map(|(_, text)| text.parse::<u64>().ok()).sum()
}

/// A line of `/proc/meminfo` or `/proc/PID/status` that counts KiB.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_proc_are_read() {
        let stat = "42 (a) b) c) S 7 42 40 34816 42 4194304 1 2 3 4 10 20 30 40 20 0 1 0 99 1 1";
        assert_eq!(Stat::parse(stat), Some(Stat { parent: 7, group: 42, session: 40, ticks: 100 }));
        assert_eq!(Stat::parse("42 (a"), None);
        assert_eq!(busy_ticks("cpu  1 2 3 1000 1000 4 5 6 7 8\ncpu0 1"), Some(15));
        assert_eq!(busy_ticks(""), None);
        assert_eq!(kib("VmPeak: 5 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
    }

    #[test]
    fn a_process_belongs_to_the_group_of_its_ancestors() {
        let stat = |parent, group, session| Stat { parent, group, session, ticks: 0 };
        let all = HashMap::from([
            (1, stat(0, 1, 1)),
            (10, stat(1, 10, 1)),
            (11, stat(10, 11, 11)),
            (12, stat(11, 12, 12)),
            (20, stat(20, 20, 20)),
        ]);
        let groups = HashSet::from([10]);
        let owners = [1, 10, 11, 12, 20, 99].map(|id| owner(&all, id, &groups));
        assert_eq!(owners, [None, Some(10), Some(10), Some(10), None, None]);
    }

    #[test]
    fn what_this_process_uses_is_found() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        let found = of_groups(&HashSet::from([group, i32::MAX]));
        assert!(found[&group].memory_bytes > 0);
        assert_eq!(found[&i32::MAX], Times::default());
        assert!(machine_times() > 0 && machine_memory() > 0);
    }
}
