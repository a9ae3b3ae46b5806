//! A million and ten million planes: what they need by arithmetic on measured figures, and a simulation of planes one by one
//! that the arithmetic is checked against. It starts no server.
//!
//! `docs/design/scale.md` has the tables; `make bench ARGS="--only scale --write"` writes them.

mod figures;
mod model;
mod page;
mod popularity;
mod simulation;

use crate::options::Options;
use anyhow::{Context, Result, ensure};
use figures::Figures;
use freehold_tests_harness::Random;
use model::machine;
use popularity::Popularity;
use simulation::{Ring, counts, fullest, hits, placed, reloaded};
use std::path::Path;

/// How unequally planes are used: an assumption.
const SKEW: f64 = 0.8;
/// Seconds after a server's end that are looked at.
const SECONDS: [f64; 2] = [1.0, 10.0];

/// What the model says, and what the simulation found.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) model: f64,
    pub(crate) simulated: f64,
    within: Within,
}

/// When the two agree.
#[derive(Clone, Copy, Debug)]
enum Within {
    /// They differ by no more than this, and four times what chance makes of so many.
    Of(f64, f64),
    /// The model is the most that there may be.
    Most,
    /// The simulation has between the model's and so many times it.
    Times(f64),
}

impl Check {
    /// Whether model and simulation agree.
    pub(crate) fn agrees(&self) -> bool {
        let Self { model, simulated, .. } = *self;
        match self.within {
            Within::Of(part, count) => (simulated - model).abs() <= model * (part + 4.0 / count.sqrt()),
            Within::Most => simulated <= model * (1.0 + 1e-6),
            Within::Times(times) => simulated >= model * 0.8 && simulated <= model * times,
        }
    }
}

/// A simulation's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) planes: usize,
    pub(crate) active: usize,
    pub(crate) servers: usize,
    pub(crate) etcds: usize,
    /// Requests a second for active planes.
    pub(crate) requests: f64,
}

/// Simulates planes, and compares with the model.
pub(crate) fn checks(size: &Size) -> Vec<Check> {
    let mut checks = memory(size);
    checks.extend(division(size));
    checks.extend(placement(size));
    checks
}

/// Planes in memory, with less room than all that are used would take.
fn memory(size: &Size) -> Vec<Check> {
    let popularity = Popularity::new(size.active as u64, SKEW);
    let check = |(part, name): (f64, &str)| {
        let room = size.active as f64 * part;
        let requests = size.active * 4;
        let simulated = hits(&popularity, size.active, room as usize, requests, 1);
        let what =
            format!("requests that find their plane in memory, with room for {name} of the active ones");
        Check {
            what,
            model: model::hits(&popularity, room),
            simulated,
            within: Within::Of(0.01, requests as f64),
        }
    };
    [(0.5, "half"), (0.1, "a tenth")].map(check).into()
}

/// Servers that divide the planes, and one of them that ends.
fn division(size: &Size) -> Vec<Check> {
    let ring = Ring::new(size.servers);
    let (before, after) =
        (ring.assign(size.planes, machine::SLACK), ring.without(0).assign(size.planes, machine::SLACK));
    let moved = before.iter().zip(&after).filter(|(was, is)| was != is).count() as f64;
    let mut checks = vec![
        Check {
            what: "fullest server, beside the mean".to_owned(),
            model: 1.0 + machine::SLACK,
            simulated: fullest(&counts(&before, size.servers)),
            within: Within::Most,
        },
        Check {
            what: "planes that change servers when one ends, of all".to_owned(),
            model: 1.0 / size.servers as f64,
            simulated: moved / size.planes as f64,
            within: Within::Times(1.0 + machine::SLACK),
        },
    ];
    // Popular planes are on any server.
    let mut order: Vec<u32> = before[..size.active].to_vec();
    let mut random = Random::new(2);
    (1..order.len()).for_each(|last| order.swap(last, random.index(last + 1)));
    let popularity = Popularity::new(size.active as u64, SKEW);
    let share = counts(&order, size.servers)[1] / size.active as f64;
    for seconds in SECONDS {
        let requests = size.requests * seconds;
        let model = model::distinct(&popularity, requests) * share;
        let simulated = reloaded(&popularity, &order, 1, requests as usize, 3) as f64;
        let what = format!("planes of a server that ended, loaded elsewhere within {seconds} s");
        checks.push(Check { what, model, simulated, within: Within::Of(0.02, model) });
    }
    checks
}

/// Etcds that new planes are placed on, and one of them that ends.
fn placement(size: &Size) -> Vec<Check> {
    let bytes = placed(size.planes, size.etcds, 4);
    let all: f64 = bytes.iter().sum();
    let largest = bytes.iter().copied().fold(0.0, f64::max);
    vec![
        Check {
            what: "fullest etcd, beside the mean".to_owned(),
            model: 1.0 / machine::FULL,
            simulated: fullest(&bytes),
            within: Within::Most,
        },
        Check {
            what: "bytes without service while the fullest etcd is away, of all".to_owned(),
            model: 1.0 / size.etcds as f64,
            simulated: largest / all,
            within: Within::Times(1.0 / machine::FULL),
        },
    ]
}

/// The sizes that are simulated for so many planes of a workload: as many servers and etcds as the model wants.
fn size(figures: &Figures, planes: f64) -> Size {
    let load = &model::WORKLOADS[1];
    let needs = model::needs(figures, load, model::Design::Divided, planes);
    let active = (planes * load.active) as usize;
    Size {
        planes: planes as usize,
        active,
        servers: needs.servers as usize,
        etcds: needs.etcds as usize,
        requests: needs.requests,
    }
}

/// Prints the tables, and writes them where that is asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let document = std::fs::read_to_string(&options.document)
        .with_context(|| format!("{} can't be read", options.document.display()))?;
    let figures = Figures::read(&document)?;
    let found: Vec<(f64, Vec<Check>)> =
        model::SIZES.iter().map(|planes| (*planes, checks(&size(&figures, *planes)))).collect();
    let (needs, checked) = (page::needs(&figures), page::checks(&found));
    println!("{needs}\n{checked}");
    let wrong: Vec<&Check> =
        found.iter().flat_map(|(_, checks)| checks).filter(|check| !check.agrees()).collect();
    ensure!(wrong.is_empty(), "model and simulation differ: {wrong:?}");
    if options.write {
        page::write(Path::new(page::PAGE), &[("needs", &needs), ("checks", &checked)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_and_simulation_agree() {
        let size = Size { planes: 60_000, active: 12_000, servers: 12, etcds: 6, requests: 2_000.0 };
        let wrong: Vec<Check> = checks(&size).into_iter().filter(|check| !check.agrees()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// `UPDATE=1 cargo test -p freehold-tests-bench scale` writes these tables anew.
    #[test]
    fn the_page_has_the_tables_of_the_model() {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let figures = Figures::read(&read(page::BENCHMARKS)).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            page::write(Path::new(page::PAGE), &[("needs", &page::needs(&figures))]).unwrap();
        }
        let page = read(page::PAGE);
        assert!(
            page.contains(&page::needs(&figures)),
            "docs/design/scale.md is old:\n{}",
            page::needs(&figures)
        );
    }
}
