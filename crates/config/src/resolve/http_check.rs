//! Checks over HTTP: the request, and the conditions on its response.

use std::collections::BTreeMap;

use model::Method;
use model::check::{BodyTest, HttpCheck, JsonMatch, JsonTest, ResponseTests};
use model::fields::is_token;
use model::limits::{CHECK_BODY_BYTES_HARD_MAX, CHECK_BODY_SENT_BYTES_MAX, CHECK_CONDITIONS_MAX};
use model::matching::ValueMatch;
use serde_json::Value;

use super::Resolver;
use super::cluster::status_range;
use super::route::value_test;
use crate::file;

/// What is good while nothing else is said.
const GOOD: (u16, u16) = (200, 299);
/// Every final status, and more.
const ANY: (u16, u16) = (100, 599);

impl Resolver<'_> {
    pub(super) fn http_check(&mut self, at: &str, written: &file::HttpCheck) -> HttpCheck {
        let path = &written.path;
        if !path.starts_with('/') {
            let mend = Some(format!("write `/{path}`"));
            self.report(&format!("{at}/path"), format!("the path `{path}` does not begin with `/`"), mend);
        } else if path.bytes().any(|b| b <= b' ' || b >= 0x7f || b == b'#') {
            let message = format!("the path `{path}` contains a character that no request may have");
            self.report(&format!("{at}/path"), message, None);
        }
        self.check_method(at, written);
        let (host, fields) = self.sent_fields(at, written);
        let size = written.response_bytes_max.0;
        if !(1..=CHECK_BODY_BYTES_HARD_MAX as u64).contains(&size) {
            let message =
                format!("`response_bytes_max` must be from 1 to {CHECK_BODY_BYTES_HARD_MAX} bytes, not {size}");
            self.report(&format!("{at}/response_bytes_max"), message, None);
        }
        let refused = written.not.as_ref().map(|not| self.refused(&format!("{at}/not"), not)).unwrap_or_default();
        HttpCheck {
            method: written.method.clone(),
            path: path.clone(),
            host,
            fields,
            body: written.body.as_bytes().into(),
            wanted: self.wanted(at, written, &refused),
            refused,
            response_bytes_max: size.min(CHECK_BODY_BYTES_HARD_MAX as u64) as usize,
        }
    }

    fn check_method(&mut self, at: &str, written: &file::HttpCheck) {
        let (method, path) = (written.method.as_str(), format!("{at}/method"));
        let upper = method.to_ascii_uppercase();
        if !is_token(method.as_bytes()) {
            self.report(&path, format!("`{method}` is not a method"), Some("write one such as `POST`".to_owned()));
        } else if Method::of(upper.as_bytes()) == Method::Connect {
            let message = "`CONNECT` opens a tunnel, which says nothing about health";
            self.report(&path, message, Some("write another method, such as `GET`".to_owned()));
        } else if upper != method && Method::of(upper.as_bytes()) != Method::Other {
            let mend = format!("write `{upper}`: methods are case-sensitive");
            self.report(&path, format!("`{method}` is not a method that endpoints know"), Some(mend));
        }
        let sent = written.body.len();
        if sent > CHECK_BODY_SENT_BYTES_MAX {
            let message = format!("the body has {sent} bytes, and a check sends at most {CHECK_BODY_SENT_BYTES_MAX}");
            self.report(&format!("{at}/body"), message, Some("send a shorter one".to_owned()));
        }
        // RFC 9110 section 9.3.8.
        if sent > 0 && method == "TRACE" {
            self.report(&format!("{at}/body"), "a request with `TRACE` has no body", Some("leave it out".to_owned()));
        }
        let refuses = |test: fn(&file::RefusedResponse) -> bool| written.not.as_ref().is_some_and(test);
        let looks_at_body = [
            ("expect_body", !written.expect_body.as_slice().is_empty()),
            ("expect_json", !written.expect_json.as_slice().is_empty()),
            ("not/body", refuses(|not| !not.body.as_slice().is_empty())),
            ("not/json", refuses(|not| !not.json.as_slice().is_empty())),
        ];
        for (key, _) in looks_at_body.iter().filter(|(_, looks)| *looks && method == "HEAD") {
            let message = "a response to HEAD has no body";
            self.report(&format!("{at}/{key}"), message, Some("leave out `method: HEAD`".to_owned()));
        }
    }

    /// Returns the host, and the fields to send beside it.
    fn sent_fields(&mut self, at: &str, written: &file::HttpCheck) -> (Option<String>, Vec<(String, String)>) {
        self.check_host(&format!("{at}/host"), written.host.as_ref());
        let mut fields = self.check_fields(&format!("{at}/headers"), &written.headers, &[]);
        let Some(place) = fields.iter().position(|(name, _)| name.eq_ignore_ascii_case("host")) else {
            return (written.host.clone(), fields);
        };
        let (name, host) = fields.remove(place);
        let path = format!("{at}/headers/{name}");
        if written.host.is_some() {
            let message = "the host is set twice: as `host`, and among `headers`";
            self.report(&path, message, Some("keep one of them".to_owned()));
        }
        self.check_host(&path, Some(&host));
        (Some(host), fields)
    }

    fn wanted(&mut self, at: &str, written: &file::HttpCheck, refused: &ResponseTests) -> ResponseTests {
        let statuses = match &written.statuses {
            Some(statuses) => self.check_statuses(&format!("{at}/statuses"), statuses),
            None if refused.statuses.is_empty() => vec![GOOD],
            None => vec![ANY],
        };
        ResponseTests {
            statuses,
            fields: self.expected_fields(&format!("{at}/expect_headers"), &written.expect_headers),
            body: self.body_tests(&format!("{at}/expect_body"), &written.expect_body),
            json: self.json_tests(&format!("{at}/expect_json"), &written.expect_json),
        }
    }

    fn refused(&mut self, at: &str, written: &file::RefusedResponse) -> ResponseTests {
        let refused = ResponseTests {
            statuses: self.check_statuses(&format!("{at}/statuses"), &written.statuses),
            fields: self.expected_fields(&format!("{at}/headers"), &written.headers),
            body: self.body_tests(&format!("{at}/body"), &written.body),
            json: self.json_tests(&format!("{at}/json"), &written.json),
        };
        // A key with something wrong in it was reported already.
        if refused == ResponseTests::default()
            && ["statuses", "headers", "body", "json"].iter().all(|key| !self.has(at, key))
        {
            let mend = "add `statuses`, `headers`, `body` or `json`, or leave `not` out".to_owned();
            self.report(at, "`not` refuses nothing", Some(mend));
        }
        refused
    }

    fn check_statuses(&mut self, at: &str, written: &[file::Statuses]) -> Vec<(u16, u16)> {
        let mut statuses = Vec::new();
        for (index, status) in written.iter().enumerate() {
            match status_range(&status.to_string()) {
                Some(range) => statuses.push(range),
                None => {
                    let mend =
                        "write a status such as 200, a class such as 2xx, or a range such as 200-299, from 100 to 599"
                            .to_owned();
                    let message = format!("`{status}` is not a status, nor a range of them");
                    self.report(&format!("{at}/{index}"), message, Some(mend));
                }
            }
        }
        statuses
    }

    fn expected_fields(&mut self, at: &str, written: &BTreeMap<String, file::ValueTest>) -> Vec<ValueMatch> {
        let mut fields = Vec::new();
        for (name, test) in written {
            if !is_token(name.as_bytes()) {
                let span = self.key_span(at, name);
                self.sink.push(span, format!("`{name}` is not the name of a header field"), None);
            }
            // What is wrong with the test itself was reported by the schema.
            fields.extend(value_test(test).map(|test| ValueMatch { name: name.clone(), test }));
        }
        fields
    }

    fn body_tests(&mut self, at: &str, written: &file::OneOrMany<file::BodyTest>) -> Vec<BodyTest> {
        self.count_conditions(at, written.as_slice().len());
        let test = |test: &file::BodyTest| match test {
            file::BodyTest::Contains(text) => Some(BodyTest::Contains(text.clone())),
            file::BodyTest::Test(file::BodyTestMap { contains: Some(text), .. }) => {
                Some(BodyTest::Contains(text.clone()))
            }
            file::BodyTest::Test(file::BodyTestMap { regex, .. }) => regex.clone().map(BodyTest::Regex),
        };
        written.as_slice().iter().filter_map(test).collect()
    }

    fn json_tests(&mut self, at: &str, written: &file::OneOrMany<file::JsonTest>) -> Vec<JsonMatch> {
        self.count_conditions(at, written.as_slice().len());
        let test = |written: &file::JsonTest| {
            let test = match (&written.equals, &written.regex, written.absent) {
                (Some(value), ..) => JsonTest::Equals(json_value(value)),
                (_, Some(pattern), _) => JsonTest::Regex(pattern.clone()),
                (_, _, Some(_)) => JsonTest::Absent,
                _ => JsonTest::Present,
            };
            JsonMatch { path: written.path.clone(), test }
        };
        written.as_slice().iter().map(test).collect()
    }

    fn count_conditions(&mut self, at: &str, count: usize) {
        if count > CHECK_CONDITIONS_MAX {
            let message = format!("these are {count} conditions; a check may have {CHECK_CONDITIONS_MAX} of each kind");
            let mend = "join some of them, for instance in one `regex`".to_owned();
            self.report(at, message, Some(mend));
        }
    }
}

fn json_value(written: &file::JsonValue) -> Value {
    match written {
        file::JsonValue::Switch(switch) => Value::Bool(*switch),
        file::JsonValue::Number(number) => Value::Number(number.clone()),
        file::JsonValue::Text(text) => Value::String(text.clone()),
    }
}
