//! `rate_limit`.

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use std::time::Duration;

use model::{FieldName, Issue, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::limit_key::{RequestKey, RequestKeySetting};
use super::need::StoreCost;
use super::over::{Excess, Over, too_many};
use super::settings::Settings;
use super::shared_limit::{Instead, Shared, SharedLimit, WhenAway};
use super::statuses::LimitStatus;
use super::{
    Compiling, EventCounter, FilterEntry, Flow, Found, Need, Note, RequestStep, ResponseStep, ResponseView, Spent,
    Steps, Turn,
};
use crate::expression::{Amount, AmountText, Scope};
use crate::limit::{Limit, Rates, Verdict};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RateLimit>("rate_limit", DOC);

const DOC: &str = r#"Limits the request rate of each client, and rejects requests beyond it.

Each key, by default the address of a client, has an allowance of `burst` requests, which refills at `rate`. A request without
allowance is answered with `status` (429 by default), a line of text and `retry-after`, in seconds, rounded up; it is not counted. The
algorithm is GCRA, equivalent to a token bucket: it has no windows, so no client can send twice the rate at the boundary of two. Counting is exact over all workers of one process. Processes and machines count on their own, so that with three instances
a client gets up to three times the rate, unless the limit is `shared`.

`rate` is a count and a time: `10/s`, `300/m`, `1000/h`, or with any duration `5/10s`. `burst` is by default what the rate gives in one
second, at least 1. `burst: 1` spaces requests evenly; browsers load a page with many requests at once, so give them a burst of 20 or
more.

`key` says what is counted:

- `client`, the default: the address of the client, as the listener knows it (`forwarding`, `proxy_protocol`). IPv6 addresses count by
  their network of `ipv6_prefix` bits, 64 by default, because a client has at least that many addresses of its own.
- `{ header: NAME }`: the value of a header field, such as an API key. All requests without the field count as one key, and so do those
  that have it more than once. A client can change a header field: verify it before (`basic_auth`), or add a second limit by client.
- `{ expression: CEL }`: the value of an expression, such as `request.user` or `request.host + request.path`. All requests for which it
  has no value, or an empty one, count as one key.

List the filter several times for several limits, such as `20/s` and `1000/h`; a request must pass each of them, and a request that the
second rejects has been counted by the first. Each use of the filter in each route counts on its own.

The table has room for `keys_max` keys of 16 bytes each, 1.6 MB by default, and is allocated when the first requests are counted. Each
key has one of eight places. When all eight are taken, a new key replaces one that has its whole allowance again, or else the one that is
nearest to it. A flood of new keys replaces its own entries: a key that has used up its allowance stays limited while one of the
other seven has more left. Set `keys_max` to several times the number of clients that send requests while an allowance refills.

A configuration change keeps the counts, also when `rate` or `burst` change: no client waits longer than the new limit requires. Another
`key`, `ipv6_prefix` or `keys_max` starts from zero, as does a new process after a restart or an upgrade.

`over` says what becomes of requests beyond the limit:

- `refuse`, the default: they are answered with `status`.
- `{ delay: 2s }`: a request waits for its turn, as long as that is at most so far away, up to 10m; others are refused. So requests reach
  the endpoints at `rate`, and a short peak is spread instead of refused.
- `{ tarpit: 10s }`: they are refused after this time, up to 10m, so that a client that sends one request after another loses time.
- `close`: the connection, or the stream of HTTP/2 and HTTP/3, ends without a response.
- `mark`: they pass, as in a dry run. `{limit_status}` is `marked` then, for filters after this one.

A request that is held back keeps its connection; `connections_max` and the limits on streams bound their number.

`shared` counts in a Redis or Valkey that several instances share, so that the limit holds over all of them. Each request costs one round
trip; a worker sends what is asked at the same time together. `when_away` says what happens while the store does not answer within `timeout`.
Redis may be one server or a Redis Cluster; its clock counts. Instances that share a limit need the same `name`, `rate`, `burst` and `over`.

`equipoise_filter_events_total` counts requests that the store did not judge as `away`, and requests beyond the limit as `limited`, or `marked` in a dry run, and those that waited for their turn
as `delayed`.

`cost` makes a request take more than one of the allowance: an expression that gives a whole number, such as
`request.path.startsWith("/search") ? 10 : 1`. One that costs more than `burst` takes the whole burst; a cost that is missing counts as 1, and
one below 0 as 0. A request that costs nothing passes while anything is left. Do not trust a number that the client sends: `-1` costs nothing, and
a number that is too long has no value. Check its form first: `request.query["n"].matches("^[1-9][0-9]{0,2}$") ? int(request.query["n"]) : 100`.

`response_cost` takes what is known only when the response comes, such as the tokens that a language model has used: an expression over its
status and header fields. It is taken when the head of the response passes this filter, whatever is left, so that a key may go into debt: its
requests are refused until the debt is paid at `rate`, within a day at most. A cost that is missing is 0. The request itself has taken `cost`,
1 by default. With `shared`, it is sent to the store beside the response, which does not wait. A cost that the store does not take is
counted as `charge_lost`; with `when_away: local`, this process counts it instead.

`headers: true` adds `ratelimit-policy` and `ratelimit` (draft-ietf-httpapi-ratelimit-headers) to all responses of requests that were
counted: `q` is the burst, `w` the seconds in which it refills, `r` the remaining allowance, and `t` the seconds until the next request is allowed if nothing is left, or else until the allowance is full.

```yaml
filters:
  - rate_limit: { rate: 10/s, burst: 20 }
  - rate_limit: { rate: 1000/h, burst: 100, key: { header: x-api-key }, headers: true }
    when: { path: { prefix: /api } }
  - rate_limit: { rate: 5/s, burst: 1, over: { delay: 2s } }
    when: { path: { exact: /search } }
  - rate_limit: { rate: 100000/m, burst: 100000, key: { header: x-api-key }, cost: { expression: '0' },
                  response_cost: { expression: 'int(response.headers["x-tokens-used"])' } }
  - rate_limit: { rate: 100/m, burst: 100, shared: { redis: { cluster: redis }, name: api, when_away: local } }
```
"#;

const KEYS_MAX: u32 = 10_000_000;

/// How often requests are let through.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    /// Requests that each key may send in the long run: `10/s`, `300/m`, `1000/h` or `5/10s`.
    #[schemars(extend("format" = model::filter::RATE_FORMAT))]
    rate: String,
    /// Requests that a key may send at once, from 1 to 1,000,000; by default what the rate gives in one second, at least 1.
    #[schemars(range(min = 1, max = 1_000_000))]
    burst: Option<u32>,
    /// What is counted: `client`, the default, `{ header: NAME }` or `{ expression: CEL }`.
    #[serde(default)]
    key: RequestKeySetting,
    /// Bits of an IPv6 address that identify a client, from 1 to 128; 64 by default.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: Option<u8>,
    /// What becomes of requests beyond the limit: `refuse` (the default), `close`, `mark`, `{ delay: TIME }` or `{ tarpit: TIME }`.
    #[serde(default)]
    over: Over,
    /// Status of the response to rejected requests, from 400 to 599; 429 by default.
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
    /// Limit on remembered keys, from 1 to 10,000,000, with 16 bytes each; 100,000 by default.
    #[schemars(range(min = 1, max = 10_000_000))]
    keys_max: Option<u32>,
    /// What a request takes of the allowance; 1 by default.
    cost: Option<AmountText>,
    /// What is taken beside when the response comes, whatever is left; nothing by default.
    response_cost: Option<AmountText>,
    /// Count in a store that several instances share.
    shared: Option<Shared>,
    /// Whether responses have the fields `ratelimit` and `ratelimit-policy` with the remaining allowance.
    #[serde(default)]
    headers: bool,
}

impl Settings for RateLimit {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let limit = Limit::compile(&self.rate, self.burst)?;
        let limit = if let Over::Delay(most) = self.over { limit.delaying(most) } else { limit };
        let excess = Excess::compile(self.over, self.status, compiling)?;
        let delayed = matches!(self.over, Over::Delay(_)).then(|| compiling.counter("delayed"));
        let keys_max = self.keys_max.unwrap_or(100_000);
        if !(1..=KEYS_MAX).contains(&keys_max) {
            let message = format!("{keys_max} keys are not between 1 and {KEYS_MAX}");
            return Err(Issue::at("keys_max", message).suggest("leave it out for 100000"));
        }
        let key = self.key.compile(self.ipv6_prefix, compiling)?;
        let cost = Cost::compile((self.cost, self.response_cost), compiling)?;
        let name = format!("{} {} {key:?}", self.rate, limit.burst);
        let shared = self.shared.map(|shared| shared.compile(&limit, name, compiling)).transpose()?.map(Arc::new);
        // What is counted by another key, or lies elsewhere in the table, is of no use to the next plan.
        let rates = compiling.kept(&format!("{key:?} {keys_max}"), || Rates::new(keys_max as usize));
        let headers = self.headers.then(|| Headers::new(compiling.note(), &self.rate, &limit));
        let note = headers.as_ref().map(|headers| headers.note);
        let cost = cost.map(Arc::new);
        let response: Option<Box<dyn ResponseStep>> = match &cost {
            Some(cost) if cost.response.is_some() => {
                let (rates, cost, shared) = (Arc::clone(&rates), Arc::clone(cost), shared.clone());
                Some(Box::new(ChargeStep { limit, rates, cost, headers, shared }))
            }
            _ => headers.map(|headers| Box::new(headers) as Box<dyn ResponseStep>),
        };
        Ok(Steps {
            response,
            ..Steps::of_request(RateLimitStep { limit, key, rates, excess, delayed, note, cost, shared })
        })
    }
}

struct RateLimitStep {
    limit: Limit,
    key: RequestKey,
    rates: Arc<Rates>,
    excess: Excess,
    /// Requests that waited for their turn, where they may.
    delayed: Option<EventCounter>,
    /// Where the verdict is noted, if responses tell of it.
    note: Option<usize>,
    /// What requests cost, if not one each.
    cost: Option<Arc<Cost>>,
    /// Where it is counted, if not here.
    shared: Option<Arc<SharedLimit>>,
}

impl RequestStep for RateLimitStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        match &self.shared {
            Some(shared) if !turn.is_rehearsal => {
                let cost = self.cost.as_ref().map(|cost| cost.in_store(&self.limit, head, turn));
                let key = self.key.with(head, turn, |key, _| shared.stored_key(key));
                Flow::Need(Need::Store(Box::new(shared.ask(key, cost))))
            }
            _ => self.judge(head, turn),
        }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        match (found, &self.shared) {
            (Found::Store(Ok(spent)), _) => self.judged(spent, head, turn),
            (Found::Store(Err(_)), Some(shared)) => self.without(shared, head, turn),
            _ => {
                // How long the client should wait is another time after the wait.
                let verdict = self.key.with(head, turn, |key, turn| match &self.cost {
                    None => self.rates.look(key, &self.limit, turn.now),
                    Some(_) => self.rates.look_cost(key, (&self.limit, 1), turn.now),
                });
                // Then it may have an allowance again, and `wait` is the time until that is whole.
                let seconds = if verdict.is_allowed { 0 } else { verdict.wait_seconds() };
                self.excess.resume(|status| too_many(status, Some(seconds)))
            }
        }
    }
}

impl RateLimitStep {
    /// Goes on with what the store has said.
    fn judged(&self, spent: Spent, head: &RequestHead, turn: &mut Turn<'_>) -> Flow {
        let verdict = match &self.cost {
            None => self.limit.verdict(spent.is_allowed, spent.ahead),
            Some(cost) => {
                let amount = cost.of_request(head, turn);
                if spent.is_allowed {
                    let taken = self.limit.judge_cost(spent.ahead, 0, amount).0;
                    self.await_charge(Some(taken), head, turn);
                }
                self.limit.verdict_of_cost(spent.is_allowed, spent.ahead, amount)
            }
        };
        self.decide(&verdict, turn)
    }

    /// Keeps the key in the store for what the response costs. `ahead`: how far it is ahead of its time with this request, if that is known.
    fn await_charge(&self, ahead: Option<u64>, head: &RequestHead, turn: &mut Turn<'_>) {
        let response = self.cost.as_ref().and_then(|cost| cost.response.as_ref());
        let (Some((_, note)), Some(shared)) = (response, &self.shared) else { return };
        let is_local = shared.when_away == WhenAway::Local;
        let owing = self.key.with(head, turn, |key, turn| Owing {
            key: shared.stored_key(key),
            number: is_local.then(|| self.rates.number_of(key, turn.now, turn.chance)),
            ahead,
        });
        turn.notes.keep(*note, Box::new(owing));
    }

    /// Judges a request by what this process has counted.
    fn judge(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Flow {
        if let Some(cost) = &self.cost {
            let verdict = self.spend_cost(cost, head, turn);
            return self.decide(&verdict, turn);
        }
        let verdict = self.key.with(head, turn, |key, turn| {
            if turn.is_rehearsal {
                self.rates.look(key, &self.limit, turn.now)
            } else {
                self.rates.spend(key, &self.limit, turn.now, turn.chance)
            }
        });
        self.decide(&verdict, turn)
    }

    /// Takes what a request costs.
    fn spend_cost(&self, cost: &Cost, head: &RequestHead, turn: &mut Turn<'_>) -> Verdict {
        let amount = cost.of_request(head, turn);
        let (number, verdict) = self.key.with(head, turn, |key, turn| {
            if turn.is_rehearsal {
                return (0, self.rates.look_cost(key, (&self.limit, amount), turn.now));
            }
            let number = self.rates.number_of(key, turn.now, turn.chance);
            (number, self.rates.spend_cost(number, (&self.limit, amount), turn.now))
        });
        if let (Some((_, note)), true) = (&cost.response, verdict.is_allowed && !turn.is_rehearsal) {
            turn.notes.set(*note, Note::Number(number));
        }
        verdict
    }

    fn decide(&self, verdict: &Verdict, turn: &mut Turn<'_>) -> Flow {
        if let Some(note) = self.note {
            turn.notes.set(note, Headers::pack(verdict));
        }
        if !verdict.is_allowed {
            return self.excess.flow(turn, |status| too_many(status, Some(verdict.wait_seconds())));
        }
        if verdict.delay == 0 {
            turn.notes.raise_limit(LimitStatus::Passed);
            return Flow::Continue;
        }
        self.delay(verdict, turn)
    }

    /// Goes on where the store does not answer.
    #[cold]
    fn without(&self, shared: &SharedLimit, head: &RequestHead, turn: &mut Turn<'_>) -> Flow {
        turn.count(&shared.away);
        match shared.when_away {
            WhenAway::Local => self.judge(head, turn),
            WhenAway::Open => {
                // The store may be back when the response comes.
                self.await_charge(None, head, turn);
                Flow::Continue
            }
            WhenAway::Closed => Flow::refuse(503, "the rate limit is not available"),
        }
    }

    #[cold]
    fn delay(&self, verdict: &Verdict, turn: &mut Turn<'_>) -> Flow {
        if let Some(delayed) = &self.delayed {
            turn.count(delayed);
        }
        turn.notes.raise_limit(LimitStatus::Delayed);
        Flow::Need(Need::Until(turn.now + Duration::from_nanos(verdict.delay)))
    }
}

/// What requests cost.
struct Cost {
    /// `None`: one.
    request: Option<Amount>,
    /// With the note that keeps the number of the key for the response.
    response: Option<(Amount, usize)>,
}

impl Cost {
    /// Returns what a request costs; 1 if that is missing.
    fn of_request(&self, head: &RequestHead, turn: &mut Turn<'_>) -> u64 {
        self.request.as_ref().map_or(Some(1), |cost| cost.of_request(head, turn)).unwrap_or(1)
    }

    /// Returns the same for a judge elsewhere.
    fn in_store(&self, limit: &Limit, head: &RequestHead, turn: &mut Turn<'_>) -> StoreCost {
        let amount = limit.cost_in_microseconds(self.of_request(head, turn));
        let furthest = self.response.is_some().then(|| limit.furthest_in_microseconds());
        StoreCost { amount, furthest, is_charge: false }
    }

    /// Compiles the costs of requests and of responses. `None`: a request costs one.
    fn compile(
        (request, response): (Option<AmountText>, Option<AmountText>),
        compiling: &mut Compiling<'_>,
    ) -> Result<Option<Self>, Issue> {
        if request.is_none() && response.is_none() {
            return Ok(None);
        }
        let request = request.map(|cost| cost.compile(Scope::Request, compiling).map_err(|issue| issue.below("cost")));
        let response =
            response.map(|cost| cost.compile(Scope::Response, compiling).map_err(|issue| issue.below("response_cost")));
        let (request, response) = (request.transpose()?, response.transpose()?);
        Ok(Some(Self { request, response: response.map(|cost| (cost, compiling.note())) }))
    }
}

/// What a request that the store has let through leaves for its response.
struct Owing {
    /// As it is in the store.
    key: Vec<u8>,
    /// The key in the table of this process, if that counts while the store is away.
    number: Option<u64>,
    /// Nanoseconds that the key was ahead of its time, with this request.
    ahead: Option<u64>,
}

/// Takes what a response costs.
struct ChargeStep {
    limit: Limit,
    rates: Arc<Rates>,
    cost: Arc<Cost>,
    headers: Option<Headers>,
    /// Where it is counted, if not here.
    shared: Option<Arc<SharedLimit>>,
}

impl ChargeStep {
    /// Has the store take what a response costs, once. The fields for the client say what is left of what the store has said.
    #[cold]
    fn charge_shared(&self, shared: &SharedLimit, (owing, cost): (Owing, u64), turn: &mut Turn<'_>) {
        if let (Some(headers), Some(ahead)) = (&self.headers, owing.ahead) {
            let tat = self.limit.charge(ahead, 0, cost);
            turn.notes.set(headers.note, Headers::pack(&self.limit.judge_cost(tat, 0, 0).1));
        }
        if cost > 0 {
            let (limit, rates) = (self.limit, &self.rates);
            let instead = owing.number.map(|number| Instead { rates: Arc::clone(rates), number, limit, cost });
            turn.notes.charges.push(shared.charge(owing.key, &limit, cost, instead));
        }
    }
}

impl ResponseStep for ChargeStep {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        // A request that was refused, or did not come here, has no number.
        if let Some((cost, note)) = &self.cost.response
            && let Note::Number(number) = turn.notes.get(*note)
        {
            // Once: a response that cannot be sent is followed by one that says so.
            turn.notes.set(*note, Note::None);
            let amount = cost.of_response(head, view, turn).unwrap_or(0);
            let verdict = self.rates.charge(number, (&self.limit, amount), turn.now);
            if let Some(headers) = &self.headers {
                turn.notes.set(headers.note, Headers::pack(&verdict));
            }
        }
        // What the store has let through is charged there; what was judged here while it was away, here.
        if let (Some((cost, note)), Some(shared)) = (&self.cost.response, &self.shared)
            && let Some(owing) = turn.notes.take::<Owing>(*note)
        {
            let amount = cost.of_response(head, view, turn).unwrap_or(0);
            self.charge_shared(shared, (*owing, amount), turn);
        }
        if let Some(headers) = &self.headers {
            headers.apply(head, view, turn);
        }
    }
}

static POLICY: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("ratelimit-policy").unwrap_or_else(|_| unreachable!("a constant token")));
static LIMIT: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("ratelimit").unwrap_or_else(|_| unreachable!("a constant token")));

/// Writes what is left. Both fields are lists (draft-ietf-httpapi-ratelimit-headers), so limits of other filters and of the endpoint stay
/// beside it.
struct Headers {
    note: usize,
    /// Name of the policy, in quotes.
    name: String,
    policy: String,
}

impl Headers {
    fn new(note: usize, rate: &str, limit: &Limit) -> Self {
        let name = format!("\"{rate}\"");
        let seconds = limit.refill().div_ceil(1_000_000_000);
        Self { note, policy: format!("{name};q={};w={seconds}", limit.burst), name }
    }

    /// What is left in the upper half, the seconds in the lower: a year has fewer than 2^32.
    fn pack(verdict: &Verdict) -> Note {
        Note::Number(u64::from(verdict.left) << 32 | verdict.wait_seconds())
    }
}

impl ResponseStep for Headers {
    fn apply(&self, head: &mut ResponseHead, _: &ResponseView<'_>, turn: &mut Turn<'_>) {
        // An earlier filter may have answered: then nothing was counted.
        let Note::Number(packed) = turn.notes.get(self.note) else { return };
        let (left, seconds) = (packed >> 32, packed as u32);
        head.fields.append(&POLICY, self.policy.as_bytes());
        head.fields.append_with(&LIMIT, |out| {
            out.extend_from_slice(self.name.as_bytes());
            // Writing to a vector cannot fail.
            let _ = std::io::Write::write_fmt(out, format_args!(";r={left};t={seconds}"));
        });
    }
}
