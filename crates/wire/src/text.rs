//! Small pieces of text: list members, white space, decimal numbers.

/// Cuts optional white space (RFC 9110 section 5.6.3: space and tab) off both ends.
pub(crate) fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// The members of a comma-separated list without quoted strings (RFC 9110 section 5.6.1), empty ones included.
pub(crate) fn list(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim)
}

/// A number in decimal, where no memory is to be asked for.
pub(crate) struct Digits {
    bytes: [u8; Self::MAX],
    start: usize,
}

impl Digits {
    /// Of the largest number.
    const MAX: usize = 20;

    pub(crate) fn of(mut number: u64) -> Self {
        let mut digits = Self { bytes: [0; Self::MAX], start: Self::MAX };
        loop {
            digits.start -= 1;
            digits.bytes[digits.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return digits;
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Appends `number` in decimal. Parts of addresses and the lengths of most bodies are short: each length has its own few instructions.
pub(crate) fn push_decimal(out: &mut Vec<u8>, number: u64) {
    let digit = |number: u64| b'0' + (number % 10) as u8;
    match number {
        0..10 => out.push(digit(number)),
        10..100 => out.extend_from_slice(&[digit(number / 10), digit(number)]),
        100..1_000 => out.extend_from_slice(&[digit(number / 100), digit(number / 10), digit(number)]),
        _ => out.extend_from_slice(Digits::of(number).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_every_member_trimmed_even_the_empty_ones() {
        let members: Vec<_> = list(b" a ,\tb\t,, c,").collect();
        assert_eq!(members, [&b"a"[..], b"b", b"", b"c", b""]);
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for number in [0, 1, 9, 10, 42, 99, 100, 207, 999, 1_000, 12_345, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            push_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
            assert_eq!(Digits::of(number).as_bytes(), out);
        }
    }
}
