//! The Huffman code (RFC 7541 appendix B, RFC 9204 section 4.1.2).
//!
//! The code is canonical: codes follow from how long they are, shorter ones first, and among equals in the order of the bytes.
//! So the lengths are all that is written down, and the compiler makes the tables.

/// How many bits the code of each byte has.
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26,
];

const BITS_MIN: u32 = 5;
const BITS_MAX: usize = 30;
/// Codes up to this long, which are those of nearly all text, are found by one look.
const FAST_BITS: u32 = 9;

/// What the lengths say.
struct Code {
    /// The bytes in the order of their codes.
    sorted: [u8; 256],
    /// For each length, the first code, how many there are, and where the first stands in `sorted`.
    first: [u32; BITS_MAX + 1],
    count: [u32; BITS_MAX + 1],
    place: [u32; BITS_MAX + 1],
    /// For every beginning: the byte, and the length of its code; 0 for a longer one.
    fast: [(u8, u8); 1 << FAST_BITS],
    /// For each byte, its code.
    codes: [u32; 256],
}

static CODE: Code = make();

const fn make() -> Code {
    let mut code = Code {
        sorted: [0; 256],
        first: [0; BITS_MAX + 1],
        count: [0; BITS_MAX + 1],
        place: [0; BITS_MAX + 1],
        fast: [(0, 0); 1 << FAST_BITS],
        codes: [0; 256],
    };
    let (mut bits, mut next, mut place) = (BITS_MIN as usize, 0, 0);
    while bits <= BITS_MAX {
        code.first[bits] = next;
        code.place[bits] = place;
        let mut byte = 0;
        while byte < 256 {
            if BITS[byte] as usize == bits {
                code.sorted[place as usize] = byte as u8;
                code.codes[byte] = next;
                if bits <= FAST_BITS as usize {
                    let spare = FAST_BITS - bits as u32;
                    let mut at = next << spare;
                    while at < (next + 1) << spare {
                        code.fast[at as usize] = (byte as u8, bits as u8);
                        at += 1;
                    }
                }
                code.count[bits] += 1;
                next += 1;
                place += 1;
            }
            byte += 1;
        }
        next <<= 1;
        bits += 1;
    }
    code
}

/// A string that no encoder makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadString;

/// Decodes a string to the end of `out`.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), BadString> {
    // The next bits stand at the upper end.
    let (mut bits, mut have) = (0u64, 0u32);
    let mut rest = input.iter();
    loop {
        while have <= 56 {
            let Some(byte) = rest.next() else { break };
            bits |= u64::from(*byte) << (56 - have);
            have += 8;
        }
        let (byte, length) = match CODE.fast[(bits >> (64 - FAST_BITS)) as usize] {
            (_, 0) => long(bits)?,
            found => found,
        };
        if u32::from(length) > have {
            break;
        }
        out.push(byte);
        bits <<= length;
        have -= u32::from(length);
    }
    // RFC 7541 section 5.2: what fills the last byte are ones, and they are fewer than eight.
    let is_padding = have == 0 || have < 8 && bits >> (64 - have) == (1 << have) - 1;
    if is_padding { Ok(()) } else { Err(BadString) }
}

fn long(bits: u64) -> Result<(u8, u8), BadString> {
    for length in FAST_BITS as usize + 1..=BITS_MAX {
        let code = (bits >> (64 - length)) as u32;
        if let Some(above) = code.checked_sub(CODE.first[length])
            && above < CODE.count[length]
        {
            return Ok((CODE.sorted[(CODE.place[length] + above) as usize], length as u8));
        }
    }
    // The end of the string as a symbol of its own is an error (RFC 7541 section 5.2).
    Err(BadString)
}

/// How many bytes a string takes in the code.
pub(super) fn encoded_len(input: &[u8]) -> usize {
    let bits: usize = input.iter().map(|byte| usize::from(BITS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Encodes a string to the end of `out`.
pub(super) fn encode(input: &[u8], out: &mut Vec<u8>) {
    // What waits stands at the lower end, and is less than 32 bits.
    let (mut bits, mut have) = (0u64, 0u32);
    for byte in input {
        let length = u32::from(BITS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODE.codes[usize::from(*byte)]);
        have += length;
        if have >= 32 {
            have -= 32;
            out.extend_from_slice(&((bits >> have) as u32).to_be_bytes());
        }
    }
    while have >= 8 {
        have -= 8;
        out.push((bits >> have) as u8);
    }
    if have > 0 {
        // RFC 7541 section 5.2: ones fill the last byte.
        out.push((bits << (8 - have)) as u8 | 0xff_u8 >> have);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<String, BadString> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn strings_of_the_standard_are_read() {
        // RFC 7541 appendix C.4 and C.6.
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&host).unwrap(), "www.example.com");
        assert_eq!(decoded(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).unwrap(), "no-cache");
        let cookie = [
            0x94, 0xe7, 0x82, 0x1d, 0xd7, 0xf2, 0xe6, 0xc7, 0xb3, 0x35, 0xdf, 0xdf, 0xcd, 0x5b, 0x39, 0x60, 0xd5, 0xaf,
            0x27, 0x08, 0x7f, 0x36, 0x72, 0xc1, 0xab, 0x27, 0x0f, 0xb5, 0x29, 0x1f, 0x95, 0x87, 0x31, 0x60, 0x65, 0xc0,
            0x03, 0xed, 0x4e, 0xe5, 0xb1, 0x06, 0x3d, 0x50, 0x07,
        ];
        assert_eq!(decoded(&cookie).unwrap(), "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
        assert_eq!(decoded(&[]).unwrap(), "");
    }

    #[test]
    fn every_byte_is_read_again_wherever_its_code_begins() {
        for before in 0..8 {
            for byte in 0..=255 {
                let text = [&b"0".repeat(before)[..], &[byte], b"e"].concat();
                let (mut coded, mut again) = (Vec::new(), Vec::new());
                encode(&text, &mut coded);
                assert_eq!(coded.len(), encoded_len(&text));
                assert_eq!(decode(&coded, &mut again), Ok(()));
                assert_eq!(again, text);
            }
        }
        let mut coded = Vec::new();
        encode(b"www.example.com", &mut coded);
        // RFC 7541 appendix C.4.1.
        assert_eq!(coded, [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]);
    }

    #[test]
    fn padding_is_of_ones_and_short_and_the_end_is_no_symbol() {
        // `0` is 00000; what follows must be ones.
        assert_eq!(decoded(&[0x07]).unwrap(), "0");
        assert_eq!(decoded(&[0x06]), Err(BadString));
        assert_eq!(decoded(&[0x07, 0xff]), Err(BadString));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(BadString));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for seed in 0..2_000u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let bytes = std::iter::repeat_with(|| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            });
            let bytes: Vec<u8> = bytes.take((seed % 40) as usize).collect();
            let mut out = Vec::new();
            let _ = decode(&bytes, &mut out);
            assert!(out.len() <= bytes.len() * 8 / 5 + 1);
        }
    }
}
