use std::time::Duration;

use model::{Fault, LocalResponse, RequestHead, ResponseHead};
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request, response};
use super::super::{Chain, Flow, Found, Need, Reply};
use crate::jose::testing::Signer;
use crate::route::query::{decoded, parameter};

mod userinfo;

/// What the clock of tests says.
const NOW: u64 = 2_000_000_000;
const KEYS: &str = "0123456789abcdef0123456789abcdef";
const SECRET: &str = "a-secret-of-the-client";
const PAGE: (&str, &str) = ("accept", "text/html,*/*");

/// A provider, and a filter that knows it.
struct Site {
    signer: Signer,
    chain: Chain,
    now: u64,
}

/// What a browser has, and has asked for.
struct Begun {
    cookies: String,
    state: String,
    nonce: String,
}

fn settings(signer: &Signer) -> Value {
    json!({
        "issuer": "https://login.example",
        "cluster": "login",
        "client": { "id": "shop", "secret_file": { "name": "secret", "text": SECRET } },
        "session": { "keys_file": { "name": "keys", "text": KEYS }, "idle_timeout": "30m" },
        "endpoints": {
            "authorization_url": "https://login.example/auth?x=1", "token_url": "https://login.example:8443/token",
            "end_session_url": "https://login.example/end",
            "keys_file": { "name": "jwks.json", "text": signer.jwks() },
        },
        "claim_headers": { "x-user": "email" },
    })
}

fn site_with(changes: Value) -> Site {
    let signer = Signer::es256("k");
    let mut all = settings(&signer);
    all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    Site { chain: chain(json!([{ "oidc": all }])), signer, now: NOW }
}

fn site() -> Site {
    site_with(json!({}))
}

fn fields<'a>(answer: &'a LocalResponse, name: &str) -> Vec<&'a str> {
    answer.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
}

/// What a browser keeps of an answer, as it sends it.
fn kept(cookies: &[&str]) -> String {
    let pairs = cookies.iter().filter(|cookie| !cookie.ends_with("Max-Age=0"));
    pairs.map(|cookie| cookie.split(';').next().unwrap()).collect::<Vec<_>>().join("; ")
}

fn value(location: &str, name: &str) -> String {
    let raw = parameter(location.split_once('?').unwrap().1.as_bytes(), name.as_bytes()).unwrap();
    String::from_utf8(decoded(raw).collect()).unwrap()
}

fn answer(flow: Flow) -> LocalResponse {
    match flow {
        Flow::Respond(answer) => *answer,
        other => panic!("{other:?} instead of an answer"),
    }
}

fn reply(status: u16, body: &str) -> Result<Box<Reply>, Fault> {
    Ok(Box::new(Reply { head: response(status, &[]), body: body.as_bytes().to_vec() }))
}

impl Site {
    fn beside(&self) -> Beside {
        let now = self.now;
        let mut beside = Beside::new();
        beside.wall_clock = Box::new(move || Duration::from_secs(now));
        beside
    }

    fn ask(&self, head: &mut RequestHead) -> (Flow, Beside) {
        let (world, mut beside) = (World::new(), self.beside());
        let flow = self.chain.on_request(head, &mut beside.turn(&world.tls_facts()));
        (flow, beside)
    }

    fn begin(&self, target: &str) -> Begun {
        let mut head = request("GET", target, &[("host", "shop.example"), PAGE]);
        receive(&mut head, target);
        let answer = answer(self.ask(&mut head).0);
        assert_eq!(answer.status, 302);
        let location = fields(&answer, "location")[0].to_owned();
        assert!(
            location.starts_with("https://login.example/auth?x=1&response_type=code&client_id=shop&"),
            "{location}"
        );
        assert_eq!(value(&location, "redirect_uri"), "https://shop.example/oauth2/callback");
        assert_eq!(value(&location, "code_challenge_method"), "S256");
        let cookies = kept(&fields(&answer, "set-cookie"));
        Begun { cookies, state: value(&location, "state"), nonce: value(&location, "nonce") }
    }

    fn back(&self, query: &str, cookies: &str) -> RequestHead {
        let target = format!("/oauth2/callback?{query}");
        let mut head = request("GET", &target, &[("host", "shop.example"), ("cookie", cookies)]);
        receive(&mut head, &target);
        head
    }

    fn tokens(&self, nonce: &str, changes: Value) -> String {
        let mut claims = json!({
            "iss": "https://login.example", "aud": "shop", "sub": "1", "email": "ann@a.example", "nonce": nonce,
            "exp": self.now + 300,
        });
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({
            "id_token": self.signer.sign(&claims), "access_token": "access-1", "token_type": "bearer",
            "expires_in": 600, "refresh_token": "refresh-1",
        })
        .to_string()
    }

    /// Comes back with a code for which the provider answers this.
    fn redeem(&self, begun: &Begun, found: Result<Box<Reply>, Fault>) -> LocalResponse {
        let mut head = self.back(&format!("code=secret-code&state={}", begun.state), &begun.cookies);
        assert!(matches!(self.ask(&mut head).0, Flow::Need(Need::Call(_))));
        assert_eq!(head.received_query(), None, "the code is in no record");
        answer(self.resume(&mut head, found).0)
    }

    fn resume(&self, head: &mut RequestHead, found: Result<Box<Reply>, Fault>) -> (Flow, Beside) {
        let (world, mut beside) = (World::new(), self.beside());
        let flow = self.chain.resume(&mut 0, Found::Call(found), head, &mut beside.turn(&world.tls_facts()));
        (flow, beside)
    }

    /// Returns the cookies of a user who has logged in.
    fn logged_in(&self) -> String {
        let begun = self.begin("/a?b=c");
        let answer = self.redeem(&begun, reply(200, &self.tokens(&begun.nonce, json!({}))));
        assert_eq!((answer.status, fields(&answer, "location")), (302, vec!["/a?b=c"]));
        kept(&fields(&answer, "set-cookie"))
    }

    fn with(&self, cookies: &str, more: &[(&str, &str)]) -> RequestHead {
        let fields: Vec<_> =
            [("host", "shop.example"), ("cookie", cookies)].into_iter().chain(more.iter().copied()).collect();
        request("GET", "/a", &fields)
    }

    fn set_cookies(&self, beside: &mut Beside) -> String {
        let world = World::new();
        let (request, mut head) = (request("GET", "/", &[]), ResponseHead::default());
        self.chain.on_response(&mut head, &world.view(&request), &mut beside.turn(&world.tls_facts()));
        listed(&head.fields)
    }
}

/// Makes this the target that the client sent.
fn receive(head: &mut RequestHead, target: &str) {
    let start = head.fields.load(target.as_bytes());
    head.receive_target(model::fields::Span::new(start, start + target.len()));
}

#[test]
fn a_user_logs_in_and_the_endpoint_sees_claims_and_no_cookie() {
    let site = site();
    let cookies = site.logged_in();
    assert!(cookies.starts_with("__Host-equipoise_session=1"), "{cookies}");
    let mut head =
        site.with(&format!("a=1; {cookies}; b=2; __Host-equipoise_session_login_abc=x"), &[("X_User", "eve")]);
    let (flow, mut beside) = site.ask(&mut head);
    assert_eq!(flow, Flow::Continue);
    assert_eq!(listed(&head.fields), "host: shop.example|cookie: a=1; b=2|x-user: ann@a.example");
    assert_eq!(beside.notes.user(), Some(&b"1"[..]));
    assert_eq!(site.set_cookies(&mut beside), "");
}

#[test]
fn the_code_goes_to_the_provider_with_verifier_and_secret() {
    let site = site();
    let begun = site.begin("/");
    let mut head =
        site.back(&format!("code=c%2Fd&state={}&iss=https%3A%2F%2Flogin.example", begun.state), &begun.cookies);
    let Flow::Need(Need::Call(call)) = site.ask(&mut head).0 else { panic!("no call") };
    let body = String::from_utf8(call.body.to_vec()).unwrap();
    assert!(
        body.starts_with("grant_type=authorization_code&code=c%2Fd&redirect_uri=https%3A%2F%2Fshop.example"),
        "{body}"
    );
    assert!(body.contains("&code_verifier=") && !body.contains(SECRET));
    assert_eq!((call.head.path(), call.head.authority()), (&b"/token"[..], &b"login.example:8443"[..]));
    assert!(listed(&call.head.fields).contains("authorization: Basic "));
}

#[test]
fn what_is_no_page_is_answered_401() {
    let site = site();
    for (method, fields, status) in [
        ("GET", vec![PAGE], 302),
        ("HEAD", vec![PAGE], 302),
        ("POST", vec![PAGE], 401),
        ("GET", vec![("accept", "application/json")], 401),
        ("GET", vec![], 401),
        ("GET", vec![PAGE, ("x-requested-with", "XMLHttpRequest")], 401),
        ("GET", vec![PAGE, ("sec-fetch-mode", "cors")], 401),
        ("GET", vec![("sec-fetch-mode", "navigate")], 302),
    ] {
        let fields: Vec<_> = [("host", "a")].into_iter().chain(fields).collect();
        let answer = answer(site.ask(&mut request(method, "/", &fields)).0);
        assert_eq!(answer.status, status, "{method} {fields:?}");
        assert_eq!(self::fields(&answer, "cache-control"), ["no-store"]);
    }
}

#[test]
fn only_the_browser_that_began_a_login_can_end_it() {
    let site = site();
    let (one, two) = (site.begin("/"), site.begin("/"));
    let refused = |query: &str, cookies: &str| {
        let answer = answer(site.ask(&mut site.back(query, cookies)).0);
        assert!(!String::from_utf8_lossy(&answer.body).contains("secret-code"));
        answer.status
    };
    let query = |state: &str| format!("code=secret-code&state={state}");
    assert_eq!(refused(&query(&one.state), ""), 400, "no cookie");
    assert_eq!(refused(&query(&one.state), &two.cookies), 400, "the cookie of another login");
    assert_eq!(refused("code=secret-code", &one.cookies), 400, "no state");
    assert_eq!(refused(&format!("{}&state=x", query(&one.state)), &one.cookies), 400, "two states");
    let forged = format!("{}AAAA", &one.state[..one.state.len() - 4]);
    assert_eq!(refused(&query(&forged), &one.cookies), 400, "a forged state");
    assert_eq!(refused(&query(&one.state), &format!("{0}; {0}", one.cookies)), 400, "two cookies");
    assert_eq!(refused(&format!("{}&iss=https%3A%2F%2Fevil", query(&one.state)), &one.cookies), 400, "another issuer");
    assert_eq!(refused(&format!("state={}&error=access_denied&code=secret-code", one.state), &one.cookies), 403);
    assert_eq!(refused(&format!("state={}", one.state), &one.cookies), 403, "no code");
    assert_eq!(refused(&format!("state={}&code={}", one.state, "a".repeat(5_000)), &one.cookies), 400);
    let late = Site { now: NOW + 601, ..site };
    assert_eq!(answer(late.ask(&mut late.back(&query(&one.state), &one.cookies)).0).status, 400, "too late");
}

#[test]
fn id_tokens_that_are_not_for_this_login_are_refused() {
    let site = site();
    for (what, nonce, changes) in [
        ("another nonce", Some("other"), json!({})),
        ("no nonce", None, json!({ "nonce": null })),
        ("another issuer", None, json!({ "iss": "https://evil" })),
        ("another audience", None, json!({ "aud": "cellar" })),
        ("another party", None, json!({ "aud": ["shop", "cellar"], "azp": "cellar" })),
        ("expired", None, json!({ "exp": NOW - 61 })),
        ("no expiry", None, json!({ "exp": null })),
        ("no subject", None, json!({ "sub": null })),
    ] {
        let begun = site.begin("/");
        let answer = site.redeem(&begun, reply(200, &site.tokens(nonce.unwrap_or(&begun.nonce), changes)));
        assert_eq!(answer.status, 403, "{what}");
        assert!(fields(&answer, "set-cookie").iter().all(|cookie| cookie.ends_with("Max-Age=0")), "{what}");
    }
    let begun = site.begin("/");
    let stranger = site_with(json!({}));
    assert_eq!(site.redeem(&begun, reply(200, &stranger.tokens(&begun.nonce, json!({})))).status, 403, "another key");
}

#[test]
fn a_provider_that_fails_lets_no_one_in() {
    let site = site();
    for (found, status) in [
        (Err(Fault::BadResponseBody), 503),
        (reply(500, "{}"), 503),
        (reply(302, ""), 503),
        (reply(200, "garbage"), 503),
        (reply(200, "[]"), 503),
        (reply(200, "{}"), 503),
        (reply(200, "{\"id_token\":\"a\",\"id_token\":\"b\"}"), 503),
        (reply(200, "{\"id_token\":\"a.b.c\"}"), 403),
        (reply(400, "{\"error\":\"invalid_grant\"}"), 403),
    ] {
        let begun = site.begin("/");
        let shown = format!("{found:?}");
        assert_eq!(site.redeem(&begun, found).status, status, "{shown}");
    }
}

#[test]
fn sessions_that_were_changed_or_have_ended_are_none() {
    let mut site = site();
    let cookies = site.logged_in();
    let passes = |site: &Site, cookies: &str| site.ask(&mut site.with(cookies, &[])).0 == Flow::Continue;
    for at in [30, 60, cookies.len() - 1] {
        let mut forged = cookies.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        assert!(!passes(&site, std::str::from_utf8(&forged).unwrap()), "{at}");
    }
    for forged in [format!("{cookies}; {cookies}"), cookies.replace("=1", "=2"), cookies.replace("=1", "=9")] {
        assert!(!passes(&site, &forged));
    }
    let other = site_with(json!({ "client": { "id": "cellar" } }));
    assert!(!passes(&other, &cookies), "the session of another client");
    assert!(passes(&site, &cookies));
    site.now = NOW + 1_799;
    let (flow, _) = site.resume(&mut site.with(&cookies, &[]), reply(500, ""));
    assert_eq!(answer(flow).status, 503, "the access token has expired, and the provider is not available");
    site.now = NOW + 1_800;
    assert!(!passes(&site, &cookies), "idle for too long");
}

#[test]
fn a_session_is_refreshed_once_while_others_go_on_with_the_old_one() {
    let mut site = site();
    let cookies = site.logged_in();
    site.now = NOW + 560;
    let mut first = site.with(&cookies, &[]);
    let Flow::Need(Need::Call(call)) = site.ask(&mut first).0 else { panic!("no refresh") };
    assert_eq!(&call.body[..], b"grant_type=refresh_token&refresh_token=refresh-1");
    assert_eq!(site.ask(&mut site.with(&cookies, &[])).0, Flow::Continue, "another one meanwhile");
    let tokens = site.tokens("", json!({ "email": "new@a.example" }));
    let (flow, mut beside) = site.resume(&mut first, reply(200, &tokens));
    assert_eq!(flow, Flow::Continue);
    assert!(listed(&first.fields).contains("x-user: new@a.example"));
    assert!(site.set_cookies(&mut beside).starts_with("set-cookie: __Host-equipoise_session=1"));
    let mut late = site.with(&cookies, &[]);
    let (flow, mut beside) = site.ask(&mut late);
    assert_eq!(flow, Flow::Continue, "one with the old cookie");
    assert!(listed(&late.fields).contains("new@a.example") && !site.set_cookies(&mut beside).is_empty());
}

#[test]
fn while_the_provider_is_away_a_session_lasts_until_its_token_expires_and_no_longer() {
    let mut site = site();
    let cookies = site.logged_in();
    site.now = NOW + 560;
    let mut head = site.with(&cookies, &[]);
    assert!(matches!(site.ask(&mut head).0, Flow::Need(Need::Call(_))));
    assert_eq!(site.resume(&mut head, Err(Fault::BadResponseBody)).0, Flow::Continue);
    assert_eq!(site.ask(&mut site.with(&cookies, &[])).0, Flow::Continue, "the provider is not asked again at once");
    site.now = NOW + 600;
    assert_eq!(answer(site.ask(&mut site.with(&cookies, &[])).0).status, 503);
    let mut site = site_with(json!({}));
    let cookies = site.logged_in();
    site.now = NOW + 600;
    assert!(matches!(site.ask(&mut site.with(&cookies, &[])).0, Flow::Need(Need::Call(_))));
    let waits = site.ask(&mut site.with(&cookies, &[])).0;
    assert!(matches!(waits, Flow::Need(Need::Until(_))), "an expired one waits for the refresh: {waits:?}");
}

#[test]
fn a_refused_refresh_ends_the_session_and_another_subject_does_too() {
    for answered in [Err(400), Ok(json!({ "sub": "2" }))] {
        let mut site = site();
        let cookies = site.logged_in();
        site.now = NOW + 560;
        let mut head = site.with(&cookies, &[]);
        assert!(matches!(site.ask(&mut head).0, Flow::Need(Need::Call(_))));
        let found = match &answered {
            Err(status) => reply(*status, "{}"),
            Ok(changes) => reply(200, &site.tokens("", changes.clone())),
        };
        assert_eq!(answer(site.resume(&mut head, found).0).status, 401);
        assert_eq!(answer(site.ask(&mut site.with(&cookies, &[])).0).status, 401);
    }
}

#[test]
fn the_browser_comes_back_to_a_path_of_this_host_only() {
    let site = site();
    for (target, back) in [
        ("/a?b=c", "/a?b=c"),
        ("//evil", "/"),
        ("/\\evil", "/"),
        ("///evil", "/"),
        ("/%2fevil", "/%2fevil"),
        ("/%5cevil", "/%5cevil"),
        ("/a\\b", "/"),
    ] {
        let begun = site.begin(target);
        let answer = site.redeem(&begun, reply(200, &site.tokens(&begun.nonce, json!({}))));
        assert_eq!(fields(&answer, "location"), [back], "{target}");
    }
}

#[test]
fn claims_cannot_forge_lines_and_required_ones_are_needed() {
    let site = site_with(json!({ "claims": { "email": "a\r\nx-admin: 1" }, "pass_access_token": true }));
    let begun = site.begin("/");
    let hostile = site.tokens(&begun.nonce, json!({ "email": "a\r\nx-admin: 1" }));
    let answered = site.redeem(&begun, reply(200, &hostile));
    let mut head = site.with(&kept(&fields(&answered, "set-cookie")), &[("authorization", "Bearer theirs")]);
    assert_eq!(site.ask(&mut head).0, Flow::Continue);
    assert_eq!(listed(&head.fields), "host: shop.example|authorization: Bearer access-1|x-user: a  x-admin: 1");
    let mut traced = request("TRACE", "/", &[]);
    assert_eq!(answer(site.ask(&mut traced).0).status, 405, "the endpoint would show the token to the client");
    let begun = site.begin("/");
    let answered = site.redeem(&begun, reply(200, &site.tokens(&begun.nonce, json!({}))));
    let mut head = site.with(&kept(&fields(&answered, "set-cookie")), &[]);
    assert_eq!(answer(site.ask(&mut head).0).status, 403);
}

#[test]
fn large_sessions_take_several_cookies_and_too_large_ones_are_refused() {
    let site = site();
    let log_in = |bytes: usize| {
        let begun = site.begin("/");
        site.redeem(&begun, reply(200, &site.tokens(&begun.nonce, json!({ "more": "x".repeat(bytes) }))))
    };
    let answered = log_in(4_000);
    let cookies = fields(&answered, "set-cookie");
    assert!(cookies.len() > 2 && cookies.iter().all(|cookie| cookie.len() < 4_096));
    let kept = kept(&cookies);
    assert_eq!(site.ask(&mut site.with(&kept, &[])).0, Flow::Continue);
    let (_, without_last) = kept.split_once("; ").unwrap();
    assert_ne!(site.ask(&mut site.with(without_last, &[])).0, Flow::Continue);
    assert_eq!(log_in(11_000).status, 500);
}

#[test]
fn the_logout_ends_the_session_here_and_at_the_provider() {
    let site = site_with(json!({ "paths": { "after_logout": "/bye" } }));
    let cookies = site.logged_in();
    let mut head = request("GET", "/oauth2/logout", &[("host", "shop.example"), ("cookie", &cookies)]);
    head.keep_received();
    let answer = answer(site.ask(&mut head).0);
    let location = fields(&answer, "location")[0];
    assert!(location.starts_with("https://login.example/end?client_id=shop&"), "{location}");
    assert_eq!(value(location, "post_logout_redirect_uri"), "https://shop.example/bye");
    assert_eq!(value(location, "id_token_hint").split('.').count(), 3);
    assert_eq!(
        fields(&answer, "set-cookie"),
        ["__Host-equipoise_session=; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=0"]
    );
}

#[test]
fn another_site_cannot_log_a_user_out() {
    let site = site();
    let cookies = site.logged_in();
    for (from, status) in [("cross-site", 403), ("same-site", 302), ("same-origin", 302), ("none", 302)] {
        let fields = [("host", "shop.example"), ("cookie", &*cookies), ("sec-fetch-site", from)];
        let answer = answer(site.ask(&mut request("GET", "/oauth2/logout", &fields)).0);
        assert_eq!((answer.status, fields_are_set(&answer)), (status, status == 302), "{from}");
    }
}

fn fields_are_set(answer: &LocalResponse) -> bool {
    !fields(answer, "set-cookie").is_empty()
}

#[test]
fn a_session_that_was_logged_out_is_not_brought_back_by_requests_that_were_under_way() {
    let mut site = site();
    let cookies = site.logged_in();
    let log_out = |site: &Site| {
        let fields = [("host", "shop.example"), ("cookie", &*cookies)];
        assert_eq!(answer(site.ask(&mut request("GET", "/oauth2/logout", &fields)).0).status, 302);
    };
    site.now = NOW + 560;
    let mut refreshing = site.with(&cookies, &[]);
    assert!(matches!(site.ask(&mut refreshing).0, Flow::Need(Need::Call(_))));
    log_out(&site);
    let (flow, beside) = site.resume(&mut refreshing, reply(200, &site.tokens("", json!({}))));
    assert_eq!((answer(flow).status, beside.notes.cookies.len()), (401, 0), "a refresh");
    assert_eq!(answer(site.ask(&mut site.with(&cookies, &[])).0).status, 401, "one that begins later");
    site = site_with(json!({}));
    let cookies = site.logged_in();
    let fields = [("host", "shop.example"), ("cookie", &*cookies)];
    site.now = NOW + 500;
    assert_eq!(site.ask(&mut site.with(&cookies, &[])).1.notes.cookies.len(), 1, "a session in use goes on");
    assert_eq!(answer(site.ask(&mut request("GET", "/oauth2/logout", &fields)).0).status, 302);
    assert_eq!(site.ask(&mut site.with(&cookies, &[])).1.notes.cookies.len(), 0, "one that was logged out does not");
}

#[test]
fn a_logout_after_a_refresh_ends_the_cookies_from_before_it_too() {
    let mut site = site();
    let old = site.logged_in();
    site.now = NOW + 560;
    let mut refreshing = site.with(&old, &[]);
    assert!(matches!(site.ask(&mut refreshing).0, Flow::Need(Need::Call(_))));
    let (flow, beside) = site.resume(&mut refreshing, reply(200, &site.tokens("", json!({}))));
    assert_eq!(flow, Flow::Continue);
    let new: Vec<&str> = beside.notes.cookies.iter().filter_map(|cookie| cookie.split(';').next()).collect();
    let new = new.join("; ");
    assert_eq!(site.ask(&mut site.with(&old, &[])).0, Flow::Continue, "the refresh is shared");
    let fields = [("host", "shop.example"), ("cookie", &*new)];
    assert_eq!(answer(site.ask(&mut request("GET", "/oauth2/logout", &fields)).0).status, 302);
    let (flow, beside) = site.ask(&mut site.with(&old, &[]));
    assert_eq!((answer(flow).status, beside.notes.cookies.len()), (401, 0));
}

#[test]
fn a_refresh_with_a_key_that_is_not_known_yet_keeps_what_is_known_of_the_user() {
    for (signer, status) in [(Signer::es256("new"), 200), (Signer::es256("k"), 401)] {
        let mut site = site();
        let cookies = site.logged_in();
        site.now = NOW + 560;
        let mut head = site.with(&cookies, &[]);
        assert!(matches!(site.ask(&mut head).0, Flow::Need(Need::Call(_))));
        let tokens =
            Site { signer, chain: chain(json!([])), now: site.now }.tokens("", json!({ "email": "eve@a.example" }));
        match site.resume(&mut head, reply(200, &tokens)).0 {
            Flow::Continue => assert_eq!((status, listed(&head.fields).contains("eve@")), (200, false)),
            flow => assert_eq!(answer(flow).status, status),
        }
    }
}

#[test]
fn secrets_can_be_rotated_without_a_new_login() {
    let mut site = site();
    let cookies = site.logged_in();
    let mut all = settings(&site.signer);
    all["session"]["keys_file"]["text"] = json!(format!("another secret of thirty-two bytes\n{KEYS}\n"));
    site.chain = chain(json!([{ "oidc": all }]));
    assert_eq!(site.ask(&mut site.with(&cookies, &[])).0, Flow::Continue);
}

#[test]
fn secrets_in_the_configuration_are_those_in_files() {
    let mut site = site();
    let cookies = site.logged_in();
    let mut all = settings(&site.signer);
    all["session"] = json!({ "keys": format!("{KEYS}\n"), "idle_timeout": "30m" });
    all["client"] = json!({ "id": "shop", "secret": SECRET });
    site.chain = chain(json!([{ "oidc": all }]));
    assert_eq!(site.ask(&mut site.with(&cookies, &[])).0, Flow::Continue);
    site.now = NOW + 560;
    let Flow::Need(Need::Call(call)) = site.ask(&mut site.with(&cookies, &[])).0 else { panic!("no refresh") };
    assert!(listed(&call.head.fields).contains("authorization: Basic "), "{:?}", call.head);
}

#[test]
fn a_rehearsal_shows_no_login_that_could_be_used() {
    let site = site();
    let (world, mut beside) = (World::new(), site.beside());
    beside.is_rehearsal = true;
    let mut head = request("GET", "/", &[("host", "a"), PAGE]);
    let answer = answer(site.chain.on_request(&mut head, &mut beside.turn(&world.tls_facts())));
    assert_eq!(fields(&answer, "location"), ["https://login.example/auth?x=1"]);
    assert!(fields(&answer, "set-cookie").is_empty());
}

#[test]
fn settings_that_cannot_work_are_issues_without_secrets() {
    let signer = Signer::es256("k");
    for (key, wrong, told) in [
        ("issuer", json!("login"), "issuer"),
        ("issuer", json!("https://a/?x"), "issuer"),
        ("client", json!({ "id": "" }), "client/id"),
        ("client", json!({ "id": "a", "secret_file": { "name": "s", "text": "se\ncret" } }), "client/secret_file"),
        ("client", json!({ "id": "a", "secret": "se\ncret" }), "client/secret"),
        ("client", json!({ "id": "a", "secret": " " }), "client/secret"),
        ("client", json!({ "id": "a", "secret": "a", "secret_file": { "name": "s", "text": "b" } }), "client/secret"),
        ("session", json!({}), "session: there are no keys"),
        ("session", json!({ "keys": "short secret" }), "session/keys"),
        ("session", json!({ "keys": KEYS, "keys_file": { "name": "k", "text": KEYS } }), "session/keys"),
        ("session", json!({ "keys_file": { "name": "k", "text": "short secret" } }), "session/keys_file"),
        ("session", json!({ "keys_file": { "name": "k", "text": KEYS }, "cookie": "a b" }), "session/cookie"),
        ("session", json!({ "keys_file": { "name": "k", "text": KEYS }, "lifetime": "1ms" }), "session"),
        ("paths", json!({ "callback": "//evil" }), "paths/callback"),
        ("paths", json!({ "logout": "/oauth2/callback" }), "paths/logout"),
        ("paths", json!({ "after_logout": "//evil" }), "paths/after_logout"),
        ("paths", json!({ "public_url": "https://a/b" }), "paths/public_url"),
        ("scopes", json!(["email"]), "openid"),
        ("scopes", json!(["openid", "a b"]), "scopes/1"),
        ("parameters", json!({ "state": "x" }), "parameters/state"),
        ("claim_headers", json!({ "host": "sub" }), "claim_headers/host"),
    ] {
        let mut all = settings(&signer);
        all[key] = wrong;
        let issue = issue("oidc", all);
        assert!(issue.contains(told), "{key}: {issue}");
        assert!(!issue.contains("se\ncret") && !issue.contains("short secret"), "{issue}");
    }
}
