use super::*;

const SUBJECT: &str = r#"{"sub":"1"}"#;

fn asking(settings: Value) -> Site {
    let signer = Signer::es256("k");
    let mut all = self::settings(&signer);
    all["userinfo"] = settings;
    all["endpoints"]["userinfo_url"] = json!("https://info.example:9443/me?v=2");
    all["claim_headers"] = json!({ "x-user": "email", "x-team": "team" });
    Site { chain: chain(json!([{ "oidc": all }])), signer, now: NOW }
}

/// Logs in up to the answer of the userinfo endpoint. Returns the call to it, and the answer to the browser.
fn log_in(site: &Site, found: Result<Box<Reply>, Fault>) -> (Box<crate::filter::Call>, LocalResponse) {
    let begun = site.begin("/");
    let mut head = site.back(&format!("code=c&state={}", begun.state), &begun.cookies);
    let (world, mut beside) = (World::new(), site.beside());
    let facts = world.tls_facts();
    let mut turn = beside.turn(&facts);
    assert!(matches!(site.chain.on_request(&mut head, &mut turn), Flow::Need(Need::Call(_))));
    let tokens = reply(200, &site.tokens(&begun.nonce, json!({})));
    let flow = site.chain.resume(&mut 0, Found::Call(tokens), &mut head, &mut turn);
    let Flow::Need(Need::Call(call)) = flow else { panic!("{flow:?} instead of a call") };
    (call, answer(site.chain.resume(&mut 0, Found::Call(found), &mut head, &mut turn)))
}

fn sees(site: &Site, answered: &LocalResponse) -> String {
    let mut head = site.with(&kept(&fields(answered, "set-cookie")), &[]);
    assert_eq!(site.ask(&mut head).0, Flow::Continue);
    listed(&head.fields)
}

fn typed(kind: &str, body: &str) -> Result<Box<Reply>, Fault> {
    Ok(Box::new(Reply { head: response(200, &[("content-type", kind)]), body: body.as_bytes().to_vec() }))
}

#[test]
fn claims_of_the_endpoint_are_added_and_those_of_the_token_stay() {
    let site = asking(json!({}));
    let said = json!({ "sub": "1", "team": "red", "email": "eve@evil", "exp": 1, "acr": "high" });
    let (call, answered) = log_in(&site, reply(200, &said.to_string()));
    assert_eq!((call.head.path(), call.head.query()), (&b"/me"[..], Some(&b"v=2"[..])));
    assert_eq!(call.head.authority(), b"info.example:9443");
    assert!(listed(&call.head.fields).contains("authorization: Bearer access-1"));
    assert!(call.body.is_empty() && call.response_bytes_max <= 64 << 10);
    assert_eq!(answered.status, 302);
    assert_eq!(sees(&site, &answered), "host: shop.example|x-user: ann@a.example|x-team: red");
}

#[test]
fn only_the_claims_that_are_wanted_are_kept() {
    let site = asking(json!({ "claims": ["team"] }));
    let large = json!({ "sub": "1", "team": "red", "picture": "x".repeat(20_000) }).to_string();
    let (_, answered) = log_in(&site, reply(200, &large));
    assert!(sees(&site, &answered).contains("x-team: red"));
}

#[test]
fn claims_that_do_not_fit_are_left_out_unless_a_setting_names_them() {
    let said = |team: usize| {
        let mut said = json!({ "sub": "1", "team": "t".repeat(team), "picture": "x".repeat(20_000), "zone": "z" });
        for number in 0..200 {
            said[format!("list-{number}")] = json!("\"".repeat(50));
        }
        said.to_string()
    };
    let site = asking(json!({}));
    let (_, answered) = log_in(&site, reply(200, &said(2_000)));
    assert!(sees(&site, &answered).ends_with(&"t".repeat(2_000)));
    let bytes = kept(&fields(&answered, "set-cookie")).len();
    assert!((13_500..14_200).contains(&bytes), "the small ones fill the cookies: {bytes}");
    assert_eq!(log_in(&site, reply(200, &said(12_000))).1.status, 500, "it is needed");
    let listed = asking(json!({ "claims": ["picture"] }));
    assert_eq!(log_in(&listed, reply(200, &said(1))).1.status, 500, "it is asked for by name");
}

#[test]
fn claims_go_with_the_settings_that_have_taken_them() {
    let signer = Signer::es256("k");
    let with = |userinfo| {
        let mut all = self::settings(&signer);
        all["userinfo"] = userinfo;
        all["endpoints"]["userinfo_url"] = json!("https://info.example/me");
        all["claim_headers"] = json!({ "x-team": "team", "x-role": "role" });
        chain(json!([{ "oidc": all }]))
    };
    let chains = [json!({}), json!({ "claims": ["team"] }), json!(null)].map(with);
    let [all, narrowed, removed] = chains;
    let mut site = Site { chain: all, signer, now: NOW };
    let (_, answered) = log_in(&site, reply(200, r#"{"sub":"1","team":"red","role":"head"}"#));
    assert!(sees(&site, &answered).ends_with("x-team: red|x-role: head"));
    site.chain = narrowed;
    assert_eq!(sees(&site, &answered), "host: shop.example|x-team: red");
    site.chain = removed;
    assert_eq!(sees(&site, &answered), "host: shop.example");
}

#[test]
fn a_client_that_leaves_while_the_endpoint_is_asked_leaves_its_new_tokens_to_the_next() {
    let mut site = asking(json!({}));
    let (_, answered) = log_in(&site, reply(200, r#"{"sub":"1","team":"red"}"#));
    let cookies = kept(&fields(&answered, "set-cookie"));
    site.now = NOW + 560;
    let (world, mut gone) = (World::new(), site.beside());
    let facts = world.tls_facts();
    let mut head = site.with(&cookies, &[]);
    assert!(matches!(site.chain.on_request(&mut head, &mut gone.turn(&facts)), Flow::Need(Need::Call(_))));
    let tokens = reply(200, &site.tokens("", json!({})));
    let flow = site.chain.resume(&mut 0, Found::Call(tokens), &mut head, &mut gone.turn(&facts));
    assert!(matches!(flow, Flow::Need(Need::Call(_))), "{flow:?}");
    drop(gone);
    let (mut head, mut next) = (site.with(&cookies, &[]), site.beside());
    let flow = site.chain.on_request(&mut head, &mut next.turn(&facts));
    assert_eq!(flow, Flow::Continue, "the old session is still good");
    site.now = NOW + 700;
    let (mut head, mut next) = (site.with(&cookies, &[]), site.beside());
    let mut flow = site.chain.on_request(&mut head, &mut next.turn(&facts));
    while let Flow::Need(Need::Until(until)) = flow {
        next.now = until;
        flow = site.chain.resume(&mut 0, Found::Now, &mut head, &mut next.turn(&facts));
    }
    assert_eq!(flow, Flow::Continue);
    assert!(listed(&head.fields).ends_with("x-team: red"), "the claims stay as they were");
    assert!(site.set_cookies(&mut next).contains("equipoise_session="));
}

#[test]
fn a_refresh_with_claims_that_are_too_large_keeps_those_before() {
    let mut site = asking(json!({}));
    let (_, answered) = log_in(&site, reply(200, r#"{"sub":"1","team":"red"}"#));
    let cookies = kept(&fields(&answered, "set-cookie"));
    site.now = NOW + 560;
    let (world, mut beside) = (World::new(), site.beside());
    let facts = world.tls_facts();
    let mut head = site.with(&cookies, &[]);
    site.chain.on_request(&mut head, &mut beside.turn(&facts));
    let tokens = reply(200, &site.tokens("", json!({})));
    site.chain.resume(&mut 0, Found::Call(tokens), &mut head, &mut beside.turn(&facts));
    let large = json!({ "sub": "1", "team": "t".repeat(20_000) }).to_string();
    let flow = site.chain.resume(&mut 0, Found::Call(reply(200, &large)), &mut head, &mut beside.turn(&facts));
    assert_eq!(flow, Flow::Continue);
    assert!(listed(&head.fields).ends_with("x-team: red"));
    assert!(site.set_cookies(&mut beside).contains("equipoise_session="), "the new tokens are kept");
}

#[test]
fn answers_about_another_user_and_those_that_are_none_let_no_one_in() {
    for (found, status) in [
        (reply(200, r#"{"sub":"2","team":"red"}"#), 403),
        (reply(200, r#"{"team":"red"}"#), 403),
        (reply(200, r#"{"sub":1}"#), 403),
        (reply(200, r#"{"sub":"1","sub":"1"}"#), 503),
        (reply(200, "[]"), 503),
        (reply(200, ""), 503),
        (reply(200, &"[".repeat(100_000)), 503),
        (reply(302, SUBJECT), 503),
        (reply(500, SUBJECT), 503),
        (reply(401, SUBJECT), 403),
        (Err(Fault::BadResponseBody), 503),
    ] {
        let shown = format!("{found:?}");
        let (_, answered) = log_in(&asking(json!({})), found);
        assert_eq!((answered.status, kept(&fields(&answered, "set-cookie"))), (status, String::new()), "{shown}");
    }
}

#[test]
fn signed_answers_are_verified_and_encrypted_ones_refused() {
    let site = asking(json!({}));
    let said = json!({ "iss": "https://login.example", "aud": "shop", "sub": "1", "team": "red" });
    let with = |name: &str, value: Value| {
        let mut said = said.clone();
        said[name] = value;
        site.signer.sign(&said)
    };
    let (_, answered) = log_in(&site, typed("Application/JWT; charset=utf-8", &site.signer.sign(&said)));
    assert!(sees(&site, &answered).contains("x-team: red"));
    for (what, token) in [
        ("another issuer", with("iss", json!("https://evil"))),
        ("another client", with("aud", json!("cellar"))),
        ("no client", with("aud", json!(null))),
        ("another user", with("sub", json!("2"))),
        ("expired", with("exp", json!(NOW - 61))),
        ("another key", Signer::es256("k").sign(&said)),
        ("encrypted", "a.b.c.d.e".to_owned()),
        ("not signed", said.to_string()),
    ] {
        assert_eq!(log_in(&site, typed("application/jwt", &token)).1.status, 403, "{what}");
    }
}

#[test]
fn a_refresh_asks_again_and_keeps_the_claims_while_the_endpoint_is_away() {
    for (found, seen) in [
        (reply(200, r#"{"sub":"1","team":"blue"}"#), Some("blue")),
        (Err(Fault::BadResponseBody), Some("red")),
        (reply(200, r#"{"sub":"2","team":"blue"}"#), None),
        (reply(401, ""), None),
    ] {
        let mut site = asking(json!({}));
        let (_, answered) = log_in(&site, reply(200, r#"{"sub":"1","team":"red"}"#));
        let cookies = kept(&fields(&answered, "set-cookie"));
        site.now = NOW + 560;
        let (world, mut beside) = (World::new(), site.beside());
        let facts = world.tls_facts();
        let mut turn = beside.turn(&facts);
        let mut head = site.with(&cookies, &[]);
        assert!(matches!(site.chain.on_request(&mut head, &mut turn), Flow::Need(Need::Call(_))));
        let tokens = reply(200, &site.tokens("", json!({})));
        let flow = site.chain.resume(&mut 0, Found::Call(tokens), &mut head, &mut turn);
        assert!(matches!(flow, Flow::Need(Need::Call(_))), "{flow:?}");
        let flow = site.chain.resume(&mut 0, Found::Call(found), &mut head, &mut turn);
        match seen {
            Some(team) => {
                assert_eq!(flow, Flow::Continue);
                assert!(listed(&head.fields).contains(&format!("x-team: {team}")), "{}", listed(&head.fields));
            }
            None => assert_eq!(answer(flow).status, 401),
        }
    }
}

#[test]
fn endpoints_by_hand_need_that_of_userinfo() {
    let mut all = settings(&Signer::es256("k"));
    all["userinfo"] = json!({});
    let told = issue("oidc", all);
    assert!(told.contains("endpoints") && told.contains("`userinfo` needs the URL"), "{told}");
}
