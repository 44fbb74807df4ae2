//! A response head: no panic; the same result however it is split; what is accepted and passed on is understood by the
//! next reader as the same response. A second reader must agree about it.
#![no_main]

use equipoise_fuzz::{Plain, choice_and_message, cuts};
use libfuzzer_sys::fuzz_target;
use model::{Fault, Method, ResponseHead, Version};
use wire::http1::{Framing, HeadLimits, HeadScan, ResponseParsed, SendResponse, parse_response, write_response};

const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 2048, fields_max: 24 };
const WIDE: HeadLimits = HeadLimits { head_bytes_max: 1 << 20, fields_max: 64 };

type Outcome = Option<Result<(ResponseParsed, ResponseHead), Fault>>;

fn feed(bytes: &[u8], choice: u8, limits: &HeadLimits, method: Method) -> Outcome {
    let (mut scan, mut head) = (HeadScan::default(), ResponseHead::default());
    for end in cuts(choice, bytes.len()) {
        match parse_response(&bytes[..end], limits, &mut scan, method, &mut head) {
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
        Some(Ok((parsed, head))) => format!("{parsed:?} {} {:?} {:?}", head.status, head.reason(), head.fields),
    }
}

fn written(parsed: &ResponseParsed, head: &ResponseHead, to: Version) -> Vec<u8> {
    let how = SendResponse { framing: parsed.framing, to, keep_alive: parsed.keep_alive, upgrade: parsed.switching };
    let mut out = Vec::new();
    write_response(head, &how, &mut out);
    out
}

/// Holds what was understood to a plain reading of the same bytes.
fn agree(parsed: &ResponseParsed, head: &ResponseHead, raw: &[u8], method: Method) {
    let said = Plain::read(raw).framing();
    let framing = match said {
        _ if method == Method::Head || head.status < 200 || matches!(head.status, 204 | 304) => Framing::None,
        None => Framing::UntilClose,
        Some(Ok(length)) => Framing::Length(length),
        Some(Err(_)) => Framing::Chunked,
    };
    assert_eq!(parsed.framing, framing);
    assert!(head.version == Version::Http11 || !matches!(said, Some(Err(_))));
    assert!(head.status >= 200 || matches!(said, None | Some(Ok(0))));
}

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    let method = if choice & 1 == 0 { Method::Get } else { Method::Head };
    let whole = feed(message, 0, &LIMITS, method);
    assert_eq!(told(&feed(message, choice, &LIMITS, method)), told(&whole));
    let Some(Ok((parsed, head))) = whole else { return };
    agree(&parsed, &head, &message[..parsed.head_len], method);

    for to in [Version::Http11, Version::Http10] {
        let sent = written(&parsed, &head, to);
        let Some(Ok((again, read))) = feed(&sent, 0, &WIDE, method) else {
            panic!("refused what we wrote: {:?}", String::from_utf8_lossy(&sent));
        };
        let for_old = to == Version::Http10 && parsed.framing == Framing::Chunked;
        assert_eq!(again.framing, if for_old { Framing::UntilClose } else { parsed.framing });
        assert_eq!(again.head_len, sent.len());
        assert_eq!((read.status, again.switching), (head.status, parsed.switching));
        if head.status >= 200 {
            assert_eq!(again.keep_alive, parsed.keep_alive && again.framing != Framing::UntilClose);
        }
        assert_eq!(written(&again, &read, to), sent);
    }
});
