//! Blocks of PEM (RFC 7468).

const BEGIN: &str = "-----BEGIN ";

/// Returns the label and the bytes of each block of a text.
///
/// # Errors
/// A block is cut off, or not base64.
pub(super) fn blocks(text: &str) -> Result<Vec<(&str, Vec<u8>)>, &'static str> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let block = &rest[at + BEGIN.len()..];
        let (label, block) = block.split_once("-----").ok_or("a block of PEM is cut off")?;
        let (body, after) = block.split_once(&format!("-----END {label}-----")).ok_or("a block of PEM is cut off")?;
        let encoded: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        blocks.push((label, model::base64::decode(&encoded).ok_or("a block of PEM is not base64")?));
        rest = after;
    }
    Ok(blocks)
}
