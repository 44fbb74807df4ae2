//! An RSA private key of a JWK in DER (RFC 8017 appendix A.1.2, in a PrivateKeyInfo, RFC 5208), as the library wants it.

/// The numbers `n`, `e`, `d`, `p`, `q`, `dp`, `dq` and `qi`, from the most significant byte on.
pub(super) fn private_key_info(numbers: &[Vec<u8>; 8]) -> Vec<u8> {
    const VERSION: [u8; 3] = [2, 1, 0];
    /// rsaEncryption, with the parameter NULL.
    const ALGORITHM: [u8; 15] = [0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    let numbers = numbers.iter().map(|number| integer(number)).collect::<Vec<_>>().concat();
    let key = element(0x30, &[&VERSION[..], &numbers].concat());
    element(0x30, &[&VERSION[..], &ALGORITHM, &element(4, &key)].concat())
}

fn integer(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let number = &number[zeros..];
    let needs_zero = number.first().is_none_or(|byte| byte & 0x80 != 0);
    element(2, &[if needs_zero { &[0][..] } else { &[] }, number].concat())
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let zeros = length.iter().take_while(|byte| **byte == 0).count();
    let length = &length[zeros..];
    match content.len() {
        short @ 0..0x80 => [&[tag, short as u8], content].concat(),
        _ => [&[tag, 0x80 | length.len() as u8], length, content].concat(),
    }
}
