//! Measured figures, as the document has them that `make bench` writes.

use anyhow::{Context, Result};

/// Column of the document: on the embedded engine, or on etcd.
const EMBEDDED: &str = "embedded";
const ETCD: &str = "on etcd";
/// Memory for objects of planes that the server with 100,000 planes had (`--cache-memory`), all of which was in use.
const BUDGET: f64 = 256.0 * 1024.0 * 1024.0;

/// What one plane, one request and one process were measured to need: bytes and seconds.
///
/// A plane is that of the benchmark: a namespace, a binding and five ConfigMaps of 1 KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Memory of a server without planes.
    pub(crate) base: f64,
    /// Memory of a server for each plane that exists.
    pub(crate) known: f64,
    /// Memory of a server for the objects of each plane that it has in memory.
    pub(crate) resident: f64,
    /// Bytes of a plane in one member of etcd.
    pub(crate) stored: f64,
    /// Processor time of a request among 70 % gets, 10 % lists and 20 % writes, that of etcd included.
    pub(crate) request: f64,
    /// Processor time of a server to bring a plane into memory.
    pub(crate) load: f64,
    /// Processor time of one receiver of an event.
    pub(crate) event: f64,
    /// Processor time of a second at rest for each plane that exists.
    pub(crate) rest: f64,
    /// Writes a second that one etcd took, on two processors that server and client used too.
    pub(crate) writes: f64,
    /// Memory of a controller manager for each plane that it works in.
    pub(crate) manager: f64,
    /// Processor time of a second at rest of a controller manager, for each plane.
    pub(crate) manager_rest: f64,
    /// Memory of a dedicated pair beside others on one machine.
    pub(crate) pair: f64,
}

/// Reads a number with its unit: `2.5 MB`, `280 µs (3578/s)`, `1668/s`, `1 %`. The second of two is left out.
pub(crate) fn number(cell: &str) -> Option<f64> {
    let cell = cell.trim();
    let end = cell.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(cell.len());
    let (digits, unit) = cell.split_at(end);
    let factor = match unit.split_whitespace().next().unwrap_or_default() {
        "" | "B" | "s" | "/s" => 1.0,
        "GB" => 1e9,
        "MB" => 1e6,
        "KB" => 1e3,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "%" => 0.01,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * factor)
}

/// The figure of a row: in the tables of a part, the first whose title begins so, in the column of a server.
fn figure(document: &str, part: &str, title: &str, row: &str, column: &str) -> Option<f64> {
    let (_, rest) = document.split_once(&format!("<!-- {part}: begin -->"))?;
    let (tables, _) = rest.split_once(&format!("<!-- {part}: end -->"))?;
    let table = tables.split("\n### ").skip(1).find(|table| table.starts_with(title))?;
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = table.lines().filter(|line| line.starts_with('|')).map(cells);
    let place = lines.next()?.iter().position(|heading| heading == column)?;
    number(lines.find(|cells| cells.first().is_some_and(|name| name == row))?.get(place)?)
}

impl Figures {
    /// Reads the figures from `docs/benchmarks.md`.
    ///
    /// # Errors
    /// A row is not there, or its value can't be read.
    pub(crate) fn read(document: &str) -> Result<Self> {
        let get = |part: &str, title: &str, row: &str, column: &str| {
            figure(document, part, title, row, column)
                .with_context(|| format!("no figure in part {part:?}, row {row:?}, {column:?}"))
        };
        let planes = |row: &str| get("planes", "10000 shared planes", row, ETCD);
        let many = |row: &str| get("planes-100000", "100000 shared planes", row, EMBEDDED);
        let sync = |row: &str| get("sync", "A controller manager over 10000 planes", row, EMBEDDED);
        let idle = |row: &str, column: &str| get("idle", "Idle", row, column);
        let pair = |row: &str| get("dedicated", "Dedicated pairs", row, ETCD);
        let memory = "resident memory of the server";
        let rest = "CPU time in 10 s of rest";
        let beyond =
            many("resident memory of the server, all of them idle")? - idle(memory, EMBEDDED)? - BUDGET;
        let known = beyond / many("planes that exist")?;
        let count = planes("planes that exist")?;
        Ok(Self {
            base: idle(memory, ETCD)?,
            known,
            resident: planes("resident memory of each")? - known,
            stored: planes("disk of each")?,
            request: get("mixed", "1000 tenants", "server CPU of each request", ETCD)?,
            load: planes("server CPU of that")?,
            event: get(
                "watches",
                "Updates of a ConfigMap of 1 KiB with 1000 watchers",
                "server CPU for each event and watcher, the update included",
                ETCD,
            )?,
            rest: (planes(rest)? - idle(rest, ETCD)?) / 10.0 / count,
            writes: get("verbs", "ConfigMaps of 1 KiB: requests a second", "update", ETCD)?,
            manager: sync("its resident memory")? / 1e4,
            manager_rest: sync("its CPU at rest, of a core")? / 1e4,
            pair: pair("apiserver, with shared pages divided")?
                + pair("controller-manager, with shared pages divided")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_unit_behind_it() {
        let rows = [
            ("22.5 KB", Some(22_500.0)),
            ("280 µs (3578/s)", Some(280e-6)),
            ("1.4 ms / 5.4 ms", Some(0.0014)),
            ("1668/s", Some(1668.0)),
            ("1 %", Some(0.01)),
            ("10000", Some(10_000.0)),
            ("", None),
            ("3 cows", None),
        ];
        for (cell, expected) in rows {
            let read = number(cell);
            let equal = match (read, expected) {
                (Some(read), Some(expected)) => (read - expected).abs() < 1e-9 * expected,
                (read, expected) => read == expected,
            };
            assert!(equal, "{cell:?}: {read:?}");
        }
    }

    #[test]
    fn a_figure_is_found_by_part_title_row_and_column() {
        let document = "<!-- a: begin -->\nx\n\n### One\n\n| | embedded | on etcd |\n| --- | ---: | ---: |\n| row | 1 s | 2 ms |\n\
                        \n### Two\n\n| | on etcd |\n| --- | ---: |\n| row | 3 KB |\n<!-- a: end -->\n";
        assert_eq!(figure(document, "a", "One", "row", ETCD), Some(0.002));
        assert_eq!(figure(document, "a", "Two", "row", ETCD), Some(3000.0));
        assert_eq!(figure(document, "a", "Two", "row", EMBEDDED), None);
        assert_eq!(figure(document, "b", "One", "row", ETCD), None);
    }
}
