//! Numbers and texts in frames.

use super::Broken;

const SHORT: Broken = Broken("a frame ends too early");

/// Takes so many bytes.
pub(super) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Broken> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(SHORT)?;
    *bytes = rest;
    Ok(taken)
}

/// Takes a big-endian number of `N` bytes.
pub(super) fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Broken> {
    let (taken, rest) = bytes.split_first_chunk::<N>().ok_or(SHORT)?;
    *bytes = rest;
    Ok(*taken)
}

/// Takes a number of 64 bits, big-endian.
pub(super) fn long(bytes: &mut &[u8]) -> Result<u64, Broken> {
    array(bytes).map(u64::from_be_bytes)
}

/// Takes a number in LEB128: seven bits a byte, the lowest first, at most ten bytes.
pub(super) fn variable(bytes: &mut &[u8]) -> Result<u64, Broken> {
    let mut value = 0_u64;
    for place in 0..10 {
        let [byte] = array(bytes)?;
        let part = u64::from(byte & 0x7f);
        if place == 9 && part > 1 {
            break;
        }
        value |= part << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Broken("a number has more than 64 bits"))
}

/// Writes what [`variable`] reads.
pub(super) fn write_variable(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// A number with its sign, so that small ones are short on either side of zero.
pub(super) fn signed(bytes: &mut &[u8]) -> Result<i64, Broken> {
    let value = variable(bytes)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Writes what [`signed`] reads.
pub(super) fn write_signed(value: i64, to: &mut Vec<u8>) {
    write_variable((value << 1 ^ value >> 63) as u64, to);
}

/// Takes a text: its length in one byte, and UTF-8.
pub(super) fn text<'a>(bytes: &mut &'a [u8], max: usize) -> Result<&'a str, Broken> {
    let [length] = array(bytes)?;
    if usize::from(length) > max {
        return Err(Broken("a name is too long"));
    }
    std::str::from_utf8(take(bytes, usize::from(length))?).map_err(|_| Broken("a name is not UTF-8"))
}

/// Writes what [`text`] reads; what is beyond 255 bytes is left out.
pub(super) fn write_text(text: &str, to: &mut Vec<u8>) {
    let bytes = &text.as_bytes()[..text.floor_char_boundary(255)];
    to.push(bytes.len() as u8);
    to.extend(bytes);
}
