//! Random numbers that come again with their seed.

/// A source of random numbers: SplitMix64.
pub struct Random(u64);

impl Random {
    /// A generator that returns the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, of all that 64 bits can hold.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.any() % end as u64) as usize }
    }

    /// Something of a list; `None` of an empty one.
    pub fn of<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A part of `length`: where it begins and ends.
    pub(crate) fn part(&mut self, length: usize) -> std::ops::Range<usize> {
        let from = self.below(length + 1);
        // Short ones more often than long ones.
        let reach = if self.once_in(4) { length } else { 8 };
        from..(from + self.below(reach + 1)).min(length)
    }
}
