//! Tests of formats, files and the thread together.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use model::snapshot::{LogFormat, LogTarget};
use model::{Fault, FieldName};
use proptest::prelude::*;

use super::*;
use crate::record::Kind;
use crate::testing::{Draft, request};

fn log(path: &Path, format: &str) -> AccessLog {
    AccessLog {
        target: LogTarget::File(path.to_owned()),
        format: LogFormat::Line(format.to_owned()),
        when: None,
        values: Vec::new(),
    }
}

fn formatted(format: &LogFormat, record: &Record<'_>) -> String {
    with_values(format, record, &[])
}

/// Formats with these values of the log: name, value, whether it is a number.
fn with_values(format: &LogFormat, record: &Record<'_>, values: &[(&str, &[u8], bool)]) -> String {
    let named = values.iter().map(|(name, ..)| ((*name).to_owned(), String::new())).collect();
    let log = AccessLog { target: LogTarget::Stdout, format: format.clone(), when: None, values: named };
    let (mut out, mut bytes) = (Vec::new(), Vec::new());
    let mut value_of = |place: usize, out: &mut Vec<u8>| {
        out.extend_from_slice(values[place].1);
        values[place].2
    };
    let mut own = Own { value_of: &mut value_of, bytes: &mut bytes };
    Compiled::new(&log).unwrap().write(record, &mut Clock::default(), &mut out, &mut own);
    String::from_utf8(out).unwrap()
}

fn line(template: &str, record: &Record<'_>) -> String {
    formatted(&LogFormat::Line(template.to_owned()), record)
}

const EVERYTHING: &str = "{time} {kind} {listener} {client_ip} {client_port} {peer_ip} {scheme} {method} {host} {path} \
    {query} {uri} {version} {status} {received_bytes} {sent_bytes} {total_ms} {receive_ms} {queue_ms} {connect_ms} \
    {first_byte_ms} {route} {cluster} {endpoint} {endpoint_address} {retries} {fault} {flag} {request_id} {tls_version} \
    {tls_cipher} {tls_server_name} {tls_client_subject} {response_header:server}";

#[test]
fn a_line_tells_everything_that_is_known() {
    let mut draft = Draft::default();
    draft.response.fields.append(&FieldName::new("Server").unwrap(), b"x y");
    let facts = draft.facts();
    let mut record = draft.record(&facts);
    record.fault = Some(Fault::ClosedInResponse);
    record.retries = 2;
    assert_eq!(
        line(EVERYTHING, &record),
        "2000-10-10T20:55:36.789Z exchange web 192.0.2.7 40000 192.0.2.7 https GET shop.example /cart id=7 /cart?id=7 \
         HTTP/1.1 200 10 2000 12.345 0.020 0.000 0.000 11.001 shop api a.example:9001 127.0.0.1:9001 2 \
         closed_in_response CD r-1 TLSv1.3 TLS13_AES_128_GCM_SHA256 shop.example - x y\n"
    );
    assert_eq!(line("{cache_status}", &record), "-\n");
    record.cache = "hit";
    assert_eq!(line("{cache_status}", &record), "hit\n");
    assert_eq!(
        formatted(&LogFormat::Clf, &record),
        "192.0.2.7 - - [10/Oct/2000:20:55:36 +0000] \"GET /cart?id=7 HTTP/1.1\" 200 2000\n"
    );
    assert_eq!(formatted(&LogFormat::Combined, &record), line(COMBINED, &record));
    assert_eq!(
        line(COMBINED, &record),
        "192.0.2.7 - - [10/Oct/2000:20:55:36 +0000] \"GET /cart?id=7 HTTP/1.1\" 200 2000 \"-\" \"curl/8 \\x22x\\x22\"\n"
    );
}

#[test]
fn what_is_not_known_is_a_dash_or_null() {
    let draft = Draft { request_id: String::new(), ..Draft::default() };
    let mut facts = draft.facts();
    facts.tls = None;
    facts.client = "2001:db8::1".parse().unwrap();
    let mut record = draft.record(&facts);
    record.kind = Kind::Stream;
    record.response_status = 0;
    (record.request, record.response, record.route, record.cluster) = (None, None, None, None);
    (record.endpoint, record.endpoint_address) = (None, None);
    assert_eq!(
        line(
            "{kind}|{client_ip}|{client_port}|{scheme}|{method}|{uri}|{status}|{route}|{endpoint_address}|{fault}|{request_id}|{tls_version}|{request_header:a}|{{}}",
            &record
        ),
        "stream|2001:db8::1|-|-|-|-|-|-|-|-|-|-|-|{}\n"
    );
    let json: serde_json::Value = serde_json::from_str(&formatted(&LogFormat::Json, &record)).unwrap();
    for key in ["method", "status", "route", "user_agent", "tls_cipher", "client_port"] {
        assert!(json[key].is_null() && json.as_object().unwrap().contains_key(key), "{key}");
    }
    assert_eq!(
        (&json["kind"], &json["sent_bytes"], &json["total_ms"]),
        (&"stream".into(), &2000.into(), &12.345.into())
    );
}

#[test]
fn a_wrong_template_is_explained() {
    for (template, expected) in [
        ("{clientip}", "did you mean `{client_ip}`"),
        ("{request_headr:x}", "did you mean `{request_header}`"),
        ("{Status}", "did you mean `{status}`"),
        ("{zzzzzzzzzzzzzzzzzzzz}", "there is no variable `{zzzzzzzzzzzzzzzzzzzz}`"),
        ("{path:x}", "takes nothing after a colon"),
        ("{request_header}", "needs a field name"),
        ("{response_header:a b}", "is not a header field name"),
        ("a\nb", "line break"),
        ("{path", "never closed"),
    ] {
        let message = check_line(template, &[]).unwrap_err();
        assert!(message.contains(expected), "{template}: {message}");
    }
    assert!(!check_line("{zzzzzzzzzzzzzzzzzzzz}", &[]).unwrap_err().contains("mean"));
    for template in [COMBINED, EVERYTHING, "", "{request_header:X-Forwarded-For}"] {
        assert_eq!(check_line(template, &[]), Ok(()));
    }
}

#[test]
fn a_value_of_the_log_is_a_variable_of_its_lines_and_a_member_of_its_json() {
    let draft = Draft::default();
    let facts = draft.facts();
    let record = draft.record(&facts);
    let values: [(&str, &[u8], bool); 5] = [
        ("rate", b"-12", true),
        ("half", b"0.5", true),
        ("none", b"", true),
        ("odd", b"NaN", true),
        ("digits", b"007", false),
    ];
    let template = "{value:digits} {value:rate} {value:half} {value:none} {value:odd}".to_owned();
    assert_eq!(with_values(&LogFormat::Line(template), &record, &values), "007 -12 0.5 - NaN\n");
    let json: serde_json::Value = serde_json::from_str(&with_values(&LogFormat::Json, &record, &values)).unwrap();
    let wanted = serde_json::json!({ "rate": -12, "half": 0.5, "none": null, "odd": "NaN", "digits": "007" });
    assert_eq!((&json["values"], &json["status"]), (&wanted, &200.into()));
    let without: serde_json::Value = serde_json::from_str(&formatted(&LogFormat::Json, &record)).unwrap();
    assert!(without.get("values").is_none());
}

#[test]
fn a_value_that_a_log_does_not_have_is_explained() {
    for (template, values, expected) in [
        ("{value:rate}", &[][..], "this log has no `values`: write `values: { rate: \"…\" }` beside its `format`"),
        ("{value:raet}", &["rate", "errors"], "has no `raet`: did you mean `{value:rate}`?"),
        ("{value:zzzzzzzz}", &["rate", "errors"], "has no `zzzzzzzz`, only `rate`, `errors`"),
        ("{rate}", &["rate"], "there is no variable `{rate}`: write `{value:rate}`"),
        ("{value}", &["rate"], "`{value}` needs the name of one of the log's `values`: `{value:NAME}`"),
    ] {
        let message = check_line(template, values).unwrap_err();
        assert!(message.contains(expected), "{template}: {message}");
    }
}

proptest! {
    #[test]
    fn any_bytes_of_a_value_give_one_safe_line_and_one_json_object(bytes: Vec<u8>, is_number: bool) {
        let draft = Draft::default();
        let facts = draft.facts();
        let record = draft.record(&facts);
        let values: [(&str, &[u8], bool); 1] = [("v", &bytes, false)];
        let line = with_values(&LogFormat::Line("\"{value:v}\"".to_owned()), &record, &values);
        assert!(line.ends_with("\"\n") && line.bytes().filter(|byte| *byte == b'\n' || *byte == b'"').count() == 3);
        // Numbers come from expressions; a text that is passed as one must not end the object either.
        let is_number = is_number && serde_json::from_slice::<serde_json::Number>(&bytes).is_ok();
        let values: [(&str, &[u8], bool); 1] = [("v", &bytes, is_number)];
        let json = with_values(&LogFormat::Json, &record, &values);
        assert_eq!(json.lines().count(), 1);
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    }
}

/// Every place of a record that a client or a configuration fills, filled with these bytes.
fn hostile(bytes: &[u8]) -> Draft {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut draft = Draft {
        listener: text.as_str().into(),
        route: text.as_str().into(),
        cluster: text.as_str().into(),
        endpoint: text.as_str().into(),
        request_id: text.clone(),
        request: request(bytes, bytes, &[(b"host", bytes), (b"user-agent", bytes), (b"referer", bytes)]),
        ..Draft::default()
    };
    draft.tls.server_name = Some(text.clone());
    draft.tls.client_subject = Some(text);
    let name = FieldName::new("server").unwrap();
    let start = draft.response.fields.load(bytes);
    let name_at = draft.response.fields.load(name.as_str().as_bytes());
    let span = model::fields::Span::new;
    draft.response.fields.push_span(span(name_at, name_at + 6), span(start, start + bytes.len()));
    draft
}

fn every_variable_quoted() -> String {
    let names = format::VARIABLES.iter().map(|(name, ..)| format!("\"{{{name}}}\""));
    let fields = ["request_header:host", "request_header:referer", "response_header:server", "proxy_tlv:0xe0"];
    names.chain(fields.iter().map(|field| format!("\"{{{field}}}\""))).collect::<Vec<_>>().join(",")
}

fn check_hostile(bytes: &[u8]) {
    let draft = hostile(bytes);
    let mut tlvs = model::proxy_protocol::SenderTlvs::default();
    tlvs.add(0xe0, bytes);
    let sender = model::facts::SenderFacts { address: draft.peer, unique_id: Some(bytes.into()), tlvs };
    let facts = model::Facts { sender: Some(&sender), ..draft.facts() };
    let record = draft.record(&facts);
    let template = every_variable_quoted();
    let out = line(&template, &record);
    let body = out.strip_suffix('\n').unwrap();
    assert!(body.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{body}");
    assert_eq!(body.matches('"').count(), template.matches('"').count(), "{body}");
    let json = formatted(&LogFormat::Json, &record);
    let json = json.strip_suffix('\n').unwrap();
    assert!(!json.contains(|char: char| char.is_control() || char == '\u{2028}' || char == '\u{2029}'));
    let parsed: serde_json::Value = serde_json::from_str(json).unwrap();
    let object = parsed.as_object().unwrap();
    assert_eq!(object.len(), format::VARIABLES.len() - format::NOT_IN_JSON.len() + format::JSON_FIELDS.len());
    if let (Ok(text), false) = (std::str::from_utf8(bytes), bytes.is_empty()) {
        assert_eq!(object["user_agent"], text);
        assert_eq!(object["method"], text);
    }
}

#[test]
fn no_hostile_value_breaks_out_of_its_quotes_or_line() {
    let all: Vec<u8> = (0..=255).collect();
    for bytes in [
        &b"\" 200 0\n127.0.0.1 - - \"GET /admin"[..],
        b"\",\"status\":200,\"x\":\"",
        b"\\",
        b"\\\"",
        b"\r\n\r\n",
        b"\x1b]0;title\x07",
        b"\xc2\x85\xe2\x80\xa8\xe2\x80\xa9",
        b"\xf0\x9f\x98",
        b"\xed\xa0\x80",
        b"{time}${x}%n",
        &all,
        &vec![b'"'; 20_000],
    ] {
        if bytes.len() < 8_000 {
            check_hostile(bytes);
        } else {
            let draft = hostile(bytes);
            let facts = draft.facts();
            let json = formatted(&LogFormat::Json, &draft.record(&facts));
            assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok() && json.len() < 250_000);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_give_one_safe_line_and_one_json_object(bytes: Vec<u8>) {
        check_hostile(&bytes);
    }

    #[test]
    fn any_template_is_compiled_or_refused_but_never_fails(text: String) {
        let _ = check_line(&text, &["a"]);
    }
}

fn numbered(draft: &Draft, writer: &mut LogWriter, number: u64) {
    let facts = draft.facts();
    let mut record = draft.record(&facts);
    record.sent_bytes = number;
    writer.write(&record);
}

fn numbers(path: &Path) -> Vec<u64> {
    fs::read_to_string(path).unwrap().lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn every_record_of_every_worker_reaches_every_log_once_and_in_order() {
    const EACH: u64 = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let (lines, json) = (folder.path().join("a.log"), folder.path().join("b.json"));
    let logs = [
        log(&lines, "{sent_bytes} {request_id}"),
        AccessLog { target: LogTarget::File(json.clone()), format: LogFormat::Json, when: None, values: Vec::new() },
    ];
    let open = AccessLogs::open_with(&logs, 2, 64 << 20).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let mut writer = open.writer(worker);
            scope.spawn(move || {
                let draft = Draft { request_id: format!("w{worker}"), ..Draft::default() };
                (0..EACH).for_each(|number| numbered(&draft, &mut writer, number));
            });
        }
    });
    assert_eq!((open.dropped(), open.failed()), (0, 0));
    drop(open);
    let text = fs::read_to_string(&lines).unwrap();
    for worker in ["w0", "w1"] {
        let own =
            text.lines().filter_map(|line| line.strip_suffix(worker)).map(|line| line.trim().parse::<u64>().unwrap());
        assert!(own.eq(0..EACH));
    }
    let json = fs::read_to_string(&json).unwrap();
    assert_eq!(json.lines().count() as u64, 2 * EACH);
    assert!(json.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

#[test]
fn after_a_rotation_new_records_go_to_the_new_file_and_older_ones_to_the_old() {
    let folder = tempfile::tempdir().unwrap();
    let (path, rotated) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let open = AccessLogs::open(&[log(&path, "{sent_bytes}")], 1).unwrap();
    let (draft, mut writer) = (Draft::default(), open.writer(0));
    numbered(&draft, &mut writer, 1);
    fs::rename(&path, &rotated).unwrap();
    numbered(&draft, &mut writer, 2);
    open.reopen().unwrap();
    numbered(&draft, &mut writer, 3);
    assert!(open.flush(Duration::from_secs(10)));
    assert_eq!((numbers(&rotated), numbers(&path)), (vec![1, 2], vec![3]));
}

#[test]
fn a_file_that_cannot_be_opened_is_named_and_reopening_keeps_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such/folder/access.log");
    let message = AccessLogs::open(&[log(&missing, "x")], 1).unwrap_err().to_string();
    assert!(message.contains("no/such/folder/access.log"), "{message}");
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let path = inner.join("access.log");
    let open = AccessLogs::open(&[log(&path, "{sent_bytes}")], 1).unwrap();
    let (draft, mut writer) = (Draft::default(), open.writer(0));
    let moved = folder.path().join("moved");
    fs::rename(&inner, &moved).unwrap();
    assert!(open.reopen().unwrap_err().to_string().contains("access.log"));
    numbered(&draft, &mut writer, 5);
    drop((writer, open));
    assert_eq!(numbers(&moved.join("access.log")), [5]);
}

#[test]
fn a_full_ring_drops_records_and_counts_exactly_those() {
    const WRITTEN: u64 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let logs = [log(&path, "{sent_bytes} {request_id}")];
    let open = AccessLogs::open_with(&logs, 1, 256).unwrap();
    let mut draft = Draft::default();
    let mut writer = open.writer(0);
    (0..WRITTEN).for_each(|number| numbered(&draft, &mut writer, number));
    draft.request_id = "longer than the whole ring ".repeat(10);
    numbered(&draft, &mut writer, WRITTEN);
    assert!(open.dropped() >= 1);
    assert!(open.flush(Duration::from_secs(10)));
    let kept = numbers(&path);
    assert!(kept.is_sorted_by(|a, b| a < b) && !kept.contains(&WRITTEN));
    assert_eq!(kept.len() as u64 + open.dropped(), WRITTEN + 1);
}

#[test]
fn a_target_that_refuses_lines_costs_records_that_are_counted() {
    let open = AccessLogs::open(&[log(Path::new("/dev/full"), "{sent_bytes}")], 1).unwrap();
    let (draft, mut writer) = (Draft::default(), open.writer(0));
    (0..7).for_each(|number| numbered(&draft, &mut writer, number));
    assert!(open.flush(Duration::from_secs(10)));
    assert_eq!((open.failed(), open.dropped()), (7, 0));
}

#[test]
fn a_writer_that_outlives_its_logs_still_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let open = AccessLogs::open(&[log(&path, "{sent_bytes}")], 1).unwrap();
    let shared = Arc::clone(&open.shared);
    let (draft, mut writer) = (Draft::default(), open.writer(0));
    numbered(&draft, &mut writer, 1);
    drop(open);
    assert_eq!(numbers(&path), [1]);
    numbered(&draft, &mut writer, 2);
    drop(writer);
    assert!(shared.flush(Duration::from_secs(10)));
    assert_eq!(numbers(&path), [1, 2]);
}

#[test]
fn a_record_after_a_silence_wakes_the_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let open = AccessLogs::open(&[log(&path, "{sent_bytes}")], 1).unwrap();
    let (draft, mut writer) = (Draft::default(), open.writer(0));
    let wait = |condition: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(20), "never happened");
            std::thread::yield_now();
        }
    };
    wait(&|| open.shared.is_idle());
    numbered(&draft, &mut writer, 9);
    wait(&|| numbers(&path) == [9]);
}

#[test]
fn no_logs_cost_no_thread_and_write_nothing() {
    let open = AccessLogs::open(&[], 2).unwrap();
    let mut writer = open.writer(1);
    numbered(&Draft::default(), &mut writer, 1);
    assert!(open.flush(Duration::ZERO) && open.dropped() == 0);
    open.reopen().unwrap();
}

#[test]
fn addresses_mapped_into_ipv6_are_told_as_ipv4() {
    let peer: SocketAddr = "[::ffff:192.0.2.9]:5000".parse().unwrap();
    let draft = Draft { peer, ..Draft::default() };
    let mut facts = draft.facts();
    facts.client = "192.0.2.9".parse().unwrap();
    assert_eq!(line("{client_ip} {client_port} {peer_ip}", &draft.record(&facts)), "192.0.2.9 5000 192.0.2.9\n");
}
