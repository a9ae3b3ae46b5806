//! The tables of `docs/design/scale.md`, between markers that name them.

use super::figures::Figures;
use super::model::{Design, Needs, SIZES, WORKLOADS, machine, needs as compute};
use super::{Check, SKEW};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::Path;

/// The page with the tables.
pub(crate) const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/scale.md");
/// The document with the figures.
#[cfg(test)]
pub(crate) const BENCHMARKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");

/// A number in three digits or so, with the prefix of its unit.
fn short(value: f64, unit: &str) -> String {
    let steps = [
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    ];
    let (step, prefix) = steps.into_iter().find(|(step, _)| value.abs() >= *step).unwrap_or((1.0, ""));
    let scaled = value / step;
    let digits = usize::from(scaled < 10.0 && scaled.fract() > 0.05 && scaled.fract() < 0.95);
    let number = format!("{scaled:.digits$}");
    let prefix = if unit == "B" && prefix == "k" { "K" } else { prefix };
    match (prefix, unit) {
        ("", "") => number,
        _ => format!("{number} {prefix}{unit}"),
    }
}

/// A number, or what stands in place of one without an end.
fn finite(value: f64, otherwise: &str) -> String {
    if value.is_finite() { short(value, "") } else { otherwise.to_owned() }
}

/// A row of a table.
fn row(text: &mut String, name: &str, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<String> = cells.into_iter().collect();
    // Writing to a String can't fail.
    let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
}

/// The measured figures that the model begins with.
fn inputs(figures: &Figures) -> String {
    let bytes = |value: f64| short(value, "B");
    let rows = [
        ("memory of a server without planes", bytes(figures.base)),
        ("memory of a server for each plane that exists", bytes(figures.known)),
        ("memory of a server for the objects of a plane that is in use", bytes(figures.resident)),
        ("bytes of a plane in etcd", bytes(figures.stored)),
        ("processor time of a request, with etcd's", short(figures.request, "s")),
        ("processor time to bring a plane into memory", short(figures.load, "s")),
        ("processor time of a server for an event of another server's write", short(figures.event, "s")),
        ("processor time a second for each plane at rest", short(figures.rest, "s")),
        ("writes a second of an etcd, beside server and client on 2 processors", short(figures.writes, "/s")),
        ("memory of a controller manager for each plane", bytes(figures.manager)),
        ("memory of a dedicated pair", bytes(figures.pair)),
    ];
    let mut text = "| measured | |\n| --- | ---: |\n".to_owned();
    rows.into_iter().for_each(|(name, value)| row(&mut text, name, [value]));
    text
}

/// A row of needs: its name, and the cell of one column.
type Row = (&'static str, fn(&Needs) -> String);

const ROWS: [Row; 11] = [
    ("requests a second", |needs| short(needs.requests, "/s")),
    ("of which writes", |needs| short(needs.writes, "/s")),
    ("bytes in etcd, one copy", |needs| short(needs.bytes, "B")),
    ("etcds of three members", |needs| short(needs.etcds, "")),
    ("planes without service while one etcd is away", |needs| format!("{:.1} %", needs.lost * 100.0)),
    ("servers of 8 processors", |needs| finite(needs.servers, "no number is enough")),
    ("memory of each", |needs| short(needs.memory, "B")),
    ("processors that they use", |needs| finite(needs.cores, "")),
    ("until the planes of a server that died are in memory elsewhere", |needs| match needs.reload {
        0.0 => "they are".to_owned(),
        reload => short(reload, "s"),
    }),
    ("memory of the controller managers", |needs| short(needs.managers, "B")),
    ("a month, in some currency", |needs| finite(needs.cost, "")),
];

/// What planes need with one design.
fn table(figures: &Figures, design: Design) -> String {
    let columns = || SIZES.into_iter().flat_map(|planes| WORKLOADS.iter().map(move |load| (planes, load)));
    let all: Vec<Needs> = columns().map(|(planes, load)| compute(figures, load, design, planes)).collect();
    let mut text = String::new();
    row(
        &mut text,
        "",
        columns().map(|(planes, load)| format!("{} planes, {}", short(planes, ""), load.name)),
    );
    row(&mut text, "---", columns().map(|_| "---:".to_owned()));
    for (name, cell) in ROWS {
        row(&mut text, name, all.iter().map(cell));
    }
    let possible = |needs: &Needs| if needs.is_possible(design) { "yes" } else { "**no**" }.to_owned();
    row(&mut text, "possible on such machines", all.iter().map(possible));
    text
}

/// The tables of figures and needs.
pub(crate) fn needs(figures: &Figures) -> String {
    let assumed = WORKLOADS.iter().map(|load| {
        format!(
            "*{}*: planes of {} times the benchmark's objects, {:.0} % of them in use, {} requests a second of each of those, {:.0} % of \
             them writes.",
            load.name,
            load.size,
            load.active * 100.0,
            load.rate,
            load.writes * 100.0
        )
    });
    let assumed = assumed.collect::<Vec<_>>().join(" ");
    let [core, gigabyte, disk] = machine::PRICES;
    format!(
        "### Measured\n\n{}\n### Assumed\n\n{assumed} Machines of {:.0} processors and {} of memory for servers, {:.0} and {} for a member of \
         etcd; {:.0} % of the processors and of an etcd's measured writes are used, and {:.0} % of a quota of 8 GiB. A month costs {core} for a \
         processor, {gigabyte} for a GB of memory, {disk} for a GB of disk.\n\n### As the program is\n\n{}\n### With several etcds, and servers \
         that divide the planes\n\n{}",
        inputs(figures),
        machine::CORES,
        short(machine::MEMORY, "B"),
        machine::MEMBER_CORES,
        short(machine::MEMBER_MEMORY, "B"),
        machine::BUSY * 100.0,
        machine::FULL * 100.0,
        table(figures, Design::Whole),
        table(figures, Design::Divided),
    )
}

/// The table of what model and simulation say.
pub(crate) fn checks(found: &[(f64, Vec<Check>)]) -> String {
    let mut text = format!("Requests of the n-th plane are as many as 1 / n^{SKEW}.\n\n");
    row(
        &mut text,
        "",
        found.iter().flat_map(|(planes, _)| {
            ["model", "simulated"].map(|which| format!("{} planes, {which}", short(*planes, "")))
        }),
    );
    row(&mut text, "---", found.iter().flat_map(|_| ["---:".to_owned(), "---:".to_owned()]));
    let names = found.first().map(|(_, checks)| checks.as_slice()).unwrap_or_default();
    for (place, check) in names.iter().enumerate() {
        let cells = found.iter().flat_map(|(_, checks)| [checks[place].model, checks[place].simulated]);
        let cell = |value: f64| if value > 100.0 { short(value, "") } else { format!("{value:.3}") };
        row(&mut text, &check.what, cells.map(cell));
    }
    text
}

/// Puts tables between their markers.
///
/// # Errors
/// The page can't be read or written, or a marker is missing.
pub(crate) fn write(path: &Path, tables: &[(&str, &str)]) -> Result<()> {
    let mut page =
        std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
    for (name, table) in tables {
        page = crate::document::replace(&page, name, table)
            .with_context(|| format!("{} has no markers for {name}", path.display()))?;
    }
    std::fs::write(path, page).with_context(|| format!("{} can't be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let rows = [
            (1e6, "", "1 M"),
            (22_500.0, "B", "22 KB"),
            (1_360.0, "B", "1.4 KB"),
            (0.00028, "s", "280 µs"),
            (3.0, "", "3"),
            (14.1e9, "B", "14 GB"),
            (6e-7, "s", "600 ns"),
            (0.0, "s", "0 s"),
        ];
        for (value, unit, expected) in rows {
            assert_eq!(short(value, unit), expected);
        }
    }
}
