//! One word per notion (`docs/glossary.md`), and words that stay out.

use super::code::{before_tests, split, words};
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
    ("DecryptionContext", "aws-lc-rs"),
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
    ("rate_limit_service", "envoy.service.ratelimit.v3.RateLimitService"),
    ("RateLimitService", "the same"),
    ("greatest_common_divisor", "mathematics"),
    ("iter_common_name", "x509-parser"),
    ("CommonName", "rcgen"),
    ("common_name", "X.509 calls it so (RFC 5280 appendix A.1)"),
    ("client_common_name", "the same, of a client certificate"),
    ("common_names", "the same, of several certificates"),
    ("common", "the same, in a variable"),
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

/// Turns of phrase that make a reader stop, and what a native speaker of this field writes.
const IDIOMS: &[(&[&str], &str)] = &[
    (&["anew"], "again, or re-"),
    (&["nobody"], "no client, no request, no one"),
    (&["anybody"], "any client, anyone"),
    (&["somebody"], "a client, a user"),
    (&["whoever"], "a client that"),
    (&["is", "told"], "gets, is reported"),
    (&["are", "told"], "get, are reported"),
    (&["was", "told"], "got, was reported"),
    (&["be", "told"], "get, be reported"),
    (&["told", "of"], "reported"),
    (&["tells", "of"], "reports"),
    (&["by", "HTTP", "1"], "over HTTP/1.1"),
    (&["by", "HTTP", "2"], "over HTTP/2"),
    (&["by", "HTTP", "3"], "over HTTP/3"),
    (&["under", "way"], "in flight, in progress"),
    (&["gone", "back"], "rolled back"),
    (&["into", "force"], "apply, become active, be promoted"),
    (&["in", "force"], "active"),
    (&["stands", "before"], "is in front of, overrides"),
    (&["who", "vouches"], "that issued the certificate"),
    (&["vouch", "for"], "issue"),
];

/// Idioms in a text, with their places.
fn idioms(text: &str) -> Vec<(usize, String)> {
    let all: Vec<(usize, &str)> = words(text).collect();
    let mut found = Vec::new();
    for place in 0..all.len() {
        for (phrase, plain) in IDIOMS {
            let Some(run) = all.get(place..place + phrase.len()) else { continue };
            let is_same = run.iter().zip(*phrase).all(|((_, word), wanted)| word.eq_ignore_ascii_case(wanted));
            let (start, (last, end)) = (run[0].0, run[run.len() - 1]);
            // Words of two literals, or of two sentences, are no phrase.
            if is_same && !text[start..last + end.len()].contains(['"', '.', '|']) {
                found.push((start, format!("`{}`: write {plain}", phrase.join(" "))));
            }
        }
    }
    found
}

/// What users read first and most, and what is made of the program.
const READ_BY_USERS: &[&str] = &["README.md", "CHANGELOG.md", "docs/glossary.md", "docs/guides", "docs/reference"];

#[test]
fn documents_for_users_are_in_plain_english() {
    let mut found = Vec::new();
    for file in files::below(READ_BY_USERS, &[".md"]) {
        found.extend(idioms(&file.text).into_iter().map(|(at, why)| format!("{}: {why}", file.place(at))));
    }
    assert_none("plain English", &found);
}

#[test]
fn texts_that_the_program_shows_are_in_plain_english() {
    let mut found = Vec::new();
    for file in files::product().into_iter().filter(|file| !file.is_test() && !file.path.contains("/examples/")) {
        let length = before_tests(&split(&file.text).code).len();
        let hits = idioms(&split(&file.text).literals).into_iter().filter(|(at, _)| *at < length);
        found.extend(hits.map(|(at, why)| format!("{}: {why}", file.place(at))));
    }
    assert_none("plain English in messages", &found);
}

/// Comments, decisions and results still have such phrases: so many at most. The numbers may only fall.
const LEFT: &[(&str, usize)] = &[
    ("ARCHITECTURE.md", 8),
    ("CONTRIBUTING.md", 0),
    ("SECURITY.md", 6),
    ("docs/adr", 117),
    ("docs/results", 9),
    ("crates/admin", 1),
    ("crates/config", 15),
    ("crates/control", 229),
    ("crates/equipoise", 22),
    ("crates/model", 5),
    ("crates/plan", 49),
    ("crates/proxy", 256),
    ("crates/telemetry", 0),
    ("crates/wire", 36),
];

#[test]
fn comments_and_papers_come_nearer_to_plain_english() {
    let mut found = Vec::new();
    for (place, most) in LEFT {
        let count: usize = files::below(&[place], &[".md", ".rs"])
            .iter()
            .map(
                |file| {
                    if file.path.ends_with(".rs") { idioms(&split(&file.text).comments) } else { idioms(&file.text) }
                },
            )
            .map(|hits| hits.len())
            .sum();
        if count > *most {
            found.push(format!("{place} has {count}, and may have {most}"));
        }
    }
    assert_none("fewer idioms, never more", &found);
}

#[test]
fn idioms_are_found_over_line_ends_but_not_over_sentences() {
    let of = |text: &str| idioms(text).len();
    assert_eq!(of("requests under\n/// way, and Nobody knows"), 2);
    assert_eq!(of("look under. Way out"), 0);
    assert_eq!(of("sent by HTTP/3"), 1);
    assert_eq!(of("\"under\", \"way\""), 0);
}
