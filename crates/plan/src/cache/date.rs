//! Dates of HTTP (RFC 9110 section 5.6.7).

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Reads a date in one of the three forms, as seconds since 1970. Returns `None` if it is none, or before 1970.
pub fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    match text.as_bytes().iter().position(|byte| *byte == b',') {
        // Sun, 06 Nov 1994 08:49:37 GMT
        Some(3) => {
            let mut parts = text.get(4..)?.split_ascii_whitespace();
            let (day, month, year) = (number(parts.next()?)?, month(parts.next()?)?, number(parts.next()?)?);
            let seconds = clock(parts.next()?)?;
            (parts.next()? == "GMT" && parts.next().is_none()).then_some(())?;
            at(year, month, day, seconds)
        }
        // Sunday, 06-Nov-94 08:49:37 GMT: the year is at most 50 years ahead, seen from 2026.
        Some(comma) => {
            let mut parts = text.get(comma + 1..)?.split_ascii_whitespace();
            let mut date = parts.next()?.split('-');
            let (day, month) = (number(date.next()?)?, month(date.next()?)?);
            let year = number(date.next()?).filter(|year| *year < 100)?;
            let seconds = clock(parts.next()?)?;
            (parts.next()? == "GMT").then_some(())?;
            at(if year <= 75 { 2000 + year } else { 1900 + year }, month, day, seconds)
        }
        // Sun Nov  6 08:49:37 1994
        None => {
            let mut parts = text.split_ascii_whitespace().skip(1);
            let (month, day) = (month(parts.next()?)?, number(parts.next()?)?);
            let seconds = clock(parts.next()?)?;
            at(number(parts.next()?)?, month, day, seconds)
        }
    }
}

/// Writes a date, given as seconds since 1970.
pub fn write(second: u64, out: &mut Vec<u8>) {
    let (days, rest) = (second / 86_400, second % 86_400);
    let weekday = DAYS[(days % 7) as usize];
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let name = String::from_utf8_lossy(MONTHS[month as usize - 1]);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let text = format!("{weekday}, {day:02} {name} {year:04} {hour:02}:{minute:02}:{second:02} GMT");
    out.extend_from_slice(text.as_bytes());
}

fn number(text: &str) -> Option<u64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

fn month(text: &str) -> Option<u64> {
    let place = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(text.as_bytes()))?;
    Some(place as u64 + 1)
}

fn clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    (hour < 24 && minute < 60 && second <= 60 && parts.next().is_none()).then(|| hour * 3_600 + minute * 60 + second)
}

fn at(year: u64, month: u64, day: u64, seconds: u64) -> Option<u64> {
    if !(1970..=9998).contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = (era * 146_097 + of_era).checked_sub(719_468)?;
    Some(days * 86_400 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_of_rfc_9110_are_read() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        for bad in ["", "0", "-1", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 25:49:37 GMT", "é, 1", "Sun, 40 Nov"]
        {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for second in [0, 784_111_777, 951_782_400, 1_709_164_800, 4_102_444_799] {
            let mut out = Vec::new();
            write(second, &mut out);
            assert_eq!(parse(&out), Some(second), "{}", String::from_utf8_lossy(&out));
        }
    }
}
