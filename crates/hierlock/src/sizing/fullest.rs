//! The fullest bucket: the number of nodes in a bucket is nearly Poisson distributed, and buckets are nearly independent.

use super::spread::{SlotGroup, bucket_groups};
use crate::Buckets;
use std::f64::consts::{LN_2, PI};

/// With more nodes than this per bucket, the normal distribution is as exact, and needs no sum.
const MAX_SUMMED_MEAN: f64 = 1e6;

/// Returns the median of the number of nodes in the fullest bucket.
pub(super) fn fullest_bucket(buckets: Buckets, nodes: u64) -> u64 {
    if nodes == 0 || buckets.count() == 1 {
        return nodes;
    }
    let groups = bucket_groups(buckets).into_iter().filter(|group| group.slots > 0.0);
    // The number of buckets with the same mean, and the mean.
    let means = groups.map(|SlotGroup { slots, chance }| (slots, nodes as f64 * chance));
    let mean = nodes as f64 / f64::from(buckets.count());
    if mean > MAX_SUMMED_MEAN {
        let highest = means.map(|(slots, mean)| mean + mean.sqrt() * highest_normal(slots));
        return (highest.fold(mean, f64::max) as u64).min(nodes);
    }
    let is_above_median = |limit: u64| {
        let ln_chance = |(slots, mean)| slots * (-poisson_above(mean, limit)).ln_1p();
        means.clone().map(ln_chance).sum::<f64>() >= -LN_2
    };
    // The fullest bucket has at least the mean.
    let (mut low, mut high) = (mean.ceil() as u64, nodes);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_above_median(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Returns the approximate median of the highest of `count` values with the standard normal distribution.
fn highest_normal(count: f64) -> f64 {
    if count < 2.0 {
        return 0.0;
    }
    let scale = (2.0 * count.ln()).sqrt();
    scale - (count.ln().ln() + (4.0 * PI).ln()) / (2.0 * scale) - LN_2.ln() / scale
}

/// Returns the chance that a value with the Poisson distribution is above `limit`.
fn poisson_above(mean: f64, limit: u64) -> f64 {
    let mut value = limit as f64 + 1.0;
    let mut chance = (value * mean.ln() - mean - ln_factorial(value)).exp();
    let mut sum = 0.0;
    // Until the next term does not change the sum.
    while sum + chance > sum {
        sum += chance;
        value += 1.0;
        chance *= mean / value;
    }
    sum.min(1.0)
}

fn ln_factorial(value: f64) -> f64 {
    if value < 16.0 {
        return (2..=value as u64).map(|factor| (factor as f64).ln()).sum();
    }
    // Stirling's series.
    let ln = value * value.ln() - value + (2.0 * PI * value).ln() / 2.0;
    ln + 1.0 / (12.0 * value) - 1.0 / (360.0 * value.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factorials_and_poisson_tails_are_exact() {
        assert!((ln_factorial(20.0).exp() / 2_432_902_008_176_640_000.0 - 1.0).abs() < 1e-9);
        for (mean, limit, chance) in [
            (1.0, 0, 0.632_120_558_8),
            (1.0, 3, 0.018_988_156_9),
            (10.0, 9, 0.542_070_285_5),
            (10.0, 20, 0.001_588_260_7),
            (1e6, 1_000_000, 0.499_734),
        ] {
            let computed = poisson_above(mean, limit);
            assert!((computed / chance - 1.0).abs() < 1e-5, "{mean} {limit}: {computed}");
        }
    }

    #[test]
    fn the_sum_and_the_normal_approximation_agree_at_the_limit() {
        for count in [2, 1000, 10_000_000] {
            let buckets = Buckets::new(count).unwrap();
            let at = |mean: f64| fullest_bucket(buckets, (mean * f64::from(count)) as u64) as f64;
            let (below, above) = (at(MAX_SUMMED_MEAN), at(MAX_SUMMED_MEAN * 1.000_001));
            assert!((above - below).abs() < 250.0, "{count}: {below} {above}");
        }
    }
}
