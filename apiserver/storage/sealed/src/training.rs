//! Dictionaries from a store's own objects.
//!
//! Servers note which keys of a type they wrote. When there are enough, one of them reads these objects, trains, and
//! keeps the dictionary if it makes objects that it was not trained on clearly shorter. Bounds: one training at a time
//! among all servers of a store, on one thread, over at most [`MAX_SAMPLE_BYTES`]; [`MAX_TYPES`] types are looked at, and
//! each type gets at most [`MAX_GENERATIONS`] dictionaries.
//!
//! Servers agree through `system/training`, JSON: `next`, the identifier of the next dictionary, and `until`, the time in
//! seconds to which one of them has the turn. A dictionary is committed on condition that this record is as it was taken.

use crate::{
    compress::{Dictionary, LEVEL},
    dictionaries::{self, FIRST_TRAINED, MAX_TRAINED},
    kinds::{Area, Type, area},
    store::Core,
};
use bytes::Bytes;
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, StoreError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Bytes of a dictionary.
pub(crate) const DICTIONARY_BYTES: usize = 16 << 10;
/// Most bytes of objects that are trained on.
const MAX_SAMPLE_BYTES: usize = 1 << 20;
/// Longest object that is trained on.
const MAX_SAMPLE: usize = 32 << 10;
/// Most objects that are trained on.
const SAMPLES: usize = 512;
/// Fewest objects that are trained on.
const MIN_SAMPLES: usize = 100;
/// After how many writes of a type it is trained for the first time; each further time after eight times as many.
const FIRST: u64 = 400;
/// Most types that are looked at.
const MAX_TYPES: usize = 256;
/// Most dictionaries of one type.
const MAX_GENERATIONS: u32 = 4;
/// How long a server has the turn, in seconds.
const TURN: i64 = 300;

/// What was written, by type.
#[derive(Default)]
pub(crate) struct Training {
    seen: Mutex<HashMap<Box<str>, TypeSample>>,
    ready: Mutex<VecDeque<Box<str>>>,
}

struct TypeSample {
    writes: u64,
    next: u64,
    tried: u32,
    /// A sample of the keys, evenly of all writes.
    keys: Vec<Key>,
}

#[derive(Default, Serialize, Deserialize)]
struct TrainingLease {
    next: u32,
    until: i64,
}

impl Training {
    /// Notes a write; true when the type should be trained.
    fn note(&self, ty: Type<'_>, key: &Key) -> bool {
        let mut seen = self.seen.lock();
        if !seen.contains_key(ty.0) {
            if seen.len() >= MAX_TYPES {
                return false;
            }
            seen.insert(ty.0.into(), TypeSample { writes: 0, next: FIRST, tried: 0, keys: Vec::new() });
        }
        let Some(seen) = seen.get_mut(ty.0).filter(|seen| seen.tried < MAX_GENERATIONS) else { return false };
        seen.writes += 1;
        if seen.keys.len() < SAMPLES {
            seen.keys.push(key.clone());
        } else {
            // Each write so far is in the sample with the same chance.
            let place = xxhash_rust::xxh3::xxh3_64_with_seed(key.as_bytes(), seen.writes) % seen.writes;
            if let Some(slot) = usize::try_from(place).ok().and_then(|place| seen.keys.get_mut(place)) {
                *slot = key.clone();
            }
        }
        if seen.writes < seen.next {
            return false;
        }
        seen.next = seen.next.saturating_mul(8);
        seen.tried += 1;
        if seen.tried == MAX_GENERATIONS {
            seen.keys.shrink_to_fit();
        }
        self.ready.lock().push_back(ty.0.into());
        true
    }

    fn sample(&self, ty: &str) -> Vec<Key> {
        let keys = self.seen.lock().get(ty).map(|seen| seen.keys.clone()).unwrap_or_default();
        keys.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Core {
    /// Takes note of what was written.
    pub(crate) fn observe(&self, keys: &[Key]) {
        if !self.codec.compress {
            return;
        }
        for key in keys {
            if let Some(Area::Object(ty)) = area(key)
                && ty.may_train()
                && self.training.note(ty, key)
            {
                self.work.notify_one();
            }
        }
    }

    /// Trains what has enough objects.
    pub(crate) async fn train(&self) {
        loop {
            let Some(ty) = self.training.ready.lock().pop_front() else { return };
            match self.train_type(Type(&ty)).await {
                Ok(Some(id)) => tracing::info!(r#type = %ty, dictionary = id, "trained a dictionary"),
                Ok(None) => tracing::debug!(r#type = %ty, "no dictionary was trained"),
                Err(error) => tracing::warn!(r#type = %ty, %error, "failed to train a dictionary"),
            }
        }
    }

    async fn train_type(&self, ty: Type<'_>) -> Result<Option<u32>, StoreError> {
        let samples = self.samples(ty).await?;
        if samples.len() < MIN_SAMPLES || self.codec.dictionaries.trained() >= MAX_TRAINED {
            return Ok(None);
        }
        let Some((turn, taken)) = self.take_turn().await? else { return Ok(None) };
        let current = self.codec.dictionaries.of_type(ty);
        let train = move || trained(&samples, &current);
        let Ok(bytes) = tokio::task::spawn_blocking(train).await else { return Ok(None) };
        let (next, id) = if bytes.is_some() { (turn.next + 1, turn.next) } else { (turn.next, 0) };
        let mut changes = vec![Change::Put(turn_key(), json(&TrainingLease { next, until: 0 }))];
        if let Some(bytes) = &bytes {
            let key = dictionaries::key(id, ty);
            let sealed = self.seal(&key, bytes).await?;
            changes.push(Change::Put(key, sealed));
        }
        let expect = vec![Expect { key: turn_key(), modified: taken }];
        let done = matches!(self.inner.commit(Commit { expect, changes }).await?, Committed::Done(_));
        let Some(bytes) = bytes.filter(|_| done) else { return Ok(None) };
        self.codec.dictionaries.load(id, &bytes);
        self.codec.dictionaries.note(&dictionaries::key(id, ty));
        Ok(Some(id))
    }

    /// The objects to train on, opened.
    async fn samples(&self, ty: Type<'_>) -> Result<Vec<Bytes>, StoreError> {
        let (mut samples, mut bytes) = (Vec::new(), 0);
        for key in self.training.sample(ty.0) {
            let Some(found) = self.inner.get(&key).await? else { continue };
            let value = self.open(&key, &found.value).await?;
            if value.len() > MAX_SAMPLE {
                continue;
            }
            bytes += value.len();
            if bytes > MAX_SAMPLE_BYTES {
                break;
            }
            samples.push(value);
        }
        Ok(samples)
    }

    /// Takes the turn; `None` while another server has it. Gives the revision that the end must expect.
    async fn take_turn(&self) -> Result<Option<(TrainingLease, u64)>, StoreError> {
        let found = self.inner.get(&turn_key()).await?;
        let modified = found.as_ref().map_or(0, |found| found.modified);
        let turn: TrainingLease = found
            .and_then(|found| serde_json::from_slice(&found.value).ok())
            .unwrap_or(TrainingLease { next: FIRST_TRAINED, until: 0 });
        let now = jiff::Timestamp::now().as_second();
        if turn.until > now {
            return Ok(None);
        }
        let turn = TrainingLease { next: turn.next.max(FIRST_TRAINED), until: now + TURN };
        let commit = Commit {
            expect: vec![Expect { key: turn_key(), modified }],
            changes: vec![Change::Put(turn_key(), json(&turn))],
        };
        match self.inner.commit(commit).await? {
            Committed::Done(revision) => Ok(Some((turn, revision))),
            Committed::Refused(_) => Ok(None),
        }
    }
}

fn turn_key() -> Key {
    Key::system("training")
}

fn json(turn: &TrainingLease) -> Bytes {
    serde_json::to_vec(turn).expect("numbers are always JSON").into()
}

/// A dictionary that makes each fifth object, which it is not trained on, shorter by a tenth than the current one does.
fn trained(samples: &[Bytes], current: &Dictionary) -> Option<Bytes> {
    let kept = |nth: usize| nth.is_multiple_of(5);
    let (mut text, mut sizes) = (Vec::new(), Vec::new());
    for (_, sample) in samples.iter().enumerate().filter(|(nth, _)| !kept(*nth)) {
        text.extend_from_slice(sample);
        sizes.push(sample.len());
    }
    let bytes = train(&text, &sizes)?;
    let fresh = Dictionary::new(current.id, &bytes, LEVEL)?;
    let held_out = || samples.iter().enumerate().filter(|(nth, _)| kept(*nth)).map(|(_, sample)| sample);
    let size = |dictionary: &Dictionary| -> usize {
        let mut out = Vec::new();
        let length = |sample: &Bytes| {
            out.clear();
            if dictionary.compress(sample, sample.len(), &mut out) { out.len() } else { sample.len() }
        };
        held_out().map(length).sum()
    };
    (size(&fresh) * 10 <= size(current) * 9).then(|| bytes.into())
}

/// Trains on objects that follow each other in `text`; `None` where there is too little to learn from.
pub(crate) fn train(text: &[u8], sizes: &[usize]) -> Option<Vec<u8>> {
    let mut dictionary = Vec::with_capacity(DICTIONARY_BYTES);
    zstd_safe::train_from_buffer(&mut dictionary, text, sizes).ok()?;
    Some(dictionary)
}
