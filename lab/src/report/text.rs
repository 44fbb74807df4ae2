//! Text on its way into a page: escaped for HTML, for JSON inside a script, and hashed for the page's security policy.
//!
//! What products and generators said is shown in reports. None of it may become markup.

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use serde::Serialize;

/// A text as HTML shows it, also within quoted attributes. Control characters, which HTML cannot hold, become U+FFFD, and
/// so do those that turn the direction of the text that follows.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            '\r' => {}
            c if is_harmful(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A value as JSON that may stand inside `<script>`: no character is left that could end the element or open a comment.
pub(super) fn script_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c if is_harmful(c) => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// The page's security policy: only these scripts and this style, byte for byte, and nothing from anywhere else.
pub(super) fn policy(scripts: &[&str], style: &str) -> String {
    let sources = |texts: &[&str]| texts.iter().map(|text| source(text)).collect::<Vec<_>>().join(" ");
    let (scripts, style) = (sources(scripts), sources(&[style]));
    format!("default-src 'none'; script-src {scripts}; style-src {style}; base-uri 'none'; form-action 'none'")
}

/// The hash of an inline text as a policy names it. SHA-256 comes from the TLS library that the lab has anyway.
fn source(text: &str) -> String {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("it is a suite of TLS 1.3");
    let hash = suite.common.hash_provider.hash(text.as_bytes());
    format!("'sha256-{}'", base64(hash.as_ref()))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|place| u32::from(*chunk.get(place).unwrap_or(&0)));
        let bits = (a << 16) | (b << 8) | c;
        for place in 0..4 {
            let index = (bits >> (18 - 6 * place)) & 63;
            let is_filler = place > chunk.len();
            text.push(if is_filler { '=' } else { char::from(ALPHABET[index as usize]) });
        }
    }
    text
}

/// A figure for a person: at most six significant digits, thousands apart.
pub(super) fn figure(value: f64) -> String {
    let value = rounded(value, 6);
    let text = format!("{}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |(whole, fraction)| (whole, fraction));
    let mut apart = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{apart}") } else { format!("{sign}{apart}.{fraction}") }
}

/// A value with so many significant digits: what a page needs, and less to carry.
pub(super) fn rounded(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        assert_eq!(
            escape("<b a='1' c=\"2\">&\0\r\n\u{202e}"),
            "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;\u{fffd}\n\u{fffd}"
        );
    }

    #[test]
    fn json_in_a_script_cannot_end_it() {
        let hostile = "</script><!--<script>&\u{2028}";
        let json = script_json(&hostile);
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }

    #[test]
    fn a_policy_names_the_hashes_of_what_is_inline() {
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        let policy = policy(&["", ""], "");
        assert!(policy.contains(&format!("script-src {empty} {empty}; style-src {empty};")), "{policy}");
        assert_eq!([base64(b"f"), base64(b"fo"), base64(b"foo")], ["Zg==", "Zm8=", "Zm9v"]);
    }

    #[test]
    fn figures_are_short_and_thousands_apart() {
        let shown = [183_259.0, 1_234_567.8, 0.000_123_456_78, -4.95, 999.0, 0.0].map(figure);
        assert_eq!(shown, ["183,259", "1,234,570", "0.000123457", "-4.95", "999", "0"]);
    }
}
