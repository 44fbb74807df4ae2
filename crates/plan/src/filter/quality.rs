//! Weights of what a client accepts (RFC 9110 section 12.4.2).

/// The weight of what is named without one, in thousandths; no weight is higher.
pub(super) const FULL: u16 = 1_000;

/// Returns the weight that a parameter such as `q=0.5` gives, in thousandths; `None` if it gives none.
pub(super) fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', digits @ ..] = parameter else { return None };
    let (whole, fraction) = match digits {
        [whole @ (b'0' | b'1'), b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        _ => return None,
    };
    let mut thousandths = u16::from(whole - b'0') * FULL;
    for (digit, worth) in fraction.iter().zip([100, 10, 1]) {
        thousandths += u16::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?) * worth;
    }
    Some(thousandths.min(FULL))
}
