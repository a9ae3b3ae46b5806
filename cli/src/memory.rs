//! Amounts of memory on the command line.

use anyhow::{Context, Result, ensure};
use freehold_apiserver::CacheOptions;

/// The least that a cache works with.
const LEAST: usize = 16 << 20;

/// How much memory control planes may take.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct CacheArgs {
    /// Memory for objects of control planes, in bytes or with Ki, Mi or Gi. Above it the least recently used planes are
    /// evicted and loaded again on demand.
    #[arg(long, default_value = "256Mi", value_parser = bytes)]
    cache_memory: usize,
}

impl CacheArgs {
    /// As the apiserver takes it.
    pub(crate) fn options(self) -> CacheOptions {
        CacheOptions { memory: self.cache_memory, ..CacheOptions::default() }
    }
}

/// An amount such as `268435456`, `256Mi` or `1Gi`.
fn bytes(text: &str) -> Result<usize> {
    let units = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("", 1)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))
        .unwrap_or((text, 1));
    let number: usize =
        number.parse().context("it must be a whole number, optionally followed by Ki, Mi or Gi")?;
    let amount = number.checked_mul(unit).context("it is too large")?;
    ensure!(amount >= LEAST, "at least 16Mi is needed");
    Ok(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_with_and_without_a_unit() {
        for (text, amount) in
            [("16777216", 16 << 20), ("256Mi", 256 << 20), ("2Gi", 2 << 30), ("32768Ki", 32 << 20)]
        {
            assert_eq!(bytes(text).unwrap(), amount, "{text}");
        }
        for text in ["", "Mi", "1", "1Ti", "-1Gi", "1.5Gi", "99999999999Gi"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
