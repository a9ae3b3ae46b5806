//! Faults: the engine's process killed amid writes, and writes and syncs that fail or are torn below it. Whatever happens,
//! what was acknowledged is there once, nothing is there by halves, and watches that resume miss nothing: the checker of
//! histories proves it.
//!
//! Seeds are fixed. `FREEHOLD_FAULT_ROUNDS=1000` (`make test-long`) runs so many rounds of each.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod child;
mod life;

use life::{Fault, Lives};

/// Rounds of a test: few by default, many in the long form.
fn rounds(short: u64) -> u64 {
    std::env::var("FREEHOLD_FAULT_ROUNDS").map_or(short, |text| text.parse().expect("a number"))
}

/// Lives in one directory: its whole history is watched again in the end, so it must not be compacted.
const LIVES: u64 = 8;

/// Numbers that look random and are the same each time.
fn mixed(seed: u64) -> u64 {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

fn run(rounds: u64, fault: impl Fn(u64) -> Fault) {
    let mut acknowledged = 0;
    for first in (0..rounds).step_by(LIVES as usize) {
        let mut lives = Lives::new();
        for round in first..rounds.min(first + LIVES) {
            lives.live(round, &fault(round));
        }
        acknowledged += lives.check();
    }
    assert!(
        acknowledged >= rounds as usize,
        "hardly anything was written: {acknowledged} in {rounds} rounds"
    );
    println!("{rounds} rounds, {acknowledged} acknowledged writes");
}

#[test]
fn kill_nine_amid_a_storm_of_writes_loses_nothing_and_repeats_nothing() {
    run(rounds(12), |round| Fault::KillAfter(10 + mixed(round) % 300));
}

#[test]
fn writes_that_fail_or_are_torn_below_the_engine_lose_nothing_that_was_acknowledged() {
    const MODES: [&str; 6] = ["eio", "enospc", "short", "tear", "kill", "lose"];
    run(rounds(24), |round| Fault::Disk {
        mode: MODES[round as usize % MODES.len()],
        at: 1 + mixed(round) % 400,
        kill_after: 1 + mixed(round ^ 0xffff) % 200,
        seed: mixed(round) % 1_000_003,
    });
}
