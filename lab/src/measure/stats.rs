//! Medians and spreads of a few rounds.

/// The median; the mean of the middle two when their number is even. `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The distance from the smallest to the largest value as a share of the median. `None` without values.
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (middle != 0.0).then(|| (high - low) / middle)
}

/// The value that so many percent of the sorted values do not exceed. `None` without values.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    let place = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(place.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let at = |percent| percentile(&values, percent).unwrap();
        assert_eq!([at(0.0), at(50.0), at(95.0), at(99.9), at(100.0)], [1.0, 100.0, 190.0, 200.0, 200.0]);
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn the_spread_is_relative_to_the_median() {
        assert_eq!(spread(&[9.0, 10.0, 12.0]), Some(0.3));
        assert_eq!(spread(&[5.0]), Some(0.0));
        assert_eq!(spread(&[]), None);
    }
}
