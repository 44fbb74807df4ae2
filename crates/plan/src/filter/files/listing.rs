//! What a directory is shown as.

use std::fmt::Write;

use model::LocalResponse;
use model::head::percent_encoded;
use serde_json::json;

use super::super::DirectoryEntry;
use crate::cache::date;

/// Returns the entries as a page, or as JSON.
pub(super) fn response(mut entries: Vec<DirectoryEntry>, is_json: bool) -> LocalResponse {
    entries.sort_by(|one, other| (!one.is_directory, &one.name).cmp(&(!other.is_directory, &other.name)));
    let (media, body) =
        if is_json { ("application/json", as_json(&entries)) } else { ("text/html; charset=utf-8", page(&entries)) };
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    // No script runs in it, whatever a name says.
    let fields = vec![
        field("content-type", media),
        field("vary", "accept"),
        field("content-security-policy", "default-src 'none'"),
        field("x-content-type-options", "nosniff"),
    ];
    LocalResponse { status: 200, fields, body: body.into_bytes() }
}

fn as_json(entries: &[DirectoryEntry]) -> String {
    let one = |entry: &DirectoryEntry| {
        json!({
            "name": String::from_utf8_lossy(&entry.name),
            "url": link(entry),
            "is_directory": entry.is_directory,
            "size": entry.length,
            "modified": entry.modified,
        })
    };
    serde_json::Value::Array(entries.iter().map(one).collect()).to_string()
}

fn page(entries: &[DirectoryEntry]) -> String {
    let mut out = String::from("<!doctype html>\n<meta charset=\"utf-8\">\n<title>Index</title>\n<pre>\n");
    out.push_str("<a href=\"../\">../</a>\n");
    for entry in entries {
        let mut modified = Vec::new();
        date::write(entry.modified, &mut modified);
        let (slash, size) = if entry.is_directory { ("/", "-".to_owned()) } else { ("", entry.length.to_string()) };
        // Writing to a text cannot fail.
        let _ = writeln!(
            out,
            "<a href=\"{}\">{}{slash}</a>  {}  {size}",
            link(entry),
            escaped(&entry.name),
            String::from_utf8_lossy(&modified)
        );
    }
    out.push_str("</pre>\n");
    out
}

/// Relative to the directory. What could end an attribute or look like a scheme is percent-encoded.
fn link(entry: &DirectoryEntry) -> String {
    let mut out = String::from("./");
    for byte in &entry.name {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(*byte));
        } else {
            out.extend(percent_encoded(*byte).map(char::from));
        }
    }
    if entry.is_directory {
        out.push('/');
    }
    out
}

fn escaped(name: &[u8]) -> String {
    let mut out = String::new();
    for character in String::from_utf8_lossy(name).chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}
