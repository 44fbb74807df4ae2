use aws_lc_rs::hmac;
use md5::{Digest, Md5};
use model::base64::encode_url;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{World, chain, flow_of, issue, passed, request};
use super::super::{Chain, Flow};

/// The clock of tests is at 2,000,000,000.
const LATER: &str = "2000000001";
const SECRET: &str = "0123456789abcdef";
const OLD: &str = "an old secret of ours";

fn with(more: Value) -> Chain {
    let text = format!("# secrets\n{SECRET}\n{OLD}\n");
    let mut settings = json!({ "secret_file": { "name": "s.txt", "text": text } });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chain(json!([{ "signed_url": settings }]))
}

fn sign(secret: &str, message: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn status(chain: &Chain, target: &str) -> u16 {
    match flow_of(chain, &mut request("GET", target, &[]), &World::new().facts()) {
        Flow::Respond(local) => local.status,
        flow => {
            assert_eq!(flow, Flow::Continue);
            200
        }
    }
}

#[test]
fn a_signed_link_passes_until_it_expires() {
    let links = with(json!({}));
    let link = |expires: &str| {
        let message = format!("/f%20a?x=1&expires={expires}");
        format!("{message}&signature={}", hex(&sign(SECRET, &message)))
    };
    let (later, now) = (link(LATER), link("2000000000"));
    assert_eq!((status(&links, &later), status(&links, &now), status(&links, &link("1999999999"))), (200, 200, 410));
    let head = passed(&links, request("GET", &later, &[]));
    assert_eq!((head.path(), head.query()), (&b"/f%20a"[..], Some(&b"x=1"[..])));
    let head = passed(&with(json!({ "pass_on": true })), request("GET", &later, &[]));
    assert_eq!(head.query(), later.split_once('?').map(|(_, query)| query.as_bytes()));
}

#[test]
fn the_signature_may_stand_anywhere_in_either_form_by_any_secret() {
    let links = with(json!({ "signature": "s", "expires": "e" }));
    for secret in [SECRET, OLD] {
        let signature = sign(secret, &format!("/a?e={LATER}&b"));
        for written in [
            hex(&signature),
            hex(&signature).to_uppercase(),
            encode_url(&signature),
            encode_url(&signature) + "=",
            encode_url(&signature) + "%3D",
        ] {
            for target in [format!("/a?s={written}&e={LATER}&b"), format!("/a?e={LATER}&%73={written}&b")] {
                assert_eq!(status(&links, &target), 200, "{target}");
            }
        }
    }
}

#[test]
fn what_differs_from_what_was_signed_is_refused() {
    let links = with(json!({}));
    let message = format!("/a?x=1&expires={LATER}");
    let good = hex(&sign(SECRET, &message));
    assert_eq!(status(&links, &format!("{message}&signature={good}")), 200);
    for target in [
        "/a".to_owned(),
        message.clone(),
        format!("{message}&signature="),
        format!("{message}&signature={}", &good[..63]),
        format!("{message}&signature={}", good.replace(&good[..1], "z")),
        format!("{message}&signature={}", hex(&sign("another secret of some", &message))),
        format!("{message}&signature={good}&signature={good}"),
        format!("{message}&signature={good}&y"),
        format!("{message}&signature={good}&expires={LATER}"),
        format!("/b?x=1&expires={LATER}&signature={good}"),
        format!("/a?x=2&expires={LATER}&signature={good}"),
        format!("/a?expires={LATER}&x=1&signature={good}"),
        format!("/a?x=1&expires=9000000001&signature={good}"),
        format!("/a?x=1&signature={}", hex(&sign(SECRET, "/a?x=1"))),
        format!("/a?expires=&signature={}", hex(&sign(SECRET, "/a?expires="))),
        format!("/a?expires=-1&signature={}", hex(&sign(SECRET, "/a?expires=-1"))),
        format!("/a?expires=9999999999999&signature={}", hex(&sign(SECRET, "/a?expires=9999999999999"))),
        format!("{message}&signature={}", "a".repeat(5_000)),
    ] {
        assert_eq!(status(&links, &target), 403, "{}", &target[..target.len().min(120)]);
    }
    let eternal = with(json!({ "allow_without_expiry": true }));
    assert_eq!(status(&eternal, &format!("/a?x=1&signature={}", hex(&sign(SECRET, "/a?x=1")))), 200);
    assert_eq!(status(&eternal, &format!("/a?signature={}", hex(&sign(SECRET, "/a")))), 200);
}

#[test]
fn links_of_nginx_are_accepted() {
    let settings = json!({
        "algorithm": "md5", "signature": "md5", "message": "{query_param:expires}{path}{client_ip} {secret}",
    });
    let links = with(settings);
    let digest = Md5::digest(format!("{LATER}/s/link192.0.2.7 {SECRET}"));
    assert_eq!(status(&links, &format!("/s/link?md5={}&expires={LATER}", encode_url(&digest))), 200);
    assert_eq!(status(&links, &format!("/s/link?md5={}&expires=2000000002", encode_url(&digest))), 403);
    assert_eq!(status(&links, &format!("/s/links?md5={}&expires={LATER}", encode_url(&digest))), 403);
}

#[test]
fn another_message_may_be_signed() {
    let links = with(json!({ "message": "{method} {path} {query_param:expires}" }));
    let good = hex(&sign(SECRET, &format!("GET /a {LATER}")));
    assert_eq!(status(&links, &format!("/a?any=thing&expires={LATER}&signature={good}")), 200);
    let mut post = request("POST", &format!("/a?expires={LATER}&signature={good}"), &[]);
    assert!(matches!(flow_of(&links, &mut post, &World::new().facts()), Flow::Respond(local) if local.status == 403));
}

#[test]
fn mistakes_are_reported_without_the_secret() {
    let file = |text: &str| json!({ "name": "s.txt", "text": text });
    let good = file(SECRET);
    for (settings, told) in [
        (json!({ "secret_file": file("# none") }), "secret_file: `s.txt` contains no secret"),
        (
            json!({ "secret_file": file("\nshort") }),
            "secret_file: `s.txt`, line 2: a secret has at least 16 bytes; create one with `openssl rand -hex 32`",
        ),
        (
            json!({ "secret_file": file(&format!("{SECRET}\n").repeat(9)) }),
            "secret_file: `s.txt` contains 9 secrets, at most 8 are allowed",
        ),
        (
            json!({ "secret_file": good, "message": "{path}" }),
            "message: the message lacks the time when the link expires, so that anyone could change it (add `{query_param:expires}`)",
        ),
        (
            json!({ "secret_file": good, "message": "{query_param:expires} {secret}" }),
            "message: `{secret}` is for `algorithm: md5`: the secret is the key of the HMAC (leave `{secret}` out)",
        ),
        (
            json!({ "secret_file": good, "algorithm": "md5", "message": "{query_param:expires}" }),
            "message: with `md5` the message must hold the secret (write the text of `secure_link_md5`, such as `{query_param:expires}{path} {secret}`)",
        ),
        (
            json!({ "secret_file": good, "algorithm": "md5", "message": "{uri}{secret}{secret}" }),
            "message: `{secret}` is there twice",
        ),
        (
            json!({ "secret_file": good, "message": "{{query_param:expires}}{path}" }),
            "message: the message lacks the time when the link expires, so that anyone could change it (add `{query_param:expires}`)",
        ),
        (json!({ "secret_file": good, "message": "{uri}" }), HOLDS_SIGNATURE),
        (
            json!({ "secret_file": good, "algorithm": "md5", "message": "{query_param:expires}{secret}{query}" }),
            HOLDS_SIGNATURE,
        ),
        (json!({ "secret_file": good, "message": "{query_param:expires}{query_param:signature}" }), HOLDS_SIGNATURE),
        (json!({ "secret_file": good, "signature": "expires" }), "expires: it is the parameter of the signature, too"),
        (json!({ "secret_file": good, "signature": "" }), "signature: the name of a parameter is empty"),
    ] {
        assert_eq!(issue("signed_url", settings), told);
    }
}

const HOLDS_SIGNATURE: &str = "message: the message holds the signature itself, so that no link could be valid (write `{path}` and `{query_param:NAME}` of each parameter that is signed)";

proptest! {
    #[test]
    fn no_query_makes_it_panic_or_pass(query in "[a-z0-9=&%+]{0,60}") {
        let target = format!("/a?expires={LATER}&signature={query}");
        prop_assert_eq!(status(&with(json!({})), &target), 403);
    }
}
