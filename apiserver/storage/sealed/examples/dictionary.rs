//! Makes the dictionary that the program brings, from `data/samples.jsonl`: objects as stores have them, one a line.
//!
//! ```text
//! cargo run -p freehold-apiserver-storage-sealed --example dictionary -- data/builtin-2.dictionary
//! ```
//! A dictionary that was released is never made again: values need it as it is. Another one gets another number.

use std::{collections::BTreeMap, path::Path};

/// Times that each object is varied: its names, identifiers, times and addresses are others each time.
const VARIATIONS: usize = 8;
/// Bytes of the dictionary.
const BYTES: usize = 32 << 10;
/// What a stored object begins with.
const FORMAT: u8 = 1;
/// Names in the samples that are of no more worth than others.
const NAMES: [&str; 10] = [
    "ledger",
    "orders",
    "catalog",
    "payments",
    "warehouse",
    "storefront",
    "monitoring",
    "gadget",
    "widget",
    "reconcile",
];
const SYLLABLES: [&str; 16] = [
    "ba", "cor", "del", "fen", "gri", "hol", "jun", "kal", "mir", "nov", "pra", "qui", "rus", "tel", "vex",
    "zim",
];

/// Numbers that are the same in each run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).unwrap_or(0)
    }

    fn word(&mut self) -> String {
        (0..2 + self.next(3)).map(|_| SYLLABLES[self.next(SYLLABLES.len())]).collect()
    }

    /// Replaces runs of hexadecimal and decimal digits that mean nothing by others.
    fn digits(&mut self, text: &str) -> String {
        let identifier = |run: &str| run.len() >= 4 && run.bytes().any(|byte| byte.is_ascii_digit());
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let end =
                rest.find(|c: char| !c.is_ascii_hexdigit() || c.is_ascii_uppercase()).unwrap_or(rest.len());
            if identifier(&rest[..end]) && !rest.starts_with("2026") {
                out.extend((0..end).map(|_| char::from(b"0123456789abcdef"[self.next(16)])));
                rest = &rest[end..];
            } else {
                let step = end.max(first.len_utf8());
                out.push_str(&rest[..step]);
                rest = &rest[step..];
            }
        }
        out
    }

    fn vary(&mut self, sample: &str) -> String {
        let mut names = BTreeMap::new();
        let mut text = sample.to_owned();
        for name in NAMES {
            let word = names.entry(name).or_insert_with(|| self.word());
            text = text.replace(name, word);
        }
        let time = |numbers: &mut Self| {
            let (month, day) = (1 + numbers.next(12), 1 + numbers.next(28));
            let (hour, minute, second) = (numbers.next(24), numbers.next(60), numbers.next(60));
            format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
        };
        while text.contains("2026-03-01T10:00:00Z") {
            text = text.replacen("2026-03-01T10:00:00Z", &time(self), 1);
        }
        self.digits(&text)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = std::env::args().nth(1).ok_or("usage: dictionary FILE")?;
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/samples.jsonl");
    let samples = std::fs::read_to_string(samples)?;
    let mut numbers = Numbers(1);
    let (mut text, mut sizes) = (Vec::new(), Vec::new());
    for sample in samples.lines() {
        for _ in 0..VARIATIONS {
            let varied = numbers.vary(sample);
            text.push(FORMAT);
            text.extend_from_slice(varied.as_bytes());
            sizes.push(varied.len() + 1);
        }
    }
    let mut dictionary = Vec::with_capacity(BYTES);
    zstd_safe::train_from_buffer(&mut dictionary, &text, &sizes).map_err(zstd_safe::get_error_name)?;
    println!("{} bytes from {} objects of {} bytes", dictionary.len(), sizes.len(), text.len());
    std::fs::write(out, dictionary)?;
    Ok(())
}
