//! `envoy.service.ratelimit.v3.RateLimitResponse`: what the service says of a request.

use model::protobuf::{Reader, Value};

use crate::filter::changes::{Action, FieldChanges};
use crate::filter::field_changes::{BadAnswer, header_value, push};
use crate::filter::variables::Stage;

/// Descriptors of an answer that are looked at.
const STATUSES_MAX: usize = 16;
/// The longest name of a limit that responses show, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// An answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::filter) struct Answer {
    pub(super) is_over: bool,
    pub(super) statuses: Vec<Status>,
    pub(super) response: FieldChanges,
    pub(super) request: FieldChanges,
    pub(super) body: Vec<u8>,
}

/// What is left of the limit of a descriptor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) is_over: bool,
    /// `None`: no limit applies to the descriptor.
    pub(super) limit: Option<Limit>,
    pub(super) remaining: u64,
    /// Seconds until the limit is reset, rounded up.
    pub(super) reset: Option<u64>,
}

/// A limit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Limit {
    name: String,
    requests: u64,
    /// Seconds of its window; 0 if they are not known.
    window: u64,
}

/// The number of `Code.OVER_LIMIT`.
const OVER_LIMIT: u64 = 2;

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    /// It lets the request pass, and is malformed, or has fields that a request or a response cannot have.
    pub(in crate::filter) fn read(message: &[u8]) -> Result<Self, BadAnswer> {
        let mut all = Self::default();
        let filled = all.fill(message);
        // A request beyond its limit stays so, though the rest of the answer cannot be carried out: no answer may let it pass.
        if all.is_over { Ok(all) } else { filled.map(|()| all) }
    }

    fn fill(&mut self, message: &[u8]) -> Result<(), BadAnswer> {
        let all = self;
        for field in Reader::new(message) {
            match field? {
                (1, Value::Number(code)) => all.is_over = code == OVER_LIMIT,
                (2, Value::Bytes(bytes)) if all.statuses.len() < STATUSES_MAX => {
                    all.statuses.push(Status::read(bytes)?);
                }
                (3, Value::Bytes(bytes)) => {
                    let (name, value) = header_value(bytes)?;
                    push(&mut all.response, Stage::Response, (name, value), action_of(name))?;
                }
                (4, Value::Bytes(bytes)) => {
                    let (name, value) = header_value(bytes)?;
                    // What a client says of itself must not stay beside it.
                    push(&mut all.request, Stage::Request, (name, value), Action::Set)?;
                }
                (5, Value::Bytes(bytes)) => all.body = bytes.to_vec(),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Of some fields a message has one.
fn action_of(name: &str) -> Action {
    const ONES: [&str; 3] = ["content-type", "retry-after", "location"];
    if ONES.iter().any(|one| name.eq_ignore_ascii_case(one)) { Action::Set } else { Action::Append }
}

impl Status {
    fn read(message: &[u8]) -> Result<Self, BadAnswer> {
        let mut all = Self::default();
        for field in Reader::new(message) {
            match field? {
                (1, Value::Number(code)) => all.is_over = code == OVER_LIMIT,
                (2, Value::Bytes(bytes)) => all.limit = Some(Limit::read(bytes)?),
                (3, Value::Number(remaining)) => all.remaining = remaining,
                (4, Value::Bytes(bytes)) => all.reset = Some(seconds(bytes)?),
                _ => {}
            }
        }
        Ok(all)
    }
}

impl Limit {
    fn read(message: &[u8]) -> Result<Self, BadAnswer> {
        let mut all = Self::default();
        for field in Reader::new(message) {
            match field? {
                (1, Value::Number(requests)) => all.requests = requests,
                (2, Value::Number(unit)) => all.window = window(unit),
                (3, Value::Bytes(name)) => all.name = shown(name),
                _ => {}
            }
        }
        Ok(all)
    }
}

/// Returns the seconds of a `Unit`.
fn window(unit: u64) -> u64 {
    const DAY: u64 = 86_400;
    match unit {
        1 => 1,
        2 => 60,
        3 => 3_600,
        4 => DAY,
        5 => 30 * DAY,
        6 => 365 * DAY,
        7 => 7 * DAY,
        _ => 0,
    }
}

/// Reads a `Duration`, rounded up. A negative one is over.
fn seconds(message: &[u8]) -> Result<u64, BadAnswer> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in Reader::new(message) {
        match field? {
            (1, Value::Number(number)) => seconds = number as i64,
            (2, Value::Number(number)) => nanos = number as i64,
            _ => {}
        }
    }
    Ok(seconds.saturating_add(i64::from(nanos > 0)).max(0) as u64)
}

/// Returns a name without what a quoted text cannot hold (RFC 9651 section 3.3.3).
fn shown(name: &[u8]) -> String {
    let plain = name.iter().filter(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'));
    plain.take(NAME_BYTES_MAX).map(|byte| char::from(*byte)).collect()
}

/// Which fields responses have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shows {
    pub(super) draft: bool,
    pub(super) with_x: bool,
}

/// Writes what is left of the limit of which the least is left. What finds no room is left out.
pub(super) fn show(statuses: &[Status], shows: Shows, domain: &str, response: &mut FieldChanges) {
    let limits = || statuses.iter().filter_map(|status| Some((status, status.limit.as_ref()?)));
    let Some((status, limit)) = limits().min_by_key(|(status, _)| status.remaining) else { return };
    let mut show = |name: &str, value: &str, action| {
        // Only the bound of all changes can be in the way.
        let _ = push(response, Stage::Response, (name, value.as_bytes()), action);
    };
    let reset = status.reset.unwrap_or(limit.window);
    if shows.draft {
        let name = if limit.name.is_empty() { shown(domain.as_bytes()) } else { limit.name.clone() };
        show("ratelimit-policy", &format!("\"{name}\";q={};w={}", limit.requests, limit.window), Action::Append);
        show("ratelimit", &format!("\"{name}\";r={};t={reset}", status.remaining), Action::Append);
    }
    if shows.with_x {
        let mut all = limit.requests.to_string();
        for (_, limit) in limits() {
            all.push_str(&format!(", {};w={}", limit.requests, limit.window));
            if !limit.name.is_empty() {
                all.push_str(&format!(";name=\"{}\"", limit.name));
            }
        }
        show("x-ratelimit-limit", &all, Action::Set);
        show("x-ratelimit-remaining", &status.remaining.to_string(), Action::Set);
        show("x-ratelimit-reset", &reset.to_string(), Action::Set);
    }
}
