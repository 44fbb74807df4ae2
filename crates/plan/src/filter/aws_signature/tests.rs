use model::Version;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request};
use super::super::{Flow, Found, Need, TooLong};
use super::*;

/// The credentials of the published examples.
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn field(head: &RequestHead, name: &str) -> String {
    let name = FieldName::new(name).unwrap();
    String::from_utf8(head.fields.get(&name).unwrap_or_default().to_vec()).unwrap()
}

/// Requests of the suite that AWS publishes (`aws-sig-v4-test-suite`), with their signatures. It has no `x-amz-content-sha256`.
#[test]
fn requests_of_the_suite_of_aws_have_its_signatures() {
    let scope = Scope { region: "us-east-1".into(), signed_for: "service".into(), is_s3: false };
    let credentials = Credentials::new("AKIDEXAMPLE".into(), SECRET, None).unwrap();
    let time = signature::time(1_440_938_160);
    assert_eq!(time, "20150830T123600Z");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    for (method, target, more, body, expected) in [
        ("GET", "/", None, "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", None, "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            None,
            "",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        ("GET", "/\u{1234}", None, "", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
        ("GET", "/?\u{1234}=bar", None, "", "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
        ("GET", "/example space/", None, "", "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
        (
            "GET",
            "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            None,
            "",
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        ),
        ("POST", "/", Some(form), "Param1=value1", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"),
    ] {
        let mut fields = vec![("Host", "example.amazonaws.com"), ("X-Amz-Date", &*time), ("accept", "not signed")];
        fields.extend(more);
        let head = request(method, target, &fields);
        let value = scope.authorization(&credentials, &head, &time, &signature::hash(body.as_bytes()));
        let names = if more.is_some() { "content-type;host;x-amz-date" } else { "host;x-amz-date" };
        assert_eq!(
            value,
            format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={names}, \
                 Signature={expected}"
            ),
            "{method} {target}"
        );
    }
}

#[test]
fn requests_to_s3_have_the_signatures_of_its_documentation() {
    let settings = json!({
        "region": "us-east-1", "service": "s3", "access_key_id": "AKIAIOSFODNN7EXAMPLE", "payload": "signed",
        "secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    });
    for (target, expected) in [
        ("/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?prefix=J&max-keys=2", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ] {
        let mut head = request("GET", target, &[("host", "examplebucket.s3.amazonaws.com")]);
        assert_eq!(signed(&settings, &mut head, 1_369_353_600, Some(b"")), Flow::Continue);
        let value = field(&head, "authorization");
        assert!(value.ends_with(&format!("SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={expected}")));
        assert_eq!(field(&head, "x-amz-date"), "20130524T000000Z");
    }
}

fn signed(settings: &Value, head: &mut RequestHead, now: u64, body: Option<&[u8]>) -> Flow {
    let (world, mut beside) = (World::new(), Beside::new());
    let facts = world.facts();
    beside.wall_clock = Box::new(move || std::time::Duration::from_secs(now));
    let chain = chain(json!([{ "aws_signature": settings }]));
    let flow = chain.on_request(head, &mut beside.turn(&facts));
    match (flow, body) {
        (Flow::Need(Need::Body { .. }), Some(body)) => {
            chain.resume(&mut 0, Found::Body(Ok(&body.into())), head, &mut beside.turn(&facts))
        }
        (Flow::Need(Need::Body { max }), None) => {
            assert_eq!(max, 1 << 20);
            chain.resume(&mut 0, Found::Body(Err(TooLong)), head, &mut beside.turn(&facts))
        }
        (flow, _) => flow,
    }
}

fn settings(more: Value) -> Value {
    let text = format!(
        "# ours\n[other]\naws_access_key_id = OTHER\naws_secret_access_key=x\n[default]\naws_access_key_id = AKIDEXAMPLE\n\
         aws_secret_access_key = {SECRET}\naws_session_token=token-1\nregion = x\n"
    );
    let mut all =
        json!({ "region": "eu-central-1", "service": "s3", "credentials_file": { "name": "aws", "text": text } });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

#[test]
fn what_a_client_sends_by_these_names_does_not_stay() {
    let fields = [
        ("host", "a.example"),
        ("Authorization", "Bearer theirs"),
        ("x_amz_date", "1"),
        ("X-Amz-Security-Token", "theirs"),
        ("x-amz-meta-a", "b   c"),
        ("x-amz-meta-a", " d"),
    ];
    let mut head = request("PUT", "/a%2fb+c?x=a+b&y=%zz", &fields);
    assert_eq!(signed(&settings(json!({})), &mut head, 2_000_000_000, None), Flow::Continue);
    let all = listed(&head.fields);
    assert!(!all.contains("theirs") && !all.contains("x_amz_date"), "{all}");
    assert!(all.contains("x-amz-content-sha256: UNSIGNED-PAYLOAD") && all.contains("x-amz-security-token: token-1"));
    assert!(all.contains(
        "Credential=AKIDEXAMPLE/20330518/eu-central-1/s3/aws4_request, \
         SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-meta-a;x-amz-security-token, Signature="
    ));
    assert_eq!(head.query(), Some(&b"x=a%20b&y=%zz"[..]), "a space in one spelling only");
    let mut other = request("PUT", "/a%2Fb%2Bc?y=%25zz&x=a%20b", &fields);
    assert_eq!(signed(&settings(json!({})), &mut other, 2_000_000_000, None), Flow::Continue);
    assert_eq!(field(&head, "authorization"), field(&other, "authorization"), "one path and one query");
}

#[test]
fn bodies_are_signed_up_to_their_bound() {
    let settings = settings(json!({ "service": "es", "profile": "other" }));
    let mut head = request("POST", "/", &[("host", "a")]);
    assert_eq!(
        signed(&settings, &mut head, 0, None),
        Flow::refuse(413, "the request's body is too large to be signed")
    );
    let mut head = request("POST", "/", &[("host", "a")]);
    assert_eq!(signed(&settings, &mut head, 0, Some(b"")), Flow::Continue);
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(field(&head, "x-amz-content-sha256"), empty);
    assert!(field(&head, "authorization").starts_with("AWS4-HMAC-SHA256 Credential=OTHER/19700101/"));
    let mut head = request("POST", "/", &[]);
    head.version = Version::Http10;
    let flow = signed(&settings, &mut head, 0, Some(b""));
    assert_eq!(flow, Flow::refuse(400, "a request without a host cannot be signed"));
}

#[test]
fn bodies_in_chunks_that_the_client_has_signed_are_refused() {
    for payload in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"] {
        let mut head = request("PUT", "/", &[("host", "a"), ("X-Amz-Content-Sha256", payload)]);
        let refused = Flow::refuse(501, "a body in signed chunks (aws-chunked) cannot be signed again");
        assert_eq!(signed(&settings(json!({})), &mut head, 0, None), refused);
    }
}

#[test]
fn a_rehearsal_shows_no_signature() {
    let (world, mut beside) = (World::new(), Beside::new());
    beside.is_rehearsal = true;
    let mut head = request("GET", "/", &[("host", "a"), ("authorization", "x")]);
    let chain = chain(json!([{ "aws_signature": settings(json!({})) }]));
    assert_eq!(chain.on_request(&mut head, &mut beside.turn(&world.facts())), Flow::Continue);
    assert_eq!(listed(&head.fields), "host: a");
}

#[test]
fn moments_are_written_by_the_calendar() {
    for (seconds, expected) in [
        (0, "19700101T000000Z"),
        (951_782_399, "20000228T235959Z"),
        (951_782_400, "20000229T000000Z"),
        (4_107_542_399, "21000228T235959Z"),
        (4_107_542_400, "21000301T000000Z"),
        (u64::MAX, "99991231T235959Z"),
    ] {
        assert_eq!(signature::time(seconds), expected);
    }
}

#[test]
fn settings_that_cannot_work_are_issues_without_secrets() {
    let file = |text: &str| json!({ "credentials_file": { "name": "aws", "text": text } });
    for (changes, told) in [
        (json!({ "region": "eu/x" }), "region: `eu/x` is not a region (write one such as `eu-central-1`)"),
        (json!({ "service": "" }), "service: `` is not a service"),
        (json!({ "service": "es", "payload": "unsigned" }), "payload: `es` accepts no unsigned payload"),
        (json!({ "body_max": "1KiB" }), "body_max: the body is not signed"),
        (json!({ "payload": "signed", "body_max": "17MiB" }), "body_max: "),
        (json!({ "access_key_id": "A" }), "credentials_file: there are credentials in the configuration, too"),
        (json!({ "credentials_file": null }), ": there are no credentials"),
        (json!({ "profile": "third" }), "credentials_file: `aws` has no `aws_access_key_id`"),
        (file("aws_access_key_id=A\naws_secret_access_key=se cret"), "credentials_file: `aws` has a bad"),
        (file("aws_access_key_id=A b\naws_secret_access_key=se-cret"), "credentials_file: `aws` has a bad"),
    ] {
        let all = issue("aws_signature", settings(changes.clone()));
        assert!(all.starts_with(told), "{changes}: {all}");
        assert!(!all.contains("cret\n") && !all.contains("se cret") && !all.contains("se-cret"), "{all}");
    }
}
