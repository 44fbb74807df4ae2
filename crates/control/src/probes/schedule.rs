//! When probes happen: spread, so that a thousand endpoints are not asked in the same millisecond, and the same from
//! start to start, so that a test or an operator can rely on it.

use std::time::Duration;

/// The first probe of an endpoint starts this soon, whatever its interval.
const FIRST_SPREAD_MAX: Duration = Duration::from_millis(200);

/// Delay before the first probe: soon, because nothing is known of the endpoint yet.
pub(crate) fn first_delay(cluster: &str, endpoint: &str, interval: Duration) -> Duration {
    fraction(FIRST_SPREAD_MAX.min(interval / 10), hash(cluster, endpoint))
}

/// Delay between the first and the second probe, from half of the interval to the whole. From then on probes keep the
/// interval, so this spreads the endpoints evenly over it.
pub(crate) fn second_delay(cluster: &str, endpoint: &str, interval: Duration) -> Duration {
    interval / 2 + fraction(interval / 2, hash(endpoint, cluster))
}

/// An interval of `percent` more or less at most, by chance that follows from the names and the number of the round.
pub(crate) fn jittered(interval: Duration, percent: u8, (cluster, endpoint): (&str, &str), round: u64) -> Duration {
    if percent == 0 {
        return interval;
    }
    let mut random = plan::Random::new(hash(cluster, endpoint) ^ round);
    let spread = fraction(interval * 2 * u32::from(percent) / 100, random.next_u64());
    interval.saturating_sub(interval * u32::from(percent) / 100) + spread
}

/// A share of `whole`, by the upper half of the hash.
fn fraction(whole: Duration, hash: u64) -> Duration {
    whole.mul_f64((hash >> 32) as f64 / f64::from(u32::MAX))
}

/// FNV-1a with a last mix, over both names and what separates them. The standard hasher is not promised to stay the
/// same.
fn hash(first: &str, second: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in first.bytes().chain([0]).chain(second.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_probe_is_soon_and_the_second_within_the_interval() {
        for number in 0..1_000 {
            let name = format!("10.0.0.{number}:80");
            for interval in [Duration::from_millis(100), Duration::from_secs(2), Duration::from_secs(3600)] {
                assert!(first_delay("site", &name, interval) <= FIRST_SPREAD_MAX.min(interval / 10));
                let second = second_delay("site", &name, interval);
                assert!(second >= interval / 2 && second <= interval, "{second:?}");
            }
        }
    }

    #[test]
    fn jitter_stays_within_its_share_and_differs_from_round_to_round() {
        let interval = Duration::from_secs(10);
        let of = |percent, round| jittered(interval, percent, ("site", "a:1"), round);
        assert_eq!(of(0, 3), interval);
        let delays: Vec<Duration> = (0..1_000).map(|round| of(20, round)).collect();
        let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(*least >= Duration::from_secs(8) && *least < Duration::from_millis(8_200), "{least:?}");
        assert!(*most <= Duration::from_secs(12) && *most > Duration::from_millis(11_800), "{most:?}");
        assert!(of(100, 1) <= 2 * interval);
    }

    #[test]
    fn endpoints_are_spread_evenly_and_the_same_each_time() {
        let interval = Duration::from_secs(10);
        let mut quarters = [0_u32; 4];
        for number in 0..1_000 {
            let name = format!("10.0.{}.{}:80", number / 256, number % 256);
            let delay = second_delay("site", &name, interval);
            assert_eq!(delay, second_delay("site", &name, interval));
            let share = (delay - interval / 2).as_secs_f64() / (interval / 2).as_secs_f64();
            quarters[((share * 4.0) as usize).min(3)] += 1;
        }
        assert!(quarters.iter().all(|count| (180..320).contains(count)), "{quarters:?}");
    }
}
