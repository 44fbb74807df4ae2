//! The generic cell rate algorithm as a script, which the store runs at once and for one request after the other.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use plan::filter::Spent;
use wire::resp::Reply;

/// KEYS: the key. ARGV: the interval, the burst, what a request may be ahead at most, what it costs if that is not one interval, how far a
/// key with debts may be ahead if there are any, and whether the cost is taken whatever is left; times in microseconds. Returns whether
/// the request is let through, and how far the key was ahead before. As `plan::limit::rate` has it; the clock is that of the store.
pub(super) const TEXT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, most = tonumber(ARGV[1]), tonumber(ARGV[3])
local furthest = tonumber(ARGV[5] or ARGV[3])
local ahead = tonumber(redis.call('GET', KEYS[1]) or '0') - now
if ahead < 0 then ahead = 0 elseif ahead > furthest then ahead = furthest end
local cost = tonumber(ARGV[4] or ARGV[1])
local after = ahead + cost
if ARGV[6] then
  after = math.min(after, furthest)
elseif ahead + math.max(cost, interval) > most then
  return {0, math.ceil(ahead)}
end
if cost > 0 then redis.call('SET', KEYS[1], string.format('%.3f', now + after), 'PX', math.ceil(after / 1000) + 1) end
return {1, math.ceil(ahead)}
";

/// The name by which the store knows the script: its SHA-1, in hexadecimal digits.
pub(super) static NAME: LazyLock<String> = LazyLock::new(|| {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, TEXT.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
});

/// Reads what the script returned. `None`: it is something else.
pub(super) fn spent(reply: &Reply) -> Option<Spent> {
    let Reply::List(Some(items)) = reply else { return None };
    let [Reply::Number(allowed), Reply::Number(ahead)] = items[..] else { return None };
    Some(Spent { is_allowed: allowed == 1, ahead: u64::try_from(ahead).ok()?.saturating_mul(1_000) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_returns_is_read_and_nothing_else() {
        let list = |items: &[i64]| Reply::List(Some(items.iter().map(|item| Reply::Number(*item)).collect()));
        assert_eq!(spent(&list(&[1, 250])), Some(Spent { is_allowed: true, ahead: 250_000 }));
        assert_eq!(spent(&list(&[0, i64::MAX])), Some(Spent { is_allowed: false, ahead: u64::MAX }));
        for other in [list(&[1]), list(&[1, -1]), list(&[1, 2, 3]), Reply::List(None), Reply::Number(1)] {
            assert_eq!(spent(&other), None, "{other:?}");
        }
        assert_eq!(NAME.len(), 40);
    }
}
