//! What becomes of a request beyond a limit: the setting `over`.

use std::time::Duration;

use model::{Issue, LocalResponse};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::statuses::LimitStatus;
use super::{Compiling, EventCounter, Flow, Need, Turn};
use crate::units;

/// How long a request may be held back. It keeps its connection or stream meanwhile.
const HOLD_MAX: Duration = Duration::from_secs(600);

/// What becomes of a request beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Over {
    /// It is answered with the status of the limit.
    #[default]
    Refuse,
    /// The connection or stream ends without an answer.
    Close,
    /// It goes on, and is counted: a dry run.
    Mark,
    /// It waits for its turn if that is not further away.
    Delay(Duration),
    /// It waits for so long, and is answered with the status of the limit then.
    Tarpit(Duration),
}

const FORMS: &str = "write refuse, close, mark, { delay: 2s } or { tarpit: 10s }";

impl<'de> Deserialize<'de> for Over {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let wrong = || de::Error::custom(format!("{value} is no action for requests beyond the limit: {FORMS}"));
        match &value {
            Value::String(text) => match text.as_str() {
                "refuse" => Ok(Self::Refuse),
                "close" => Ok(Self::Close),
                "mark" => Ok(Self::Mark),
                _ => Err(wrong()),
            },
            Value::Object(map) if map.len() == 1 => {
                let time = |name: &str| map.get(name).and_then(Value::as_str).and_then(units::duration);
                let delay = time("delay").map(Self::Delay);
                delay.or_else(|| time("tarpit").map(Self::Tarpit)).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl JsonSchema for Over {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Over".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut held = |name: &str, about: &str| {
            let mut time = generator.subschema_for::<super::settings::DurationText>();
            time.insert("description".to_owned(), about.into());
            json_schema!({ "type": "object", "properties": { name: time }, "required": [name], "additionalProperties": false })
        };
        let delay = held("delay", "The longest wait of a request for its turn, up to 10m.");
        let tarpit = held("tarpit", "How long the response is held back, up to 10m.");
        json_schema!({ "anyOf": [{ "type": "string", "enum": ["refuse", "close", "mark"] }, delay, tarpit] })
    }
}

/// The answer to requests beyond a limit, with what is done instead, and its counters.
pub(super) struct Excess {
    over: Over,
    status: u16,
    counter: EventCounter,
}

impl Excess {
    /// Checks the settings and counts what they do: `limited`, or `marked` in a dry run.
    ///
    /// # Errors
    /// A status that is no error, or a time that is too long. Paths are below the settings of the filter.
    pub(super) fn compile(over: Over, status: Option<u16>, compiling: &mut Compiling<'_>) -> Result<Self, Issue> {
        let status = status.unwrap_or(429);
        if !(400..600).contains(&status) {
            return Err(Issue::at("status", format!("{status} is not an error")).suggest("use 400 to 599"));
        }
        if let Over::Delay(time) | Over::Tarpit(time) = over
            && time > HOLD_MAX
        {
            let key = if matches!(over, Over::Delay(_)) { "over/delay" } else { "over/tarpit" };
            return Err(Issue::at(key, "a request may be held back for at most 10m").suggest("use a few seconds"));
        }
        let counter = compiling.counter(if over == Over::Mark { "marked" } else { "limited" });
        Ok(Self { over, status, counter })
    }

    /// Says what becomes of a request beyond the limit. `answer` makes the answer if there is one.
    #[cold]
    pub(super) fn flow(&self, turn: &mut Turn<'_>, answer: impl FnOnce(u16) -> LocalResponse) -> Flow {
        turn.count(&self.counter);
        match self.over {
            Over::Mark => {
                turn.notes.raise_limit(LimitStatus::Marked);
                Flow::Continue
            }
            Over::Close => Flow::Close,
            Over::Tarpit(time) => Flow::Need(Need::Until(turn.now + time)),
            Over::Refuse | Over::Delay(_) => Flow::Respond(Box::new(answer(self.status))),
        }
    }

    /// Goes on after a wait: of a tarpit, with the answer.
    pub(super) fn resume(&self, answer: impl FnOnce(u16) -> LocalResponse) -> Flow {
        match self.over {
            Over::Tarpit(_) => Flow::Respond(Box::new(answer(self.status))),
            _ => Flow::Continue,
        }
    }
}

/// The answer to a request beyond a limit. `retry_after`: in seconds, if that is known (RFC 6585 section 4, RFC 9110 section 10.2.3).
pub(super) fn too_many(status: u16, retry_after: Option<u64>) -> LocalResponse {
    let mut fields = vec![("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())];
    fields.extend(retry_after.map(|seconds| ("retry-after".to_owned(), seconds.to_string())));
    LocalResponse { status, fields, body: b"too many requests\n".to_vec() }
}
