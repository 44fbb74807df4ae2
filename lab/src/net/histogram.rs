//! A histogram of latencies in microseconds with an error below 1 %.

/// Sub-buckets of every power of two.
const FINE: u64 = 128;
const BUCKETS: usize = 128 * 40;

/// Counts of latencies, exact below 128 us and within 1 % above.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    /// Adds one latency.
    pub(crate) fn record(&mut self, us: u64) {
        self.counts[index(us)] += 1;
        self.total += 1;
    }

    /// The number of latencies recorded.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The latency that the given share (0 to 1) of the requests did not exceed; 0 when there are none.
    pub(crate) fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return value(bucket);
            }
        }
        0
    }
}

fn index(us: u64) -> usize {
    if us < FINE {
        return us as usize;
    }
    let power = 63 - us.leading_zeros() as u64 - 7;
    let fine = (us >> power) - FINE;
    (((power + 1) * FINE + fine) as usize).min(BUCKETS - 1)
}

fn value(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < FINE {
        return bucket;
    }
    let power = bucket / FINE - 1;
    (FINE + bucket % FINE) << power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|us| histogram.record(us));
        for (share, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.001, 100.0)] {
            let found = histogram.quantile_us(share) as f64;
            assert!((found - exact).abs() <= exact * 0.01, "{share}: {found} is not {exact}");
        }
        assert_eq!(histogram.total(), 100_000);
    }

    #[test]
    fn an_empty_histogram_says_zero_and_a_huge_value_fits() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_us(0.99), 0);
        histogram.record(u64::MAX);
        assert!(histogram.quantile_us(1.0) > 1 << 40);
    }
}
