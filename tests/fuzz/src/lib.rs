//! Fuzzing on the stable toolchain.
//!
//! A target is a function of an input that must not panic and says how it went. Inputs are made from seeds by mutation;
//! one that went as none before (its words, without what is quoted and without numbers) joins the seeds, so that the
//! search goes on from there: what coverage is to other fuzzers, the outcomes are here.
//!
//! A run in `make test` takes a fixed seed and a fixed number of inputs, so that it comes out the same each time.
//! `make fuzz` goes on for `FREEHOLD_FUZZ_SECONDS` for each target, from another seed each time; what it fails with says
//! the seed, which `FREEHOLD_FUZZ_SEED` takes.
//!
//! Must know nothing of what is tested.

mod bytes;
mod random;
mod value;

pub use random::Random;

use std::{
    collections::HashSet,
    fmt::Debug,
    hash::{DefaultHasher, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant, SystemTime},
};

/// Most inputs that are kept to go on from.
const KEPT: usize = 4096;
/// Most inputs that are tried to make one that fails smaller.
const SHRINKS: usize = 400;
/// The seed of runs in `make test`.
const SEED: u64 = 1;

/// What a target takes.
pub trait Input: Clone + Debug {
    /// Another one, from this one and one more. `words` are what the target's inputs are made of.
    fn mutated(&self, other: &Self, words: &[&str], random: &mut Random) -> Self;
    /// Smaller ones that might fail in the same way.
    fn smaller(&self) -> Box<dyn Iterator<Item = Self> + '_>;
}

/// A target's search.
pub struct Fuzz<I> {
    name: &'static str,
    seeds: Vec<I>,
    words: Vec<&'static str>,
    runs: u32,
}

impl<I: Input> Fuzz<I> {
    /// A search that begins with these inputs, of which there is at least one, and tries `runs` in `make test`.
    pub fn new(name: &'static str, seeds: impl IntoIterator<Item = I>, runs: u32) -> Self {
        Self { name, seeds: seeds.into_iter().collect(), words: Vec::new(), runs }
    }

    /// More of what inputs are made of: names and signs that chance would not find.
    pub fn words(mut self, words: &[&'static str]) -> Self {
        self.words.extend_from_slice(words);
        self
    }

    /// Searches. Panics with the smallest input found where `target` does.
    pub fn run(self, target: impl Fn(&I) -> String) {
        let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
        let until = number("FREEHOLD_FUZZ_SECONDS").map(|n| Instant::now() + Duration::from_secs(n));
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(SEED, |time| time.as_nanos() as u64);
        let seed = number("FREEHOLD_FUZZ_SEED").unwrap_or(if until.is_some() { now } else { SEED });
        let mut random = Random::new(seed);
        let (mut ways, mut kept, mut runs) = (HashSet::new(), Vec::new(), 0u32);
        let go_on = |runs: u32| until.map_or(runs < self.runs, |until| Instant::now() < until);
        for input in &self.seeds {
            ways.insert(way(&self.tried(&target, input, seed)));
            kept.push(input.clone());
        }
        while go_on(runs) {
            let at = |random: &mut Random| random.below(kept.len());
            let (one, other) = (at(&mut random), at(&mut random));
            let input = kept[one].mutated(&kept[other], &self.words, &mut random);
            runs += 1;
            if !ways.insert(way(&self.tried(&target, &input, seed))) {
                continue;
            }
            match kept.len() < KEPT {
                true => kept.push(input),
                false => kept[one] = input,
            }
        }
        println!("{}: {runs} inputs, {} outcomes, seed {seed}", self.name, ways.len());
    }

    fn tried(&self, target: &impl Fn(&I) -> String, input: &I, seed: u64) -> String {
        let run = |input: &I| catch_unwind(AssertUnwindSafe(|| target(input)));
        run(input).unwrap_or_else(|_| {
            let (mut small, mut left) = (input.clone(), SHRINKS);
            loop {
                let tries = small.smaller().take(left).inspect(|_| left -= 1);
                let Some(next) = { tries }.find(|next| run(next).is_err()) else { break };
                small = next;
            }
            panic!("{}, seed {seed}: fails with {small:?}", self.name)
        })
    }
}

/// The way that a run went: its words, without numbers and what is quoted.
fn way(said: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut quote = None;
    for byte in said.bytes() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None, b'"' | b'`' | b'\'') => quote = Some(byte),
            (None, byte) if !byte.is_ascii_digit() => hasher.write_u8(byte),
            _ => {}
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_search_finds_what_chance_alone_would_not() {
        // Four steps, each of which shows in what is said.
        let target = |input: &Vec<u8>| {
            let steps = b"fuzz".iter().zip(input).take_while(|(a, b)| a == b).count();
            assert!(steps < 4, "found");
            "step ".repeat(steps)
        };
        let found = catch_unwind(|| Fuzz::new("steps", [b"xxxx".to_vec()], 1_000_000).run(target));
        let said = *found.expect_err("it is found").downcast::<String>().expect("text");
        assert!(said.ends_with("fails with [102, 117, 122, 122]"), "{said}");
    }

    #[test]
    fn values_are_mutated_in_their_structure_and_made_smaller() {
        let target = |input: &Value| {
            assert!(input["spec"]["ports"][1]["name"].is_null(), "found");
            String::new()
        };
        let seeds = [json!({"spec": {"ports": [{"name": "a"}], "other": {"deep": [1, 2, 3]}}, "kind": "x"})];
        let found = catch_unwind(|| Fuzz::new("ports", seeds, 100_000).words(&["name"]).run(target));
        let said = *found.expect_err("it is found").downcast::<String>().expect("text");
        assert!(!said.contains("deep"), "{said}");
    }

    #[test]
    fn numbers_and_quoted_words_make_no_other_way() {
        assert_eq!(way(r#"unknown field "a" at 1"#), way(r#"unknown field "b" at 22"#));
        assert_ne!(way("unknown field"), way("duplicate field"));
    }
}
