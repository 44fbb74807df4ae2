//! A rate as a person writes it, and the generic cell rate algorithm (GCRA) over it.
//!
//! GCRA keeps one moment for each key, the theoretical arrival time (`tat`): the time at which the key has its whole allowance
//! again. A request moves it by one interval. A request is rejected if it would move it further ahead of the present than the burst
//! allows. So one number tells both how much is left and how long to wait, and nothing has to be refilled.
//!
//! A limit that delays lets requests go beyond the burst, by as much as they may wait: each gets the next free moment, one interval
//! after the one before it.

use std::time::Duration;

use model::Issue;

use crate::units;

/// Requests that a burst may have. It bounds what one key can send at once.
const BURST_MAX: u32 = 1_000_000;
/// How long an allowance may take to refill: sums of moments stay far below the range of 64 bits.
const REFILL_MAX: Duration = units::DURATION_MAX;

/// How long a debt may take to pay, in nanoseconds: a day.
const DEBT_MAX: u64 = 86_400_000_000_000;

/// A limit, compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Nanoseconds between two requests at the rate, at least 1.
    interval: u64,
    /// Requests that are let through at once, at least 1.
    pub burst: u32,
    /// Nanoseconds that a request beyond the burst may wait for its moment; 0: it is rejected.
    delay: u64,
}

/// What a limit says of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is let through.
    pub is_allowed: bool,
    /// Nanoseconds that it waits before that.
    pub delay: u64,
    /// Requests that the key has left after this one.
    pub left: u32,
    /// Nanoseconds until the next request is let through if none is left, or else until the whole allowance is there.
    pub wait: u64,
}

impl Verdict {
    /// Returns the wait in seconds, rounded up: a client that waits so long is let through.
    #[must_use]
    pub fn wait_seconds(&self) -> u64 {
        self.wait.div_ceil(1_000_000_000)
    }
}

impl Limit {
    /// Reads a rate and joins it with a burst, which is by default what the rate gives in one second.
    pub fn compile(rate: &str, burst: Option<u32>) -> Result<Self, Issue> {
        let (count, period) = parse(rate).map_err(|issue| issue.below("rate"))?;
        let nanoseconds = period.as_nanos();
        if u128::from(count) > nanoseconds {
            let issue = Issue::at("rate", format!("`{rate}` is more than one request per nanosecond"));
            return Err(issue.suggest("leave the filter out for no limit"));
        }
        // Rounded up: the rate is never exceeded.
        let interval = nanoseconds.div_ceil(u128::from(count)) as u64;
        let per_second = (1_000_000_000 / interval).clamp(1, u64::from(BURST_MAX)) as u32;
        let burst = burst.unwrap_or(per_second);
        if !(1..=BURST_MAX).contains(&burst) {
            let message = format!("a burst of {burst} is not between 1 and {BURST_MAX}");
            return Err(Issue::at("burst", message).suggest("`burst: 1` allows no request beyond the rate"));
        }
        let limit = Self { interval, burst, delay: 0 };
        if Duration::from_nanos(interval).checked_mul(burst).is_none_or(|refill| refill > REFILL_MAX) {
            let message = format!("at `{rate}` a burst of {burst} takes longer than a year to refill");
            return Err(Issue::at("burst", message).suggest("choose a smaller burst or a higher rate"));
        }
        Ok(limit)
    }

    /// Returns the same limit, which lets requests beyond the burst wait for at most so long, up to a year.
    #[must_use]
    pub fn delaying(self, most: Duration) -> Self {
        Self { delay: most.min(REFILL_MAX).as_nanos() as u64, ..self }
    }

    /// Returns the interval, the burst, and what a request may be ahead of its time at most, in microseconds, for a judge elsewhere.
    pub fn in_microseconds(&self) -> [String; 3] {
        let refill = self.refill();
        [self.interval, refill, refill + self.delay].map(microseconds)
    }

    /// Returns what a request that costs `cost` takes, in microseconds, for a judge elsewhere.
    pub fn cost_in_microseconds(&self, cost: u64) -> String {
        microseconds(self.interval * cost.min(u64::from(self.burst)))
    }

    /// Returns how far a key with debts may be ahead of its time, in microseconds, for a judge elsewhere.
    pub fn furthest_in_microseconds(&self) -> String {
        microseconds(self.furthest())
    }

    /// Returns what [`Self::charge`] takes for `cost`, in microseconds, for a judge elsewhere.
    pub fn charge_in_microseconds(&self, cost: u64) -> String {
        microseconds(self.interval.saturating_mul(cost).min(self.furthest()))
    }

    /// Returns how far a key with debts may be ahead of its time.
    fn furthest(&self) -> u64 {
        self.refill() + self.delay + DEBT_MAX
    }

    /// The same as [`Self::verdict`] for a request that costs `cost`.
    pub fn verdict_of_cost(&self, is_allowed: bool, ahead: u64, cost: u64) -> Verdict {
        let (_, verdict) = self.judge_cost(ahead, 0, cost);
        Verdict { is_allowed, delay: if is_allowed { verdict.delay } else { 0 }, ..verdict }
    }

    /// Returns what a judge elsewhere has found: that a request was let through or not, when its key was `ahead` nanoseconds ahead.
    pub fn verdict(&self, is_allowed: bool, ahead: u64) -> Verdict {
        let (_, verdict) = self.judge(ahead, 0);
        // The other one counts in larger units, which decides at the edge.
        Verdict { is_allowed, delay: if is_allowed { verdict.delay } else { 0 }, ..verdict }
    }

    /// Returns the nanoseconds in which the whole allowance refills.
    pub fn refill(&self) -> u64 {
        self.interval * u64::from(self.burst)
    }

    /// Judges a request that costs `cost`: it is let through if that much is left, and takes it. One that costs more than the burst takes
    /// the whole burst, and one that costs nothing is let through while anything is left. Otherwise as [`Self::judge`], with debts.
    pub fn judge_cost(&self, tat: u64, now: u64, cost: u64) -> (u64, Verdict) {
        let (refill, interval) = (self.refill(), self.interval);
        let most = refill + self.delay;
        let ahead = tat.saturating_sub(now).min(most + DEBT_MAX);
        let cost = interval * cost.min(u64::from(self.burst));
        let needed = ahead + cost.max(interval);
        if needed > most {
            return (now + ahead, Verdict { is_allowed: false, delay: 0, left: 0, wait: needed - most });
        }
        let after = ahead + cost;
        let left = refill.saturating_sub(after) / interval;
        let wait = if left == 0 { after + interval - refill } else { after };
        (now + after, Verdict { is_allowed: true, delay: after.saturating_sub(refill), left: left as u32, wait })
    }

    /// Takes `cost` of a key whose theoretical arrival time is `tat`, whatever is left: the rest is a debt, which takes at most a day to
    /// pay. Returns the new time.
    pub fn charge(&self, tat: u64, now: u64, cost: u64) -> u64 {
        let most = self.furthest();
        let ahead = tat.saturating_sub(now).min(most);
        now + ahead.saturating_add(self.interval.saturating_mul(cost)).min(most)
    }

    /// Judges a request of a key whose theoretical arrival time is `tat`. Returns the new one, which is for the caller to keep.
    pub fn judge(&self, tat: u64, now: u64) -> (u64, Verdict) {
        let (refill, interval) = (self.refill(), self.interval);
        let most = refill + self.delay;
        // A moment before the present is a whole allowance. One that is further ahead than the burst comes from a slower rate that was
        // active before: no request waits longer than the present limit asks for.
        let ahead = tat.saturating_sub(now).min(most);
        let after = ahead + interval;
        if after > most {
            return (now + ahead, Verdict { is_allowed: false, delay: 0, left: 0, wait: after - most });
        }
        let left = refill.saturating_sub(after) / interval;
        let wait = if left == 0 { after + interval - refill } else { after };
        let delay = after.saturating_sub(refill);
        (now + after, Verdict { is_allowed: true, delay, left: left as u32, wait })
    }
}

/// Writes nanoseconds as microseconds.
fn microseconds(time: u64) -> String {
    format!("{}.{:03}", time / 1_000, time % 1_000)
}

/// Returns a count and the time that it is for.
fn parse(text: &str) -> Result<(u64, Duration), Issue> {
    let wrong = || Issue::at("", format!("`{text}` is not a rate such as 10/s, 300/m or 5/10s"));
    let Some((count, period)) = text.split_once('/') else {
        return Err(match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            true => wrong().suggest(format!("write `{text}/s` for a rate per second")),
            false => wrong().suggest("write a number, `/` and `s`, `m`, `h` or a duration"),
        });
    };
    let count = match count.parse::<u64>() {
        Ok(0) => {
            let issue = Issue::at("", format!("`{text}` rejects every request"));
            return Err(issue.suggest("use the filter `deny` to reject all requests"));
        }
        Ok(count) if count.to_string() == text[..text.len() - period.len() - 1] => count,
        _ => {
            let mend = whole_count(count, usual_period(period).unwrap_or(period)).filter(|mend| parse(mend).is_ok());
            let hint = || "write a whole number before `/`".to_owned();
            return Err(wrong().suggest(mend.map_or_else(hint, |mend| format!("write `{mend}`"))));
        }
    };
    let unit = match period {
        "s" | "m" | "h" => format!("1{period}"),
        other => other.to_owned(),
    };
    let Some(period) = units::duration(&unit) else { return Err(suggest_period(wrong(), count, &unit)) };
    Ok((count, period))
}

/// Returns what others call a period, in our words.
fn usual_period(period: &str) -> Option<&'static str> {
    Some(match period.strip_prefix('1').unwrap_or(period) {
        "sec" | "second" | "seconds" | "secs" => "s",
        "min" | "minute" | "minutes" | "mins" => "m",
        "hour" | "hours" | "hr" => "h",
        "d" | "day" | "days" => "24h",
        _ => return None,
    })
}

fn suggest_period(issue: Issue, count: u64, period: &str) -> Issue {
    issue.suggest(match usual_period(period) {
        Some(usual) => format!("write `{count}/{usual}`"),
        None => "the time is `s`, `m`, `h` or a duration such as 10s, at most a year".to_owned(),
    })
}

/// Returns the same rate with a whole count: `30/m` for `0.5/s`, `1000/s` for `1k/s`, `10/s` for `10r/s`.
fn whole_count(count: &str, period: &str) -> Option<String> {
    let count = count.trim().trim_start_matches('+');
    let end = count.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_')).unwrap_or(count.len());
    let (number, unit) = count.split_at(end);
    let times = match unit.trim() {
        "" | "r" | "req" | "reqs" | "requests" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        _ => return None,
    };
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let tenths = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let count = format!("{whole}{fraction}").parse::<u64>().ok()?.checked_mul(times)?;
    let longer: &[(u64, &str)] = match period {
        "s" => &[(1, "s"), (60, "m"), (3_600, "h")],
        "m" => &[(1, "m"), (60, "h")],
        other => &[(1, other)],
    };
    longer.iter().find_map(|(factor, period)| {
        let count = count.checked_mul(*factor)?;
        count.is_multiple_of(tenths).then(|| format!("{}/{period}", count / tenths))
    })
}
