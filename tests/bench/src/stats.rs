//! Quantiles of durations.

use std::time::Duration;

/// Durations that were measured one by one.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// The smallest sample that at least `share` (0 to 1) of all samples do not exceed; zero without samples.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The median.
    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// What 99 of 100 do not exceed.
    pub(crate) fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// Each without a part of it, of which there is one for each.
    pub(crate) fn without(&self, parts: &[Duration]) -> Self {
        self.0.iter().zip(parts).map(|(whole, part)| whole.saturating_sub(*part)).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_of_the_nearest_rank() {
        let rows: [(&[u64], f64, u64); 6] = [
            (&[], 0.5, 0),
            (&[7], 0.99, 7),
            (&[3, 1, 2], 0.5, 2),
            (&[4, 3, 2, 1], 0.5, 2),
            (&[4, 3, 2, 1], 0.75, 3),
            (&[1, 2, 3, 4, 5], 0.99, 5),
        ];
        for (samples, share, expected) in rows {
            let samples: Samples = samples.iter().map(|ms| Duration::from_millis(*ms)).collect();
            assert_eq!(samples.quantile(share), Duration::from_millis(expected), "{samples:?} at {share}");
        }
    }
}
