//! Inputs of JSON: objects, patches, and lists of several of them.

use crate::{Input, Random};
use serde_json::{Map, Value, json};

/// The most parts that an input has.
const LARGEST: usize = 4000;
/// How deep something is nested at most in one step.
const NESTED: usize = 150;

impl Input for Value {
    fn mutated(&self, other: &Self, words: &[&str], random: &mut Random) -> Self {
        let mut value = self.clone();
        for _ in 0..=random.below(4) {
            let part = nth(other, random.below(size(other))).clone();
            let place = random.below(size(&value));
            mutate(nth_mut(&mut value, place), part, words, random);
        }
        if size(&value) > LARGEST { self.clone() } else { value }
    }

    fn smaller(&self) -> Box<dyn Iterator<Item = Self> + '_> {
        let children = |place: usize| match nth(self, place) {
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        };
        let places =
            (0..size(self)).flat_map(move |place| (0..children(place)).map(move |child| (place, child)));
        Box::new(places.map(|(place, child)| remove(self, place, child)))
    }
}

/// The value without one child of one of its parts.
fn remove(value: &Value, place: usize, child: usize) -> Value {
    let mut value = value.clone();
    match nth_mut(&mut value, place) {
        Value::Array(items) => drop(items.remove(child)),
        Value::Object(map) => {
            let key = map.keys().nth(child).cloned();
            key.map(|key| map.remove(&key));
        }
        _ => {}
    }
    value
}

/// How many parts a value has, itself among them.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(map) => map.values().map(size).sum::<usize>(),
        _ => 0,
    }
}

/// A part, counted from the outside in; the value itself where there are fewer.
fn nth(value: &Value, place: usize) -> &Value {
    let mut left = place;
    let mut at = value;
    'down: while left > 0 {
        left -= 1;
        let children: Vec<&Value> = match at {
            Value::Array(items) => items.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => return value,
        };
        for child in children {
            let size = size(child);
            if left < size {
                at = child;
                continue 'down;
            }
            left -= size;
        }
        return value;
    }
    at
}

fn nth_mut(value: &mut Value, place: usize) -> &mut Value {
    let mut left = place;
    let mut at = value;
    while left > 0 {
        left -= 1;
        let children: Vec<&mut Value> = match at {
            Value::Array(items) => items.iter_mut().collect(),
            Value::Object(map) => map.values_mut().collect(),
            _ => unreachable!("places are counted before"),
        };
        at = children
            .into_iter()
            .find(|child| {
                let size = size(child);
                let found = left < size;
                left -= if found { 0 } else { size };
                found
            })
            .expect("places are counted before");
    }
    at
}

/// A value that many decoders treat as a special one.
fn telling(words: &[&str], random: &mut Random) -> Value {
    match random.below(16) {
        0 => Value::Null,
        1 => true.into(),
        2 => 0.into(),
        3 => (-1).into(),
        4 => i64::MAX.into(),
        5 => i64::MIN.into(),
        6 => u64::MAX.into(),
        7 => json!(1e308),
        8 => json!(0.5),
        9 => "".into(),
        10 => "ä\u{0}\u{10ffff}".into(),
        11 => json!({}),
        12 => json!([]),
        13 => "x".repeat(300).into(),
        14 => random.any().to_string().into(),
        _ => random.of(words).copied().unwrap_or("a").into(),
    }
}

fn mutate(at: &mut Value, part: Value, words: &[&str], random: &mut Random) {
    let word = || random_word(words);
    match (random.below(6), &mut *at) {
        (0, Value::Array(items)) if !items.is_empty() => {
            let one = random.below(items.len());
            match random.below(3) {
                0 => drop(items.remove(one)),
                1 => items.push(items[one].clone()),
                _ => items.swap(0, one),
            }
        }
        (1, Value::Array(items)) => items.push(part),
        (0, Value::Object(map)) if !map.is_empty() => {
            let key = map.keys().nth(random.below(map.len())).cloned().unwrap_or_default();
            drop(map.remove(&key));
        }
        (1 | 2, Value::Object(map)) => {
            let key = word()(random);
            let value = if random.once_in(2) { part } else { telling(words, random) };
            map.insert(key, value);
        }
        (3, Value::Object(map)) if !map.is_empty() => {
            let key = map.keys().nth(random.below(map.len())).cloned().unwrap_or_default();
            let value = map.remove(&key).unwrap_or_default();
            map.insert(word()(random), value);
        }
        (4, _) => *at = part,
        (5, _) if random.once_in(16) => {
            for _ in 0..random.below(NESTED) {
                let inner = at.take();
                *at = match random.once_in(2) {
                    true => Value::Array(vec![inner]),
                    false => Value::Object(Map::from_iter([(word()(random), inner)])),
                };
            }
        }
        _ => *at = telling(words, random),
    }
}

fn random_word(words: &[&str]) -> impl Fn(&mut Random) -> String {
    |random| match random.once_in(8) {
        true => telling(words, random).to_string(),
        false => random.of(words).copied().unwrap_or("a").to_owned(),
    }
}
