//! CRC32C (Castagnoli), as RFC 9260 appendix A defines it.

/// One entry for each value of a byte.
const TABLE: [u32; 256] = table();
const POLYNOMIAL: u32 = 0x82f6_3b78;

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        let mut rest = value as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        table[value] = rest;
        value += 1;
    }
    table
}

/// Takes the checksum of pieces that follow each other.
pub(super) fn crc32c<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let step = |crc: u32, byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    !pieces.into_iter().flatten().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums_come_out() {
        // RFC 3720 appendix B.4, and the check value of the algorithm's catalogue entry.
        assert_eq!(crc32c([b"123456789".as_slice()]), 0xe306_9283);
        assert_eq!(crc32c([[0; 32].as_slice()]), 0x8a91_36aa);
        assert_eq!(crc32c([[0xff; 20].as_slice(), &[0xff; 12]]), 0x62a8_ab43);
    }
}
