//! How unequally planes are used: the requests of the n-th are as many as `1 / n^skew`.

/// Ranks that are looked at one by one; further ones are taken together, by hundredths of their rank.
const SINGLE: u64 = 256;

/// Shares of requests by the rank of a plane.
#[derive(Clone, Debug)]
pub(crate) struct Popularity {
    planes: u64,
    skew: f64,
    /// Numbers of planes, and the share of requests that each of them has.
    groups: Vec<(f64, f64)>,
}

impl Popularity {
    /// Makes the shares of so many planes; `skew` is below 1.
    pub(crate) fn new(planes: u64, skew: f64) -> Self {
        let mut new = Self { planes, skew, groups: Vec::new() };
        let mut rank = 0;
        while rank < planes {
            let step = if rank < SINGLE { 1 } else { rank / 100 };
            let next = (rank + step).min(planes);
            let count = (next - rank) as f64;
            new.groups.push((count, (new.below(next) - new.below(rank)) / count));
            rank = next;
        }
        new
    }

    /// Share of the requests that planes of a lower rank have.
    fn below(&self, rank: u64) -> f64 {
        let grown = |rank: f64| (rank + 1.0).powf(1.0 - self.skew) - 1.0;
        grown(rank as f64) / grown(self.planes as f64)
    }

    /// The plane of a request, by a number from 0 to 1.
    pub(crate) fn plane(&self, random: f64) -> u64 {
        let all = ((self.planes as f64) + 1.0).powf(1.0 - self.skew) - 1.0;
        let rank = (random * all + 1.0).powf(1.0 / (1.0 - self.skew)) - 1.0;
        (rank as u64).min(self.planes - 1)
    }

    /// The sum of something over all planes, by their shares of requests.
    pub(crate) fn sum(&self, of: impl Fn(f64) -> f64) -> f64 {
        self.groups.iter().map(|(count, share)| count * of(*share)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_are_those_that_are_drawn() {
        let popularity = Popularity::new(10_000, 0.8);
        assert!((popularity.sum(|share| share) - 1.0).abs() < 1e-9);
        assert!((popularity.sum(|_| 1.0) - 10_000.0).abs() < 1e-6);
        let draws = 20_000;
        let first =
            (0..draws).filter(|draw| popularity.plane(f64::from(*draw) / f64::from(draws)) == 0).count();
        let share = popularity.groups[0].1 * f64::from(draws);
        assert!((first as f64 - share).abs() <= 1.0, "{first} of {share}");
        assert_eq!(popularity.plane(1.0), 9_999);
    }
}
