//! `Cache-Control` (RFC 9111 section 5.2) and `CDN-Cache-Control` (RFC 9213).

/// Seconds that stand for all greater ones (RFC 9111 section 1.2.2).
pub const SECONDS_MAX: u64 = 1 << 31;

/// What directives say. Of one that is given twice, the shorter time counts; a time that is not a number is 0 (RFC 9111 section 4.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// `max-age`, in seconds.
    pub max_age: Option<u64>,
    /// `s-maxage`, in seconds.
    pub s_maxage: Option<u64>,
    /// `stale-while-revalidate` (RFC 5861), in seconds.
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error` (RFC 5861), in seconds.
    pub stale_if_error: Option<u64>,
    /// `min-fresh` of a request, in seconds.
    pub min_fresh: Option<u64>,
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache`, also for some fields only.
    pub no_cache: bool,
    /// `private`, also for some fields only.
    pub private: bool,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `only-if-cached` of a request.
    pub only_if_cached: bool,
}

impl Directives {
    /// Reads all fields `Cache-Control` of a head. Directives that it does not know have no effect.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all = Self::default();
        for value in values {
            let mut rest = value;
            while let Some((name, argument, behind)) = directive(rest) {
                all.add(name, argument);
                rest = behind;
            }
        }
        all
    }

    /// Reads all fields `CDN-Cache-Control` of a head, a Dictionary of Structured Fields. Returns `None` if there is none, or one that is empty
    /// or malformed: it is ignored then (RFC 9213 section 2.1).
    pub fn targeted<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let (mut all, mut is_any) = (Self::default(), false);
        for value in values {
            let mut rest = trimmed(value);
            while !rest.is_empty() {
                let (key, item, behind) = member(rest)?;
                match item {
                    Item::Boolean(false) => {}
                    Item::Boolean(true) => all.add(key, None),
                    Item::Integer(text) => all.add(key, Some(text)),
                    // A time that is none is not a time.
                    Item::Other if is_time(key) => {}
                    Item::Other => all.add(key, None),
                }
                is_any = true;
                let behind = trimmed(behind);
                if behind.is_empty() {
                    break;
                }
                rest = trimmed(behind.strip_prefix(b",")?);
                if rest.is_empty() {
                    return None;
                }
            }
        }
        is_any.then_some(all)
    }

    fn add(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let shorter = |held: &mut Option<u64>| {
            let seconds = argument.and_then(seconds).unwrap_or(0);
            *held = Some(held.map_or(seconds, |held| held.min(seconds)));
        };
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            7 if is(b"max-age") => shorter(&mut self.max_age),
            8 if is(b"s-maxage") => shorter(&mut self.s_maxage),
            22 if is(b"stale-while-revalidate") => shorter(&mut self.stale_while_revalidate),
            14 if is(b"stale-if-error") => shorter(&mut self.stale_if_error),
            9 if is(b"min-fresh") => shorter(&mut self.min_fresh),
            8 if is(b"no-store") => self.no_store = true,
            8 if is(b"no-cache") => self.no_cache = true,
            7 if is(b"private") => self.private = true,
            6 if is(b"public") => self.public = true,
            15 if is(b"must-revalidate") => self.must_revalidate = true,
            16 if is(b"proxy-revalidate") => self.proxy_revalidate = true,
            15 if is(b"must-understand") => self.must_understand = true,
            14 if is(b"only-if-cached") => self.only_if_cached = true,
            _ => {}
        }
    }
}

fn is_time(name: &[u8]) -> bool {
    [&b"max-age"[..], b"s-maxage", b"stale-while-revalidate", b"stale-if-error"].contains(&name)
}

/// Reads a number of seconds. Returns `None` if it is none.
pub fn seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| (sum * 10 + u64::from(digit - b'0')).min(SECONDS_MAX);
    Some(text.iter().fold(0, add))
}

/// A name, an argument, and what is behind them.
type Read<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

/// The next directive: its name, its argument without quotes, and what is behind it.
fn directive(text: &[u8]) -> Option<Read<'_>> {
    let is_between = |byte: &u8| matches!(byte, b' ' | b'\t' | b',');
    let start = text.iter().position(|byte| !is_between(byte))?;
    let text = &text[start..];
    let end = text.iter().position(|byte| matches!(byte, b'=' | b',')).unwrap_or(text.len());
    let name = trimmed(&text[..end]);
    let Some(argument) = text[end..].strip_prefix(b"=") else { return Some((name, None, &text[end..])) };
    let argument = trimmed_start(argument);
    if let Some(quoted) = argument.strip_prefix(b"\"") {
        let mut place = 0;
        while place < quoted.len() && quoted[place] != b'"' {
            place += if quoted[place] == b'\\' { 2 } else { 1 };
        }
        let place = place.min(quoted.len());
        let behind = &quoted[place..];
        let next = behind.iter().position(|byte| *byte == b',').unwrap_or(behind.len());
        return Some((name, Some(&quoted[..place]), &behind[next..]));
    }
    let end = argument.iter().position(|byte| *byte == b',').unwrap_or(argument.len());
    Some((name, Some(trimmed(&argument[..end])), &argument[end..]))
}

enum Item<'a> {
    Boolean(bool),
    Integer(&'a [u8]),
    Other,
}

/// The next member of a Dictionary (RFC 9651 section 4.2.2): its key, its value, and what is behind it. Inner lists are not read.
fn member(text: &[u8]) -> Option<(&[u8], Item<'_>, &[u8])> {
    let (key, rest) = sf_key(text)?;
    let (item, mut rest) = match rest.strip_prefix(b"=") {
        Some(value) => sf_item(value)?,
        None => (Item::Boolean(true), rest),
    };
    while let Some(parameter) = rest.strip_prefix(b";") {
        let (_, behind) = sf_key(trimmed_start(parameter))?;
        rest = match behind.strip_prefix(b"=") {
            Some(value) => sf_item(value)?.1,
            None => behind,
        };
    }
    Some((key, item, rest))
}

fn sf_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte == b'*';
    let is_next = |byte: u8| is_first(byte) || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.');
    text.first().filter(|byte| is_first(**byte))?;
    let end = text.iter().position(|byte| !is_next(*byte)).unwrap_or(text.len());
    Some(text.split_at(end))
}

fn sf_item(text: &[u8]) -> Option<(Item<'_>, &[u8])> {
    match text.first()? {
        b'?' => {
            let value = match text.get(1)? {
                b'0' => false,
                b'1' => true,
                _ => return None,
            };
            Some((Item::Boolean(value), &text[2..]))
        }
        b'0'..=b'9' | b'-' => {
            let end = text.iter().skip(1).position(|byte| !(byte.is_ascii_digit() || *byte == b'.'));
            let (number, rest) = text.split_at(end.map_or(text.len(), |end| end + 1));
            let is_whole = number.iter().all(u8::is_ascii_digit) && number.len() <= 15;
            Some((if is_whole { Item::Integer(number) } else { Item::Other }, rest))
        }
        b'"' => {
            let mut place = 1;
            while *text.get(place)? != b'"' {
                place += if text[place] == b'\\' { 2 } else { 1 };
            }
            Some((Item::Other, &text[place + 1..]))
        }
        b':' => {
            let end = text[1..].iter().position(|byte| *byte == b':')?;
            Some((Item::Other, &text[end + 2..]))
        }
        first if first.is_ascii_alphabetic() || *first == b'*' => {
            let is_end = |byte: &u8| matches!(byte, b',' | b';' | b' ' | b'\t');
            let end = text.iter().position(is_end).unwrap_or(text.len());
            Some((Item::Other, &text[end..]))
        }
        _ => None,
    }
}

/// Without white space at its ends.
pub(crate) fn trimmed(text: &[u8]) -> &[u8] {
    let text = trimmed_start(text);
    let end = text.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    &text[..end]
}

fn trimmed_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len());
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Directives {
        Directives::of([text.as_bytes()].into_iter())
    }

    fn targeted(text: &str) -> Option<Directives> {
        Directives::targeted([text.as_bytes()].into_iter())
    }

    #[test]
    fn directives_are_read_in_any_case_with_and_without_quotes() {
        let read_ = read("Max-Age=60 , S-MAXAGE=\"5\",, no-cache=\"a, b\", stale-if-error = 9,unknown=\"max-age=1\"");
        let wanted = Directives {
            max_age: Some(60),
            s_maxage: Some(5),
            stale_if_error: Some(9),
            no_cache: true,
            ..Directives::default()
        };
        assert_eq!(read_, wanted);
        assert!(read("private=\"x").private, "an open quote hides nothing before it");
    }

    #[test]
    fn the_shorter_of_two_times_counts_and_what_is_no_number_is_zero() {
        // RFC 9111 section 4.2.1.
        assert_eq!(read("max-age=60, max-age=30").max_age, Some(30));
        assert_eq!(read("max-age=1h").max_age, Some(0));
        assert_eq!(read("max-age=-1").max_age, Some(0));
        assert_eq!(read("max-age").max_age, Some(0));
        // RFC 9111 section 1.2.2.
        assert_eq!(read("max-age=99999999999999999999999").max_age, Some(SECONDS_MAX));
    }

    #[test]
    fn a_targeted_field_is_a_dictionary_or_ignored() {
        // RFC 9213 section 2.1.
        let told = targeted("max-age=600, no-cache=?0, must-revalidate;x=1").unwrap();
        assert_eq!((told.max_age, told.no_cache, told.must_revalidate), (Some(600), false, true));
        assert_eq!(targeted("max-age=\"600\"").unwrap().max_age, None);
        for bad in ["", "Max-Age=1", "max-age=1,", "max-age=", "=1", "max-age=(1 2)", "no-store,,"] {
            assert_eq!(targeted(bad), None, "{bad}");
        }
    }
}
