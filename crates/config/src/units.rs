//! Durations, sizes and percentages as a person writes them.

use std::borrow::Cow;
use std::time::Duration;

use model::limits::QUEUE_OFFSET_MAX;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Longest duration that is accepted: clocks are added to it.
pub const DURATION_MAX: Duration = Duration::from_secs(8_760 * 3_600);
/// How the schema names durations.
pub(crate) const DURATION_FORMAT: &str = "equipoise-duration";
/// How the schema names sizes.
pub(crate) const SIZE_FORMAT: &str = "equipoise-size";
/// How the schema names shares.
pub(crate) const PERCENT_FORMAT: &str = "equipoise-percent";
/// How the schema names shifts.
pub(crate) const SHIFT_FORMAT: &str = "equipoise-shift";
/// How the schema names margins.
pub(crate) const MARGIN_FORMAT: &str = "equipoise-margin";
/// Largest margin that is accepted, in percent.
pub const MARGIN_MAX: u32 = 10_000;

/// A duration such as `250ms`, `2s`, `5m`, `1h` or `1m30s`; greater than zero, at most one year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A time forth or back such as `2s` or `-500ms`, in milliseconds; an hour at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift(pub i32);

/// A number of bytes: `100`, `16KiB`, `1MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// A share such as `50%`, from `0%` to `100%`, in whole percents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub u8);

/// The whole and more, such as `125%`, from `100%` to `10000%`, in whole percents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin(pub u32);

/// Reads a margin.
///
/// # Errors
/// What is wrong, and the mend if it can be guessed.
pub fn parse_margin(text: &str) -> Result<u32, (String, Option<String>)> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let number = digits.parse::<u32>().ok().filter(|number| (100..=MARGIN_MAX).contains(number));
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit());
    match number.filter(|_| is_plain) {
        Some(number) if digits.len() < text.len() => Ok(number),
        Some(_) => Err((format!("`{text}` has no percent sign"), Some(format!("did you mean `{text}%`?")))),
        None => Err((
            format!("`{text}` is not a percentage of 100% or more"),
            Some(format!("write it like `125%`, from 100% to {MARGIN_MAX}%")),
        )),
    }
}

/// Reads a share.
///
/// # Errors
/// What is wrong, and the mend if it can be guessed.
pub fn parse_percent(text: &str) -> Result<u8, (String, Option<String>)> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let number = digits.parse::<u8>().ok().filter(|number| *number <= 100);
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit());
    match number.filter(|_| is_plain) {
        Some(number) if digits.len() < text.len() => Ok(number),
        Some(_) => Err((format!("`{text}` has no percent sign"), Some(format!("did you mean `{text}%`?")))),
        None => Err((format!("`{text}` is not a share"), Some("write it like `50%`, from 0% to 100%".to_owned()))),
    }
}

/// Returns what someone may have meant by a duration without its unit: large numbers may be milliseconds, as elsewhere.
pub(crate) fn guess_duration(number: &str) -> String {
    if number.trim_start_matches('-').len() > 2 {
        format!("did you mean `{number}ms` or `{number}s`?")
    } else {
        format!("did you mean `{number}s`?")
    }
}

/// Returns what someone may have meant by a share without its sign: `0.5` is half.
pub(crate) fn guess_percent(number: &str) -> String {
    match number.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 && number.contains('.') => {
            format!("did you mean `{}%`?", (share * 100.0).round())
        }
        _ => format!("did you mean `{number}%`?"),
    }
}

/// Reads a duration.
///
/// # Errors
/// What is wrong, and the mend if it can be guessed.
pub fn parse_duration(text: &str) -> Result<Duration, (String, Option<String>)> {
    let shape = || (format!("`{text}` is not a duration"), Some("write it like `250ms`, `5s` or `1m30s`".to_owned()));
    let mut total = Duration::ZERO;
    let mut rest = text;
    let mut last_unit = 5;
    if text.is_empty() {
        return Err(shape());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let (number, unit) = (&rest[..digits], &rest[digits..digits + letters]);
        if letters == 0 && digits == text.len() {
            return Err((format!("`{text}` has no unit"), Some(guess_duration(text))));
        }
        let (rank, seconds, millis) = match unit {
            "h" => (4, 3_600, 0),
            "m" => (3, 60, 0),
            "s" => (2, 1, 0),
            "ms" => (1, 0, 1),
            _ => return Err(shape()),
        };
        if digits == 0 || rank >= last_unit {
            return Err(shape());
        }
        last_unit = rank;
        let too_long = || (format!("`{text}` is longer than a year"), None);
        let count: u32 = number.parse().map_err(|_| too_long())?;
        let part = Duration::from_secs(seconds * u64::from(count)) + Duration::from_millis(millis * u64::from(count));
        total += part;
        if total > DURATION_MAX {
            return Err(too_long());
        }
        rest = &rest[digits + letters..];
    }
    if total.is_zero() {
        return Err((format!("`{text}` is zero"), Some("it must be greater than zero".to_owned())));
    }
    Ok(total)
}

/// Writes a duration the way [`parse_duration`] reads it; parts below a millisecond are left out.
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let parts =
        [(millis / 3_600_000, "h"), (millis / 60_000 % 60, "m"), (millis / 1_000 % 60, "s"), (millis % 1_000, "ms")];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reads a time forth or back.
///
/// # Errors
/// What is wrong, and the mend if it can be guessed.
pub fn parse_shift(text: &str) -> Result<i32, (String, Option<String>)> {
    let (sign, length) = match text.strip_prefix('-') {
        Some(length) => (-1, length),
        None => (1, text),
    };
    let length = match parse_duration(length) {
        Ok(length) => length,
        Err((_, Some(mend))) if mend.starts_with("did you mean") => {
            return Err((format!("`{text}` has no unit"), Some(format!("did you mean `{text}s`?"))));
        }
        Err(_) => {
            let mend = "write it like `2s` or `-500ms`".to_owned();
            return Err((format!("`{text}` is not a time offset"), Some(mend)));
        }
    };
    if length > QUEUE_OFFSET_MAX {
        return Err((format!("`{text}` is more than an hour"), None));
    }
    Ok(i32::try_from(length.as_millis()).unwrap_or(i32::MAX) * sign)
}

/// Writes a time forth or back the way [`parse_shift`] reads it.
pub fn show_shift(millis: i32) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    format!("{sign}{}", show_duration(Duration::from_millis(millis.unsigned_abs().into())))
}

const SIZE_UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Reads a size in bytes.
///
/// # Errors
/// What is wrong, and the mend if it can be guessed.
pub fn parse_size(text: &str) -> Result<u64, (String, Option<String>)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = text[digits..].trim_start_matches(' ');
    let factor = match SIZE_UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => {
            let first = unit.as_bytes()[0].to_ascii_uppercase();
            let like = SIZE_UNITS.iter().find(|(name, _)| name.as_bytes()[0].to_ascii_uppercase() == first);
            let mend = match like {
                Some((name, _)) if digits > 0 => format!("did you mean `{}{name}`?", &text[..digits]),
                _ => "write it like `16KiB`, `1MB` or `100`".to_owned(),
            };
            return Err((format!("`{text}` is not a size"), Some(mend)));
        }
    };
    if digits == 0 {
        return Err((format!("`{text}` is not a size"), Some("write it like `16KiB`, `1MB` or `100`".to_owned())));
    }
    let count: Option<u64> = text[..digits].parse().ok();
    count.and_then(|count| count.checked_mul(factor)).ok_or_else(|| (format!("`{text}` is too large"), None))
}

/// Writes a size the way [`parse_size`] reads it, in the largest unit that divides it.
pub fn show_size(bytes: u64) -> String {
    let unit = SIZE_UNITS
        .iter()
        .find(|(name, factor)| *factor > 1 && name.len() == 3 && bytes > 0 && bytes.is_multiple_of(*factor));
    unit.map_or_else(|| bytes.to_string(), |(name, factor)| format!("{}{name}", bytes / factor))
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": DURATION_FORMAT,
            "pattern": "^(?=.)([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
        })
    }
}

impl JsonSchema for Shift {
    fn schema_name() -> Cow<'static, str> {
        "Shift".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": SHIFT_FORMAT,
            "pattern": "^-?(?=.)([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
        })
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "format": SIZE_FORMAT,
            "pattern": "^[0-9]+ *(B|kB|KB|MB|GB|KiB|MiB|GiB)?$",
            "minimum": 0,
        })
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": PERCENT_FORMAT,
            "pattern": "^(100|[0-9]{1,2})%$",
        })
    }
}

impl JsonSchema for Margin {
    fn schema_name() -> Cow<'static, str> {
        "Margin".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": MARGIN_FORMAT, "pattern": "^[1-9][0-9]{2,4}%$" })
    }
}

impl Serialize for Margin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}%", self.0))
    }
}

impl<'de> Deserialize<'de> for Margin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_margin(&text).map(Self).map_err(|(message, _)| de::Error::custom(message))
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}%", self.0))
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_percent(&text).map(Self).map_err(|(message, _)| de::Error::custom(message))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map(Self).map_err(|(message, _)| de::Error::custom(message))
    }
}

impl Serialize for Shift {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_shift(self.0))
    }
}

impl<'de> Deserialize<'de> for Shift {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_shift(&text).map(Self).map_err(|(message, _)| de::Error::custom(message))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_size(self.0))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Number(bytes) => Ok(Self(bytes)),
            NumberOrText::Text(text) => parse_size(&text).map(Self).map_err(|(message, _)| de::Error::custom(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_back_the_same() {
        for (text, millis) in [("250ms", 250), ("2s", 2_000), ("5m", 300_000), ("1h", 3_600_000), ("1m30s", 90_000)] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis));
            assert_eq!(show_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(parse_duration("8760h").unwrap(), DURATION_MAX);
    }

    #[test]
    fn what_is_not_a_duration_is_refused_with_a_mend() {
        for bad in
            ["", "s", "5x", "-1s", "1s1m", "1s1s", "1.5s", "0s", "8761h", "99999999999999h", " 1s", "1s ", "5 s", "5é"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_duration("5").unwrap_err().1.unwrap(), "did you mean `5s`?");
        assert_eq!(parse_duration("500").unwrap_err().1.unwrap(), "did you mean `500ms` or `500s`?");
    }

    #[test]
    fn shifts_go_both_ways() {
        for (text, millis) in [("250ms", 250), ("-2s", -2_000), ("-1h", -3_600_000), ("1m30s", 90_000)] {
            assert_eq!(parse_shift(text).unwrap(), millis);
            assert_eq!(show_shift(millis), text);
        }
        for bad in ["", "-", "--1s", "+1s", "0s", "2h", "-1h1ms", "1.5s", "- 1s", "soon"] {
            assert!(parse_shift(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_shift("-5").unwrap_err().1.unwrap(), "did you mean `-5s`?");
    }

    #[test]
    fn shares_are_whole_percents_up_to_a_hundred() {
        assert_eq!((parse_percent("0%"), parse_percent("50%"), parse_percent("100%")), (Ok(0), Ok(50), Ok(100)));
        for bad in ["", "%", "101%", "-1%", "+1%", "1.5%", "50 %", "5%%", "half", "1é%"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_percent("50").unwrap_err().1.unwrap(), "did you mean `50%`?");
        let guesses = ["0.5", "1.0", "20", "0"].map(guess_percent);
        assert_eq!(guesses.map(|guess| guess.split('`').nth(1).unwrap().to_owned()), ["50%", "100%", "20%", "0%"]);
    }

    #[test]
    fn margins_are_whole_percents_from_a_hundred() {
        assert_eq!(
            (parse_margin("100%"), parse_margin("125%"), parse_margin("10000%")),
            (Ok(100), Ok(125), Ok(10_000))
        );
        for bad in ["", "%", "99%", "10001%", "+125%", "125.5%", "125 %", "5%%", "half", "99999999999%"] {
            assert!(parse_margin(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_margin("125").unwrap_err().1.unwrap(), "did you mean `125%`?");
    }

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        assert_eq!(parse_size("16KiB").unwrap(), 16_384);
        assert_eq!(parse_size("1MB").unwrap(), 1_000_000);
        assert_eq!(parse_size("100").unwrap(), 100);
        assert_eq!(parse_size("3 B").unwrap(), 3);
        for bad in ["", "KiB", "-1", "1.5MB", "1XB", "99999999999GiB", "1é"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_size("16k").unwrap_err().1.unwrap(), "did you mean `16KiB`?");
        assert_eq!(show_size(32 << 10), "32KiB");
        assert_eq!(show_size(1_000), "1000");
    }
}
