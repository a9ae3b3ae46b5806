//! Inputs of bytes: text and binary formats.

use crate::{Input, Random};

/// The longest input that is made, in bytes.
const LONGEST: usize = 64 * 1024;
/// Most times that a part is repeated: deeper than any decoder nests.
const REPEATED: usize = 600;
/// Bytes with a meaning in many formats.
const TELLING: &[u8] = b"\0\x01\x7f\x80\xff{}[]()\",:=!\\/ \t\n-+.0919eE'#&*|>%@`$<~";

impl Input for Vec<u8> {
    fn mutated(&self, other: &Self, words: &[&str], random: &mut Random) -> Self {
        let mut bytes = self.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, other, words, random);
        }
        bytes.truncate(LONGEST);
        bytes
    }

    fn smaller(&self) -> Box<dyn Iterator<Item = Self> + '_> {
        let sizes =
            std::iter::successors(Some(self.len() / 2), |size| Some(size / 2)).take_while(|size| *size > 0);
        let parts = sizes.flat_map(|size| (0..self.len()).step_by(size).map(move |from| (from, size)));
        Box::new(parts.map(|(from, size)| {
            let mut bytes = self.clone();
            bytes.drain(from..(from + size).min(self.len()));
            bytes
        }))
    }
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(8) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            let byte = random.any() as u8;
            match bytes.get_mut(at) {
                Some(old) => *old = byte,
                None => bytes.push(byte),
            }
        }
        2 => bytes.insert(at, *random.of(TELLING).unwrap_or(&b' ')),
        3 => drop(bytes.drain(random.part(bytes.len()))),
        4 => {
            let part = bytes[random.part(bytes.len())].to_vec();
            let times = if random.once_in(8) { random.below(REPEATED) } else { 1 };
            let times = times.min(LONGEST / part.len().max(1));
            bytes.splice(at..at, part.repeat(times));
        }
        5 => {
            let part = other[random.part(other.len())].to_vec();
            bytes.splice(at..at, part);
        }
        6 => {
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        _ => {
            let word = random.of(words).copied().unwrap_or("0");
            let end = if random.once_in(2) { (at + word.len()).min(bytes.len()) } else { at };
            bytes.splice(at..end, word.bytes());
        }
    }
}
