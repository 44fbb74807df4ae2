//! Numbers, times, addresses and foreign bytes as text, appended to a buffer without the formatting machinery.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Appends a decimal number.
pub(crate) fn push_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while value >= 100 {
        at -= 2;
        let pair = (value % 100) as usize * 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
        value /= 100;
    }
    if value >= 10 {
        at -= 2;
        let pair = value as usize * 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes a number below 100 in two digits.
fn two(into: &mut [u8], value: u64) {
    let pair = (value % 100) as usize * 2;
    into[..2].copy_from_slice(&PAIRS[pair..pair + 2]);
}

/// Appends `.` and a number below 1000 in three digits.
fn push_thousandths(out: &mut Vec<u8>, value: u32) {
    let mut digits = *b".000";
    digits[1] = b'0' + (value / 100 % 10) as u8;
    two(&mut digits[2..], u64::from(value % 100));
    out.extend_from_slice(&digits);
}

/// Appends milliseconds with three decimals.
pub(crate) fn push_millis(out: &mut Vec<u8>, value: Duration) {
    push_number(out, value.as_secs().saturating_mul(1_000).saturating_add(u64::from(value.subsec_millis())));
    push_thousandths(out, value.subsec_micros() % 1_000);
}

/// Appends an address: IPv4 dotted, also when it came mapped into IPv6; IPv6 as RFC 5952 writes it.
pub(crate) fn push_ip(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            for (place, octet) in v4.octets().into_iter().enumerate() {
                if place > 0 {
                    out.push(b'.');
                }
                push_number(out, u64::from(octet));
            }
        }
        IpAddr::V6(v6) => push_ipv6(out, v6),
    }
}

fn push_ipv6(out: &mut Vec<u8>, address: Ipv6Addr) {
    let groups = address.segments();
    // The longest run of two or more zero groups, the first of equals, becomes `::` (RFC 5952 section 4.2).
    let (mut best, mut run) = (0..0, 0..0);
    for (place, &group) in groups.iter().enumerate() {
        run = if group == 0 {
            if run.end == place && !run.is_empty() { run.start..place + 1 } else { place..place + 1 }
        } else {
            run
        };
        if run.len() > best.len().max(1) {
            best = run.clone();
        }
    }
    let mut place = 0;
    while place < groups.len() {
        if place == best.start && !best.is_empty() {
            out.extend_from_slice(b"::");
            place = best.end;
            continue;
        }
        if place > 0 && place != best.end {
            out.push(b':');
        }
        push_hex_group(out, groups[place]);
        place += 1;
    }
}

fn push_hex_group(out: &mut Vec<u8>, group: u16) {
    let mut begun = false;
    for shift in [12, 8, 4, 0] {
        let digit = usize::from(group >> shift & 15);
        begun |= digit != 0 || shift == 0;
        if begun {
            out.push(HEX[digit]);
        }
    }
}

/// Appends `ip:port` or `[ip]:port`.
pub(crate) fn push_address(out: &mut Vec<u8>, address: SocketAddr) {
    let ip = address.ip().to_canonical();
    if ip.is_ipv6() {
        out.push(b'[');
    }
    push_ip(out, ip);
    out.extend_from_slice(if ip.is_ipv6() { b"]:" } else { b":" });
    push_number(out, u64::from(address.port()));
}

/// Lower-case hexadecimal digits.
const HEX: &[u8; 16] = b"0123456789abcdef";
/// As nginx and Apache write bytes into a line.
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// How foreign bytes are made harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// For lines: what is not printable ASCII, the quote and the backslash become `\xHH`.
    Line,
    /// For strings of JSON: valid UTF-8 stays, what JSON forbids is escaped, other bytes become the text `\xHH`.
    Json,
}

/// Bytes of one value that are logged; of the rest only `...` is.
pub(crate) const VALUE_BYTES_MAX: usize = 8 * 1024;

/// Returns whether a byte stands for itself in both escapes.
fn is_plain(byte: u8) -> bool {
    (b' '..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\')
}

/// Returns how many bytes at the start are plain. Whole blocks are judged without a branch per byte, which the compiler turns into vector
/// instructions; `cargo bench` of this crate pays for it.
fn plain_prefix(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<16>();
    let whole =
        blocks.iter().take_while(|block| block.iter().fold(true, |all, &byte| all & is_plain(byte))).count() * 16;
    let rest = &bytes[whole..];
    whole + rest.iter().position(|&byte| !is_plain(byte)).unwrap_or(rest.len())
}

/// Appends foreign bytes, so that they can end neither the line nor the quotes around them.
pub(crate) fn push_escaped(out: &mut Vec<u8>, value: &[u8], escape: Escape) {
    let cut = value.len().min(VALUE_BYTES_MAX);
    let mut rest = &value[..cut];
    loop {
        let plain = plain_prefix(rest);
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
        let Some(&byte) = rest.first() else { break };
        let taken = match escape {
            Escape::Line => {
                out.extend_from_slice(&[b'\\', b'x', UPPER[usize::from(byte >> 4)], UPPER[usize::from(byte & 15)]]);
                1
            }
            Escape::Json => push_json(out, byte, rest),
        };
        rest = &rest[taken..];
    }
    if cut < value.len() {
        out.extend_from_slice(b"...");
    }
}

fn push_byte(out: &mut Vec<u8>, byte: u8, mark: &[u8]) -> usize {
    out.extend_from_slice(mark);
    out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    1
}

/// Appends what begins with `byte` at the start of `rest`, and says how many bytes that took.
fn push_json(out: &mut Vec<u8>, byte: u8, rest: &[u8]) -> usize {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0..0x80 => return push_byte(out, byte, b"\\u00"),
        _ => return push_json_beyond_ascii(out, rest),
    }
    1
}

fn push_json_beyond_ascii(out: &mut Vec<u8>, rest: &[u8]) -> usize {
    let window = &rest[..rest.len().min(4)];
    let char = match std::str::from_utf8(window) {
        Ok(text) => text.chars().next(),
        Err(error) => std::str::from_utf8(&window[..error.valid_up_to()]).unwrap_or_default().chars().next(),
    };
    match char {
        // Control characters and line separators beyond ASCII would still break lines in some readers.
        Some(char @ ('\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}')) => {
            let code = char as u32;
            push_byte(out, (code >> 8) as u8, b"\\u");
            push_byte(out, code as u8, b"");
            char.len_utf8()
        }
        Some(char) => {
            out.extend_from_slice(&window[..char.len_utf8()]);
            char.len_utf8()
        }
        None => push_byte(out, rest[0], b"\\\\x"),
    }
}

/// Times as text. The text of the last second is kept, since thousands of records fall into one.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    second: Option<u64>,
    rfc3339: [u8; 19],
    clf: [u8; 26],
}

impl Default for Clock {
    fn default() -> Self {
        Self { second: None, rfc3339: *b"1970-01-01T00:00:00", clf: *b"01/Jan/1970:00:00:00 +0000" }
    }
}

impl Clock {
    /// Appends a time as RFC 3339 in UTC with milliseconds.
    pub(crate) fn push_rfc3339(&mut self, out: &mut Vec<u8>, at: SystemTime) {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.set(since.as_secs());
        out.extend_from_slice(&self.rfc3339);
        push_thousandths(out, since.subsec_millis());
        out.push(b'Z');
    }

    /// Appends a time as CLF, the log format of Apache, writes it: in UTC, without brackets.
    pub(crate) fn push_clf(&mut self, out: &mut Vec<u8>, at: SystemTime) {
        self.set(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        out.extend_from_slice(&self.clf);
    }

    /// Appends a time as RFC 3164 section 4.1.2 has it, in UTC: `Nov  2 09:05:07`.
    pub(crate) fn push_rfc3164(&mut self, out: &mut Vec<u8>, at: SystemTime) {
        self.set(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        out.extend_from_slice(&self.clf[3..6]);
        out.push(b' ');
        out.push(if self.clf[0] == b'0' { b' ' } else { self.clf[0] });
        out.push(self.clf[1]);
        out.push(b' ');
        out.extend_from_slice(&self.clf[12..20]);
    }

    fn set(&mut self, second: u64) {
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        let (year, month, day) = date(second / 86_400);
        let of_day = second % 86_400;
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        let rfc = &mut self.rfc3339;
        two(&mut rfc[0..], year / 100);
        two(&mut rfc[2..], year % 100);
        for (place, value) in [(5, month), (8, day), (11, hour), (14, minute), (17, second)] {
            two(&mut rfc[place..], value);
        }
        const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        let name = (month as usize - 1) * 3;
        self.clf[3..6].copy_from_slice(&MONTHS[name..name + 3]);
        two(&mut self.clf[7..], year / 100);
        two(&mut self.clf[9..], year % 100);
        for (place, value) in [(0, day), (12, hour), (15, minute), (18, second)] {
            two(&mut self.clf[place..], value);
        }
    }
}

/// Returns year, month and day (from 1) of a day since 1970 in the Gregorian calendar. Years beyond 9999 wrap in the output and do not
/// fail.
fn date(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that the leap day comes last; eras are of 400 years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn at(seconds: u64, millis: u32) -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds, millis * 1_000_000)
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let mut clock = Clock::default();
        for (seconds, millis, expected) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 7, "2000-02-28T23:59:59.007Z"),
            (951_782_400, 70, "2000-02-29T00:00:00.070Z"),
            (951_868_800, 999, "2000-03-01T00:00:00.999Z"),
            (1_790_812_799, 1, "2026-09-30T23:59:59.001Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(text(|out| clock.push_rfc3339(out, at(seconds, millis))), expected);
        }
        assert_eq!(text(|out| clock.push_clf(out, at(971_211_336, 0))), "10/Oct/2000:20:55:36 +0000");
        assert_eq!(text(|out| clock.push_rfc3164(out, at(971_211_336, 0))), "Oct 10 20:55:36");
        assert_eq!(text(|out| clock.push_rfc3164(out, at(951_868_800, 0))), "Mar  1 00:00:00");
        assert_eq!(
            text(|out| clock.push_rfc3339(out, UNIX_EPOCH - Duration::from_secs(9))),
            "1970-01-01T00:00:00.000Z"
        );
    }

    #[test]
    fn milliseconds_have_three_decimals() {
        assert_eq!(text(|out| push_millis(out, Duration::from_nanos(1_234_567_899))), "1234.567");
        assert_eq!(text(|out| push_millis(out, Duration::from_micros(5))), "0.005");
        assert!(text(|out| push_millis(out, Duration::MAX)).ends_with(".999"));
    }

    #[test]
    fn an_escaped_value_has_no_control_quote_or_foreign_byte() {
        let hostile = b"a\"b\\c\r\nd\0\x1b[31m\xff\xc3\xa9\x7f";
        assert_eq!(
            text(|out| push_escaped(out, hostile, Escape::Line)),
            r"a\x22b\x5Cc\x0D\x0Ad\x00\x1B[31m\xFF\xC3\xA9\x7F"
        );
        assert_eq!(
            text(|out| push_escaped(out, hostile, Escape::Json)),
            "a\\\"b\\\\c\\r\\nd\\u0000\\u001b[31m\\\\xffé\\u007f"
        );
        assert_eq!(text(|out| push_escaped(out, "\u{85}\u{2028}x".as_bytes(), Escape::Json)), r"\u0085\u2028x");
    }

    #[test]
    fn a_long_value_is_cut_and_marked() {
        let long = vec![b'x'; VALUE_BYTES_MAX + 1];
        let out = text(|out| push_escaped(out, &long, Escape::Line));
        assert!(out.len() == VALUE_BYTES_MAX + 3 && out.ends_with("x..."));
    }

    proptest! {
        #[test]
        fn numbers_and_addresses_are_written_as_the_standard_library_does(
            number: u64,
            small in 0u64..1000,
            v4: u32,
            groups in prop::array::uniform8(prop_oneof![Just(0u16), Just(1), any::<u16>()]),
            port: u16,
        ) {
            prop_assert_eq!(text(|out| push_number(out, number)), number.to_string());
            prop_assert_eq!(text(|out| push_number(out, small)), small.to_string());
            for ip in [IpAddr::V4(v4.into()), IpAddr::V6(groups.into())] {
                let canonical = ip.to_canonical();
                prop_assert_eq!(text(|out| push_ip(out, ip)), canonical.to_string());
                let expected = SocketAddr::new(canonical, port).to_string();
                prop_assert_eq!(text(|out| push_address(out, SocketAddr::new(ip, port))), expected);
            }
        }

        #[test]
        fn any_bytes_become_one_json_string_or_one_plain_line(bytes: Vec<u8>) {
            let json = text(|out| push_escaped(out, &bytes, Escape::Json));
            let parsed: String = serde_json::from_str(&format!("\"{json}\"")).unwrap();
            if let Ok(same) = std::str::from_utf8(&bytes) {
                prop_assert_eq!(parsed, same);
            }
            let line = text(|out| push_escaped(out, &bytes, Escape::Line));
            prop_assert!(line.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b'"'));
        }
    }
}
