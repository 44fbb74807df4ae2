//! Durations and sizes, as texts say them.

/// Returns the nanoseconds of a duration such as `1h30m`, `1.5s` or `250ms`, as CEL and Go write them.
pub(super) fn duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 6] = [
        ("h", 3_600_000_000_000),
        ("ms", 1_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_i64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            (fraction, rest) = after.split_at(digits);
            if fraction.is_empty() {
                return None;
            }
        }
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..letters])?;
        rest = &rest[letters..];
        total = total.checked_add(whole.checked_mul(*unit)?)?.checked_add(parts(fraction, *unit)?)?;
    }
    Some(if is_negative { -total } else { total })
}

/// Returns the decimals of a unit, cut to whole nanoseconds.
fn parts(fraction: &str, unit: i64) -> Option<i64> {
    let digits = &fraction[..fraction.len().min(9)];
    if digits.is_empty() {
        return Some(0);
    }
    let number: i64 = digits.parse().ok()?;
    let scale = 10_i128.pow(u32::try_from(digits.len()).ok()?);
    i64::try_from(i128::from(number) * i128::from(unit) / scale).ok()
}

/// Returns the bytes of a size such as `16KiB`, `1MB` or `100`; Kubernetes' `16Ki` means the same.
pub(super) fn quantity(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let factor = match text[digits..].trim_start_matches(' ') {
        "" | "B" => 1,
        "k" | "kB" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "Ki" | "KiB" => 1 << 10,
        "Mi" | "MiB" => 1 << 20,
        "Gi" | "GiB" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<i64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_or_refused() {
        let second = 1_000_000_000;
        for (text, wanted) in [
            ("2s", 2 * second),
            ("1m30s", 90 * second),
            ("1.5s", second * 3 / 2),
            ("250ms", second / 4),
            ("0", 0),
            ("-1h", -3_600 * second),
            ("0.000000001s", 1),
        ] {
            assert_eq!(duration(text), Some(wanted), "{text}");
        }
        for text in ["", "-", "1", "s", "1.s", "1d", "1 s", "99999999999h", "1é"] {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(
            (quantity("16KiB"), quantity("1 MB"), quantity("7"), quantity("2Gi")),
            (Some(16 << 10), Some(1_000_000), Some(7), Some(2 << 30))
        );
        for text in ["", "KiB", "-1", "1.5MB", "1TB", "9999999999999999999", "9223372036854775807GB"] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }
}
