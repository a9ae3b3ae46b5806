//! Metrics of the process, under the names of Prometheus' client libraries.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use std::fs;

/// The process, read from `/proc` when somebody asks.
#[derive(Debug)]
pub(crate) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stat = process_stat().unwrap_or_default();
        let (received, sent) = network().unwrap_or_default();
        let (files, memory) = limits().unwrap_or_default();
        let counters = [
            ("process_cpu_seconds", "Total user and system CPU time spent in seconds.", stat.cpu_seconds),
            ("process_network_receive_bytes", "Bytes that the host received over the network.", received),
            ("process_network_transmit_bytes", "Bytes that the host sent over the network.", sent),
        ];
        for (name, help, value) in counters {
            let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::<f64>::new(value).encode(descriptor)?;
        }
        let gauges = [
            ("process_max_fds", "Maximum number of open file descriptors.", files),
            (
                "process_virtual_memory_max_bytes",
                "Maximum amount of virtual memory available in bytes.",
                memory,
            ),
            ("process_resident_memory_bytes", "Resident memory size in bytes.", stat.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", stat.virtual_bytes),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                stat.started,
            ),
            ("process_open_fds", "Number of open file descriptors.", open_files()),
        ];
        for (name, help, value) in gauges {
            let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::<f64>::new(value).encode(descriptor)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct ProcessStat {
    cpu_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    started: f64,
}

/// Ticks per second of times in `/proc`: the kernel's `USER_HZ`, 100 on all platforms that Rust supports.
const TICKS: f64 = 100.0;

fn process_stat() -> Option<ProcessStat> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The command's name, in parentheses, may hold anything; fields are counted from behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        line.trim().split(' ').next()?.parse::<f64>().ok()
    };
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse::<f64>().ok()?;
    Some(ProcessStat {
        cpu_seconds: (number(11) + number(12)) / TICKS,
        resident_bytes: kilobytes("VmRSS:").unwrap_or(0.0) * 1024.0,
        virtual_bytes: kilobytes("VmSize:").unwrap_or(0.0) * 1024.0,
        started: boot + number(19) / TICKS,
    })
}

fn open_files() -> f64 {
    fs::read_dir("/proc/self/fd").map_or(0.0, |dir| dir.count() as f64)
}

/// Bytes that went in and out of all interfaces of this network namespace.
fn network() -> Option<(f64, f64)> {
    let table = fs::read_to_string("/proc/self/net/dev").ok()?;
    let mut sums = (0.0, 0.0);
    for line in table.lines().filter_map(|line| line.split_once(':')) {
        let mut numbers = line.1.split_whitespace().map(|number| number.parse::<f64>().unwrap_or(0.0));
        sums.0 += numbers.next().unwrap_or(0.0);
        // What was sent stands in the ninth column.
        sums.1 += numbers.nth(7).unwrap_or(0.0);
    }
    Some(sums)
}

/// How many files, and bytes of memory, the process may have; -1 where there is no limit.
fn limits() -> Option<(f64, f64)> {
    let table = fs::read_to_string("/proc/self/limits").ok()?;
    let soft = |name: &str| {
        let line = table.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some((soft("Max open files").unwrap_or(-1.0), soft("Max address space").unwrap_or(-1.0)))
}
