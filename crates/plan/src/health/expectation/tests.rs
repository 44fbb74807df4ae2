//! Responses that pass, and what is said of those that do not.

use model::check::JsonMatch;
use model::fields::Span;
use serde_json::json;

use super::*;

fn head(status: u16, fields: &[(&str, &str)]) -> ResponseHead {
    let mut head = ResponseHead::default();
    head.set_line(status, Span::default(), model::Version::default());
    for (name, value) in fields {
        head.fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
    }
    head
}

fn wanting(wanted: ResponseTests, refused: ResponseTests) -> Expectation {
    let statuses = if wanted.statuses.is_empty() { vec![(100, 599)] } else { wanted.statuses.clone() };
    let wanted = ResponseTests { statuses, ..wanted };
    Expectation::compile(&HttpCheck { wanted, refused, ..HttpCheck::get("/") }).unwrap()
}

fn fields(tests: &[(&str, ValueTest)]) -> ResponseTests {
    let one = |(name, test): &(&str, ValueTest)| ValueMatch { name: (*name).into(), test: test.clone() };
    ResponseTests { fields: tests.iter().map(one).collect(), ..ResponseTests::default() }
}

fn body(tests: &[BodyTest]) -> ResponseTests {
    ResponseTests { body: tests.to_vec(), ..ResponseTests::default() }
}

fn at(path: &str, test: JsonTest) -> ResponseTests {
    ResponseTests { json: vec![JsonMatch { path: path.into(), test }], ..ResponseTests::default() }
}

fn none() -> ResponseTests {
    ResponseTests::default()
}

fn read(expectation: &Expectation, bytes: &[u8]) -> Result<(), String> {
    let mut body = Body::new(expectation);
    let is_enough = body.take(bytes);
    let verdict = body.verdict(true);
    assert!(!is_enough || verdict == body.verdict(false) || !body.is_cut, "{verdict:?}");
    verdict
}

#[test]
fn statuses_are_wanted_or_refused() {
    let wanted = wanting(ResponseTests { statuses: vec![(200, 299), (401, 401)], ..none() }, none());
    assert_eq!([200, 299, 401].map(|status| wanted.check_head(&head(status, &[]))), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(wanted.check_head(&head(302, &[])), Err("answered 302".into()));
    let refused = wanting(none(), ResponseTests { statuses: vec![(500, 599)], ..none() });
    assert_eq!(refused.check_head(&head(404, &[])), Ok(()));
    assert_eq!(refused.check_head(&head(503, &[])), Err("answered 503".into()));
}

#[test]
fn fields_are_there_or_not_and_have_values() {
    let fault = |wanted: ValueTest, given: &[(&str, &str)]| {
        wanting(fields(&[("X-Role", wanted)]), none()).check_head(&head(200, given)).err().unwrap_or_default()
    };
    let exact = || ValueTest::Exact("primary".into());
    let regex = || ValueTest::Regex("prim.*".into());
    let primary = &[("x-role", "replica"), ("x-role", "primary")];
    for test in [exact(), regex(), ValueTest::Present] {
        assert_eq!(fault(test, primary), "");
    }
    assert_eq!(fault(ValueTest::Absent, &[]), "");
    let replica = &[("x-role", "replica")];
    assert_eq!(fault(exact(), replica), "the header `X-Role` is \"replica\", expected \"primary\"");
    assert_eq!(fault(exact(), &[]), "the header `X-Role` is missing, expected \"primary\"");
    assert_eq!(fault(regex(), replica), "the header `X-Role` is \"replica\", which does not match `prim.*`");
    assert_eq!(fault(regex(), &[]), "the header `X-Role` is missing, expected one that matches `prim.*`");
    assert_eq!(fault(ValueTest::Present, &[]), "the header `X-Role` is missing");
    assert_eq!(fault(ValueTest::Absent, replica), "the header `X-Role` is \"replica\", expected none");
    let refused = |test: ValueTest, given: &[(&str, &str)]| {
        wanting(none(), fields(&[("x-role", test)])).check_head(&head(200, given)).err().unwrap_or_default()
    };
    assert_eq!(refused(exact(), replica), "");
    assert_eq!(refused(exact(), primary), "the header `x-role` is \"primary\", which `not` refuses");
    assert_eq!(refused(ValueTest::Present, replica), "the header `x-role` is \"replica\", which `not` refuses");
    assert_eq!(refused(ValueTest::Absent, &[]), "the header `x-role` is missing, which `not` refuses");
    assert_eq!(refused(ValueTest::Absent, replica), "");
}

#[test]
fn a_compressed_body_is_refused_where_a_body_is_looked_at() {
    let looks = wanting(body(&[BodyTest::Contains("ok".into())]), none());
    let why = "the body is compressed (\"gzip\"), so it cannot be checked";
    assert_eq!(looks.check_head(&head(200, &[("content-encoding", "gzip")])), Err(why.into()));
    assert_eq!(looks.check_head(&head(200, &[("content-encoding", "Identity")])), Ok(()));
    assert_eq!(wanting(none(), none()).check_head(&head(200, &[("content-encoding", "gzip")])), Ok(()));
}

#[test]
fn a_body_contains_texts_and_matches_expressions_whatever_its_bytes() {
    let contains = |text: &str| BodyTest::Contains(text.into());
    let matches = |text: &str| BodyTest::Regex(text.into());
    let all = wanting(body(&[contains("all.is (well) ä"), matches(r"v[0-9]+\b")]), none());
    assert_eq!(read(&all, "\u{ff}all.is (well) ä v12".as_bytes()), Ok(()));
    assert_eq!(read(&all, b"all is (well) v12"), Err("the body does not contain \"all.is (well) ä\"".into()));
    assert_eq!(read(&all, "all.is (well) ä".as_bytes()), Err(r"the body does not match `v[0-9]+\b`".into()));
    assert_eq!(
        read(&wanting(body(&[matches("^ok$")]), none()), b"\xff\xfe"),
        Err("the body does not match `^ok$`".into())
    );
    let refused = wanting(none(), body(&[contains("degraded"), matches("(?i)error")]));
    assert_eq!(read(&refused, b"ok"), Ok(()));
    assert_eq!(read(&refused, b"is degraded"), Err("the body contains \"degraded\", which `not` refuses".into()));
    assert_eq!(read(&refused, b"Error 7"), Err("the body matches `(?i)error`, which `not` refuses".into()));
}

#[test]
fn reading_ends_early_only_where_nothing_that_follows_matters() {
    let ok = || body(&[BodyTest::Contains("ok".into())]);
    let early = |wanted, refused| Body::new(&wanting(wanted, refused)).take(b"it is ok, and more");
    assert!(early(ok(), none()));
    assert!(!early(ok(), ok()) && !early(at(".a", JsonTest::Present), none()) && !early(none(), none()));
    let expectation = wanting(ok(), none());
    let mut body = Body::new(&expectation);
    assert!(!body.take(b"it is o") && body.take(b"k"), "also across pieces");
}

#[test]
fn a_body_beyond_its_bound_is_cut() {
    let check = HttpCheck {
        wanted: ResponseTests { statuses: vec![(200, 200)], ..body(&[BodyTest::Contains("ok".into())]) },
        response_bytes_max: 10,
        ..HttpCheck::get("/")
    };
    let expectation = Expectation::compile(&check).unwrap();
    let mut cut = Body::new(&expectation);
    assert!(!cut.take(b"0123456789") && cut.take(b"ok") && cut.len() == 10);
    assert_eq!(cut.verdict(true), Err("within its first 10 bytes the body does not contain \"ok\"".into()));
    let wanted = ResponseTests { body: Vec::new(), ..at(".a", JsonTest::Present) };
    let expectation = Expectation::compile(&HttpCheck { wanted, ..check }).unwrap();
    let mut cut = Body::new(&expectation);
    assert!(cut.take(b"[\"0123456789\"]"));
    let why = "the body is longer than 10 bytes (`response_bytes_max`), too long to read as JSON";
    assert_eq!(cut.verdict(false), Err(why.into()));
}

#[test]
fn a_body_in_tiny_pieces_is_not_searched_for_each_of_them() {
    let expectation = wanting(body(&[BodyTest::Contains("never".into())]), none());
    let mut body = Body::new(&expectation);
    assert!((0..60_000).all(|_| !body.take(b"x")));
    assert!(body.looks < 200, "{} looks", body.looks);
}

#[test]
fn json_is_looked_at_by_path() {
    let document =
        br#"{"status":"ok","a.b":{"":1},"n":[1,{"deep":[true,null,2.50]},-7],"big":18446744073709551615,"status2":{}}"#;
    let find = |path: &str| JsonPath::parse(path).unwrap().find(document).unwrap().map(|found| found.shown());
    for (path, wanted) in [
        (".status", "\"ok\""),
        ("$.status", "\"ok\""),
        ("[\"status\"]", "\"ok\""),
        ("[\"a.b\"]", "an object"),
        ("[\"a.b\"][\"\"]", "1"),
        ("$[\"a\\u002eb\"]", "an object"),
        (".n", "a list"),
        (".n[0]", "1"),
        (".n[1].deep[0]", "true"),
        (".n[1].deep[1]", "null"),
        (".n[1].deep[2]", "2.5"),
        (".n[2]", "-7"),
        (".big", "18446744073709551615"),
        ("$", "an object"),
    ] {
        assert_eq!(find(path).as_deref(), Some(wanted), "{path}");
    }
    for path in [".other", ".status.x", ".n[3]", ".n.x", "[0]", ".n[0][0]", ".status2.x"] {
        assert_eq!(find(path), None, "{path}");
    }
    let twice = JsonPath::parse(".a").unwrap().find(br#"{"a":1,"a":"last"}"#).unwrap();
    assert_eq!(twice, Some(Found::Text("last".into())));
}

#[test]
fn json_values_are_compared_and_reasons_say_what_is_there() {
    let fault = |path: &str, test: JsonTest, document: &str| {
        read(&wanting(at(path, test), none()), document.as_bytes()).err().unwrap_or_default()
    };
    let equals = |value: Value| JsonTest::Equals(value);
    for (value, document) in [
        (json!("ok"), r#"{"a":"ok"}"#),
        (json!("o\"k"), r#"{"a":"o\u0022k"}"#),
        (json!(3), r#"{"a":3}"#),
        (json!(3), r#"{"a":3.0}"#),
        (json!(0.5), r#"{"a":5e-1}"#),
        (json!(true), r#" {"a" : true} "#),
    ] {
        assert_eq!(fault(".a", equals(value.clone()), document), "", "{value} in {document}");
    }
    let ok = || equals(json!("ok"));
    assert_eq!(
        fault(".status", ok(), r#"{"status":"degraded"}"#),
        "JSON at `.status` is \"degraded\", expected \"ok\""
    );
    assert_eq!(fault(".a", ok(), "{}"), "JSON at `.a` is missing, expected \"ok\"");
    assert_eq!(fault(".a", ok(), r#"{"a":{}}"#), "JSON at `.a` is an object, expected \"ok\"");
    assert_eq!(fault(".a", equals(json!(true)), r#"{"a":"true"}"#), "JSON at `.a` is \"true\", expected true");
    assert_eq!(fault(".a", equals(json!(1)), r#"{"a":2}"#), "JSON at `.a` is 2, expected 1");
    assert_eq!(fault(".a", JsonTest::Present, "[]"), "JSON at `.a` is missing");
    assert_eq!(fault(".a", JsonTest::Present, r#"{"a":null}"#), "");
    assert_eq!(fault(".a", JsonTest::Absent, r#"{"a":null}"#), "JSON at `.a` is null, expected none");
    let regex = || JsonTest::Regex("ok|[0-9]+|true".into());
    for document in [r#"{"a":"ok"}"#, r#"{"a":12}"#, r#"{"a":true}"#] {
        assert_eq!(fault(".a", regex(), document), "", "{document}");
    }
    assert_eq!(
        fault(".a", regex(), r#"{"a":"not ok"}"#),
        "JSON at `.a` is \"not ok\", which does not match `ok|[0-9]+|true`"
    );
    assert_eq!(fault(".a", regex(), "{}"), "JSON at `.a` is missing, expected one that matches `ok|[0-9]+|true`");
    let refused = wanting(none(), at(".status", equals(json!("down"))));
    assert_eq!(read(&refused, br#"{"status":"up"}"#), Ok(()));
    assert_eq!(read(&refused, b"{}"), Ok(()));
    assert_eq!(
        read(&refused, br#"{"status":"down"}"#),
        Err("JSON at `.status` is \"down\", which `not` refuses".into())
    );
}

#[test]
fn what_is_not_json_is_said_to_be_none_and_no_depth_does_harm() {
    let test = wanting(at(".a", JsonTest::Equals(json!(1))), none());
    let why = |document: &[u8]| read(&test, document).unwrap_err();
    assert_eq!(why(b""), "the body is empty, expected JSON");
    assert_eq!(why(b"<html>"), "the body is not JSON: expected value at line 1 column 1");
    assert_eq!(why(br#"{"a":1} x"#), "the body is not JSON: trailing characters at line 1 column 9");
    for bad in [&b"\xff"[..], b"{\"a\":\"\xff\"}", b"{\"a\":1", b"{\"a\":1e999}", b"\0\0", b"\xef\xbb\xbf{}"] {
        assert!(why(bad).starts_with("the body is not JSON: "), "{bad:?}: {}", why(bad));
    }
    let deep = [&b"{\"b\":"[..], &b"[".repeat(20_000), &b"]".repeat(20_000), b",\"a\":1}"].concat();
    assert_eq!(read(&test, &deep), Ok(()), "beside the path");
    let deep = [&b"{\"a\":".repeat(5_000)[..], b"1", &b"}".repeat(5_000)].concat();
    assert_eq!(why(&deep), "JSON at `.a` is an object, expected 1");
    assert!(why(&b"[".repeat(60_000)).starts_with("the body is not JSON: EOF"), "{}", why(&b"[".repeat(60_000)));
}

#[test]
fn reasons_quote_little_and_move_no_cursor() {
    let test = wanting(at(".a", JsonTest::Equals(json!("x".repeat(500)))), none());
    let document = format!(r#"{{"a":"\u001b[2J{}"}}"#, "ä".repeat(500));
    let why = read(&test, document.as_bytes()).unwrap_err();
    assert!(why.chars().count() < 200 && !why.contains('\u{1b}') && why.contains("…"), "{why}");
}

#[test]
fn mistakes_are_issues_with_their_places() {
    let check = HttpCheck {
        wanted: ResponseTests {
            json: vec![
                JsonMatch { path: ".a..b".into(), test: JsonTest::Present },
                JsonMatch { path: ".a".into(), test: JsonTest::Regex("(".into()) },
            ],
            ..body(&[BodyTest::Regex("[".into())])
        },
        refused: fields(&[("x-a", ValueTest::Regex("*".into()))]),
        ..HttpCheck::get("/")
    };
    let mut health =
        HealthCheck::new(HealthCheckKind::Http(check), std::time::Duration::ZERO, std::time::Duration::ZERO);
    let paths = |check: &HealthCheck| issues_of(check).into_iter().map(|issue| issue.path).collect::<Vec<_>>();
    assert_eq!(
        paths(&health),
        ["http/expect_body/regex", "http/expect_json/0/path", "http/expect_json/1/regex", "http/not/headers/x-a/regex"]
    );
    health.is_listed = true;
    assert_eq!(paths(&health)[0], "steps/0/http/expect_body/regex");
}

#[test]
fn what_is_no_path_is_refused_with_its_place() {
    let why = |path: &str| JsonPath::parse(path).unwrap_err().message;
    assert_eq!(why(".a..b"), "`.a..b` is not a path in JSON: a key is missing after the dot at character 3");
    assert_eq!(why("status"), "`status` is not a path in JSON: neither `.` nor `[` at character 1");
    assert_eq!(why("$x"), "`$x` is not a path in JSON: neither `.` nor `[` at character 2");
    assert_eq!(why(""), "`` is not a path in JSON: a key or `$` is missing at character 1");
    assert_eq!(why(".ä[1"), "`.ä[1` is not a path in JSON: a `[` without its `]` at character 3");
    for bad in [
        ".",
        ".a[",
        ".a[]",
        ".a[-1]",
        ".a[+1]",
        ".a[*]",
        ".a[?(@.b)]",
        ".*",
        "..a",
        "[\"a]",
        "[\"a\"",
        "['a']",
        ".a b",
        "$$",
    ] {
        assert!(why(bad).contains("is not a path in JSON"), "{bad}");
    }
    assert!(why(&".a".repeat(33)).ends_with("has 33 steps, and a path in JSON has 32 at most"));
    assert!(JsonPath::parse(&".a".repeat(32)).is_ok());
}
