//! Scaling what rolls out: each ReplicaSet gets its part of the difference, so that the rollout is as far as it was.

use super::rolling::Limits;

/// The size of a ReplicaSet, and how many pods its Deployment could have when it was scaled last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sized {
    pub(super) wanted: i64,
    pub(super) max_before: i64,
}

/// The new sizes of ReplicaSets that have pods, oldest first.
pub(super) fn proportional(limits: Limits, sets: &[Sized]) -> Vec<i64> {
    let mut sizes: Vec<i64> = sets.iter().map(|set| set.wanted).collect();
    let allowed = if limits.desired > 0 { limits.max() } else { 0 };
    let to_add = allowed - sizes.iter().sum::<i64>();
    if to_add == 0 {
        return sizes;
    }
    // Large ones first; of equal ones those that are to stay grow, and the others shrink.
    let mut order: Vec<usize> = (0..sets.len()).collect();
    if to_add > 0 {
        order.reverse();
    }
    order.sort_by_key(|at| std::cmp::Reverse(sets[*at].wanted));
    let mut left = to_add;
    for at in &order {
        let part = fraction(limits, sets[*at]);
        let part = if to_add > 0 { part.min(left) } else { part.max(left) };
        sizes[*at] += part;
        left -= part;
    }
    if let Some(largest) = order.first() {
        sizes[*largest] = (sizes[*largest] + left).max(0);
    }
    sizes
}

/// What a ReplicaSet's part of the difference is.
fn fraction(limits: Limits, set: Sized) -> i64 {
    if limits.desired == 0 {
        return -set.wanted;
    }
    if set.max_before == 0 {
        return 0;
    }
    // Half away from zero: all numbers are positive.
    let size = (2 * set.wanted * limits.max() + set.max_before) / (2 * set.max_before);
    size - set.wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_its_part_and_the_largest_the_rest() {
        type Row = (i64, i64, &'static [(i64, i64)], &'static [i64]);
        let rows: [Row; 8] = [
            // desired, surge, (size, most pods before), sizes
            (10, 0, &[(3, 5), (2, 5)], &[6, 4]),
            (5, 0, &[(6, 10), (4, 10)], &[3, 2]),
            (20, 0, &[(5, 10), (5, 10)], &[10, 10]),
            (6, 0, &[(5, 10), (5, 10)], &[3, 3]),
            (7, 0, &[(5, 10), (5, 10)], &[3, 4]),
            (0, 3, &[(6, 10), (4, 10)], &[0, 0]),
            (10, 3, &[(8, 13), (5, 13)], &[8, 5]),
            (12, 0, &[(3, 0), (2, 0)], &[10, 2]),
        ];
        for (desired, surge, sets, sizes) in rows {
            let limits = Limits { desired, surge, unavailable: 1 };
            let sets: Vec<Sized> = sets
                .iter()
                .map(|(wanted, max_before)| Sized { wanted: *wanted, max_before: *max_before })
                .collect();
            assert_eq!(proportional(limits, &sets), sizes, "{desired} {sets:?}");
        }
    }
}
