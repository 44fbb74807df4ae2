//! Sets of statuses of responses.

use std::fmt;
use std::str::FromStr;

/// One status or several that follow each other: `404`, `5xx` or `500-503`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// Returns whether the range contains this status.
    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }

    /// Returns the first status of the range.
    pub fn first(self) -> u16 {
        self.first
    }

    /// Returns the last status of the range.
    pub fn last(self) -> u16 {
        self.last
    }
}

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a status such as 404, 5xx or 500-599");
        let one = |text: &str| {
            let text = text.trim();
            let is_status = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|status| is_status && (100..600).contains(status))
        };
        if let [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] = text.as_bytes() {
            let first = u16::from(class - b'0') * 100;
            return Ok(Self { first, last: first + 99 });
        }
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (one(first).ok_or_else(wrong)?, one(last).ok_or_else(wrong)?),
            None => {
                let status = one(text).ok_or_else(wrong)?;
                (status, status)
            }
        };
        if first > last {
            return Err(format!("`{text}` ends before it begins"));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_class_and_a_range_are_read_and_nothing_else() {
        let holds = |text: &str, status| text.parse::<StatusRange>().unwrap().contains(status);
        assert!(holds("404", 404) && !holds("404", 405));
        assert!(holds("5xx", 500) && holds("5XX", 599) && !holds("5xx", 499));
        assert!(holds("500-503", 503) && !holds("500-503", 504));
        assert!(holds("500 - 503", 503) && holds(" 404", 404));
        for wrong in [
            "", "40", "4040", "5 xx", "600", "099", "6xx", "xx", "5x", "+40", "500-", "-503", "500-50", "a-b",
            "5xx-599",
        ] {
            let told = wrong.parse::<StatusRange>().unwrap_err();
            assert_eq!(told, format!("`{wrong}` is not a status such as 404, 5xx or 500-599"));
        }
        assert_eq!("503-500".parse::<StatusRange>().unwrap_err(), "`503-500` ends before it begins");
        assert_eq!("5xx".parse::<StatusRange>().unwrap().to_string(), "500-599");
    }
}
