//! One word per notion (`docs/glossary.md`), and words that stay out.

use super::code::{split, words};
use super::{assert_none, files};

/// Words that are not used for our own things.
const FORBIDDEN: &[&str] =
    &["backend", "server", "vhost", "frontend", "service", "handler", "manager", "context", "common", "utils"];

/// Identifiers that are not ours to choose, and why.
const FOREIGN: &[(&str, &str)] = &[
    ("Context", "std::task::Context"),
    ("TaskContext", "std::task::Context under a name of its own"),
    ("ServerConfig", "rustls"),
    ("ServerConnection", "rustls"),
    ("QuicServerConfig", "quinn"),
    ("ServerSessionMemoryCache", "rustls"),
    ("StoresServerSessions", "rustls"),
    ("set_server_config", "quinn"),
    ("CipherSuiteCommon", "rustls"),
    ("ServerName", "rustls"),
    ("NoServerSessionStorage", "rustls"),
    ("ResolvesServerCert", "rustls"),
    ("ServerCertVerified", "rustls"),
    ("ServerCertVerifier", "rustls"),
    ("verify_server_cert", "rustls"),
    ("server", "rustls::server, the module"),
    ("server_name", "TLS SNI calls it so (RFC 6066 section 3)"),
    ("SERVICE_UNAVAILABLE", "axum, and RFC 9110 section 15.6.4"),
    ("INTERNAL_SERVER_ERROR", "axum, and RFC 9110 section 15.6.1"),
    ("into_make_service_with_connect_info", "axum"),
    ("greatest_common_divisor", "mathematics"),
    ("iter_common_name", "x509-parser"),
    ("CommonName", "rcgen"),
    ("common_name", "X.509 calls it so (RFC 5280 appendix A.1)"),
    ("client_common_name", "the same"),
    ("common", "the same, beside the other attributes of a name"),
];

/// The words that an identifier is made of, lower case.
fn parts(identifier: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut before = '_';
    for c in identifier.chars() {
        if c == '_' || (c.is_ascii_uppercase() && before.is_ascii_lowercase()) {
            found.push(String::new());
        }
        if c != '_' {
            found.last_mut().expect("never empty").push(c.to_ascii_lowercase());
        }
        before = c;
    }
    found
}

fn is_forbidden(word: &str) -> bool {
    FORBIDDEN.iter().any(|bad| word == *bad || word.strip_suffix('s') == Some(bad))
}

#[test]
fn identifiers_use_the_words_of_the_house() {
    let mut found = Vec::new();
    for file in files::product() {
        let split = split(&file.text);
        for (at, word) in words(&split.code) {
            let foreign = FOREIGN.iter().any(|(known, _)| word == *known)
                || word.to_ascii_lowercase().contains("server_name")
                || word.contains("ServerName");
            if !foreign && parts(word).iter().any(|part| is_forbidden(part)) {
                found.push(format!("{}: `{word}`", file.place(at)));
            }
        }
    }
    assert_none("one word per notion; see docs/glossary.md", &found);
}

/// `server` as a word of code is the module of rustls, and nothing else.
#[test]
fn the_word_server_only_names_the_module_of_rustls() {
    let mut found = Vec::new();
    for file in files::product() {
        let code = split(&file.text).code;
        for (at, _) in words(&code).filter(|(_, word)| *word == "server") {
            if !code[..at].ends_with("rustls::") && !code[at..].starts_with("server::") {
                found.push(file.place(at));
            }
        }
    }
    assert_none("`server` is no word of ours", &found);
}

/// Beside these, which are plain English in a comment: "in common", "at your service".
const FINE_IN_PROSE: &[&str] = &["common", "service"];

#[test]
fn prose_in_code_uses_the_words_of_the_house() {
    let mut found = Vec::new();
    for file in files::product() {
        let comments = split(&file.text).comments;
        for (at, word) in words(&comments) {
            let lower = word.to_ascii_lowercase();
            let after = comments[at + word.len()..].trim_start();
            // Code in quotes, a path, and "server name" as TLS has it.
            let quoted = comments[..at].ends_with(['`', ':', '-', '_', '/', '.']) || after.starts_with(['`', '_', '.']);
            let foreign = quoted || (lower == "server" && after.starts_with("name"));
            if is_forbidden(&lower) && !FINE_IN_PROSE.contains(&lower.as_str()) && !foreign {
                found.push(format!("{}: `{word}`", file.place(at)));
            }
        }
    }
    assert_none("one word per notion, also in comments", &found);
}

#[test]
fn words_are_found_inside_identifiers() {
    assert_eq!(parts("HttpServerConfig"), ["http", "server", "config"]);
    assert_eq!(parts("my_backend2"), ["my", "backend2"]);
    assert!(is_forbidden("handlers") && !is_forbidden("serves"));
}
