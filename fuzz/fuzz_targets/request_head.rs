//! A request head: no panic; the same result however it is split; what is accepted and passed on is understood by the
//! next reader as the same request, with and without forwarding fields. A second reader must agree about it.
#![no_main]

use equipoise_fuzz::{Plain, choice_and_message, cuts};
use libfuzzer_sys::fuzz_target;
use model::snapshot::{EscapedSlashes, Forwarding, Paths};
use model::{Facts, Fault, Known, Name, RequestHead, Scheme, Version};
use wire::forwarding::{apply_forwarding, client_address};
use wire::http1::{Framing, HeadLimits, HeadScan, RequestParsed, SendRequest, parse_request, write_request};

const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 2048, fields_max: 24 };
/// The next reader must take what we add.
const WIDE: HeadLimits = HeadLimits { head_bytes_max: 1 << 20, fields_max: 64 };

type Outcome = Option<Result<(RequestParsed, RequestHead), Fault>>;

fn feed(bytes: &[u8], choice: u8, limits: &HeadLimits) -> Outcome {
    let (mut scan, mut head) = (HeadScan::default(), RequestHead::default());
    for end in cuts(choice, bytes.len()) {
        match parse_request(&bytes[..end], limits, &mut scan, &mut head) {
            Ok(None) => {}
            Ok(Some(parsed)) => return Some(Ok((parsed, head))),
            Err(fault) => return Some(Err(fault)),
        }
    }
    None
}

fn told(outcome: &Outcome) -> String {
    match outcome {
        None => "more".to_owned(),
        Some(Err(fault)) => format!("{fault:?}"),
        Some(Ok((parsed, head))) => {
            format!("{parsed:?} {:?} {:?} {:?} {:?}", head.method_bytes(), head.path(), head.query(), head.fields)
        }
    }
}

fn written(parsed: &RequestParsed, head: &RequestHead) -> Vec<u8> {
    let how =
        SendRequest { framing: parsed.framing, host_fallback: "fallback", upgrade: parsed.upgrade, keep_alive: true };
    let mut out = Vec::new();
    write_request(head, &how, &mut out);
    out
}

/// Writes the head, reads it as the next program would, and demands the same request and the same bytes when that one
/// passes it on.
fn round_trip(parsed: &RequestParsed, head: &RequestHead) {
    let sent = written(parsed, head);
    let Some(Ok((again, read))) = feed(&sent, 0, &WIDE) else {
        panic!("refused what we wrote: {:?}", String::from_utf8_lossy(&sent));
    };
    assert_eq!(again.head_len, sent.len());
    assert_eq!(again.framing, parsed.framing);
    assert!(again.keep_alive);
    assert_eq!(again.upgrade, parsed.upgrade);
    assert_eq!(read.method_bytes(), head.method_bytes());
    assert_eq!((read.path(), read.query()), (head.path(), head.query()));
    if head.fields.has_known(Known::Host) {
        assert_eq!(read.authority(), head.authority());
    }
    assert_eq!(written(&again, &read), sent);
}

/// Holds what was understood to a plain reading of the same bytes.
fn agree(parsed: &RequestParsed, head: &RequestHead, raw: &[u8]) {
    let plain = Plain::read(raw);
    let framing = match plain.framing() {
        None | Some(Ok(0)) => Framing::None,
        Some(Ok(length)) => Framing::Length(length),
        Some(Err(_)) => Framing::Chunked,
    };
    assert_eq!(parsed.framing, framing);
    let hosts = plain.all("host");
    assert!(hosts.len() == 1 || (hosts.is_empty() && head.version == Version::Http10));
    let options = plain.all("connection").join(&b","[..]).to_ascii_lowercase();
    let option = |name: &str| options.split(|&byte| byte == b',').any(|option| option.trim_ascii() == name.as_bytes());
    let persists = if head.version == Version::Http10 { option("keep-alive") } else { true };
    assert_eq!(parsed.keep_alive, persists && !option("close"));
    // What is there was sent, or is the Host of an absolute target; what is gone was named by Connection.
    for name in ["host", "content-length", "authorization", "cookie", "x-forwarded-for", "forwarded"] {
        let kept = head.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name.as_bytes())).count();
        assert!(kept == plain.all(name).len() || (name == "host" && kept == 1), "{name}");
    }
    let kept = |name: &str| head.fields.iter().any(|field| field.name.eq_ignore_ascii_case(name.as_bytes()));
    assert!(plain.fields.iter().all(|(name, _)| kept(name) || option(name)));
}

/// The form of a path is its own, and hides no dot segment.
fn one_form(head: &RequestHead, rules: &Paths) {
    let Some(path) = std::str::from_utf8(head.path()).ok().filter(|path| path.starts_with('/')) else { return };
    let Some(once) = model::path::normal(path, rules) else { return };
    assert!(!model::path::has_dots(once.as_bytes()) && once.len() <= path.len(), "{path}: {once}");
    assert_eq!(model::path::normal(&once, rules).as_ref(), Some(&once), "{path}");
}

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    let whole = feed(message, 0, &LIMITS);
    assert_eq!(told(&feed(message, choice, &LIMITS)), told(&whole));
    let Some(Ok((parsed, mut head))) = whole else { return };
    assert!(parsed.framing != Framing::UntilClose && parsed.framing != Framing::Length(0));
    agree(&parsed, &head, &message[..parsed.head_len]);
    round_trip(&parsed, &head);

    let peer = "192.0.2.1:5000".parse().expect("an address");
    let trusted = if choice & 1 == 0 { vec!["192.0.2.0/24".parse().expect("a network")] } else { Vec::new() };
    let listener = Name::from("web");
    let facts = Facts {
        peer,
        client: client_address(&head.fields, peer.ip(), &trusted),
        local: peer,
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener: &listener,
        request_id: "",
        user: None,
    };
    let forwarding =
        Forwarding { trusted, client_address: Vec::new(), x_forwarded: choice & 2 == 0, forwarded: choice & 4 == 0 };
    apply_forwarding(&mut head, (&facts, facts.scheme), &forwarding, &mut Vec::new());
    round_trip(&parsed, &head);
    for escaped_slashes in [EscapedSlashes::Refuse, EscapedSlashes::Keep, EscapedSlashes::Decode] {
        one_form(&head, &Paths { merge_slashes: choice & 8 == 0, escaped_slashes });
    }
});
