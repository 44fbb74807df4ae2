//! Sessions that stay, as they may be written.

use std::time::Duration;

use model::limits;
use model::persistence::{
    Learned, Persistence, PrefixLengths, SameSite, Secret, SessionBy, SessionCookie, SessionRoute, SessionTable,
    WhenAway, WhenFull,
};
use model::snapshot::HashKey;

use crate::support::{load, messages};

fn with(line: &str) -> String {
    format!(
        "version: 1\nclusters:\n  a:\n    endpoints: ['127.0.0.1:1', {{ address: '127.0.0.1:2', labels: {{ route: n1 }} }}]\n    \
         persistence: {line}\n"
    )
}

fn persistence(line: &str) -> Persistence {
    match load(&with(line)) {
        Ok(loaded) => loaded.snapshot.clusters[0].persistence.clone().expect("it is written"),
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

fn told(line: &str) -> Vec<String> {
    messages(&with(line)).into_iter().map(|message| message.trim_start_matches("5: ").to_owned()).collect()
}

fn secret(text: &str) -> Secret {
    Secret(text.as_bytes().into())
}

fn cookie(line: &str) -> SessionCookie {
    match persistence(&format!("{{ cookie: {line} }}")).by {
        SessionBy::Cookie(cookie) => cookie,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cookie_needs_a_secret_only() {
    let plain = cookie("{ secret: 0123456789abcdef }");
    let expected = SessionCookie {
        name: "equipoise".into(),
        secrets: vec![secret("0123456789abcdef")],
        path: "/".into(),
        domain: None,
        same_site: SameSite::Lax,
        secure: None,
        http_only: true,
        max_age: None,
        idle_max: None,
        life_max: None,
        pass_on: false,
        mark_private: true,
    };
    assert_eq!(plain, expected);
    let all = cookie(
        "{ secret: [fedcba9876543210, 0123456789abcdef], name: lb, path: /x, domain: example.com, same_site: none, \
         http_only: false, max_age: 1h, idle_max: 30m, life_max: 8h, pass_on: true, mark_private: false }",
    );
    assert_eq!(all.secrets, [secret("fedcba9876543210"), secret("0123456789abcdef")]);
    assert_eq!((all.name.as_str(), all.path.as_str(), all.domain.as_deref()), ("lb", "/x", Some("example.com")));
    assert_eq!((all.same_site, all.secure), (SameSite::None, Some(true)), "browsers want it");
    assert_eq!((all.http_only, all.pass_on, all.mark_private), (false, true, false));
    let hours = |hours: u64| Some(Duration::from_secs(hours * 3_600));
    assert_eq!((all.max_age, all.idle_max, all.life_max), (hours(1), Some(Duration::from_secs(1_800)), hours(8)));
}

#[test]
fn a_secret_may_stand_in_a_file_and_is_never_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sticky.secret");
    std::fs::write(&file, "from-a-file-0123\n").expect("written");
    let by_file = cookie(&format!("{{ secret: {{ file: '{}' }} }}", file.display()));
    assert_eq!(by_file.secrets, [secret("from-a-file-0123")]);
    assert_eq!(format!("{:?}", by_file.secrets), "[Secret(16 bytes)]");
    let loaded = load(&with("{ cookie: { secret: 0123456789abcdef } }")).unwrap_or_else(|told| panic!("{told}"));
    let shown = loaded.effective().to_string();
    assert!(shown.contains("\"secret\":\"(hidden)\"") && !shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn tables_have_bounds_and_defaults() {
    let default =
        SessionTable { entries_max: limits::SESSIONS_MAX, expires: limits::SESSION_IDLE, is_replicated: false };
    let own = SessionTable { entries_max: 5, expires: Duration::from_secs(60), is_replicated: false };
    let by = |line: &str| persistence(line).by;
    assert_eq!(by("{ learn: { cookie: ID } }"), SessionBy::Learned(Learned::Cookie("ID".into()), default));
    let header = "{ learn: { header: X-Session, entries_max: 5, expires: 1m } }";
    assert_eq!(by(header), SessionBy::Learned(Learned::Header("x-session".into()), own));
    let peers = "peers: { listen: '127.0.0.1:7100', members: ['127.0.0.1:7100'] }\n";
    let replicated = load(&(with("{ learn: { cookie: ID, replicate: true } }") + peers)).unwrap();
    let by_peers = replicated.snapshot.clusters[0].persistence.clone().unwrap().by;
    let common = SessionTable { is_replicated: true, ..default };
    assert_eq!(by_peers, SessionBy::Learned(Learned::Cookie("ID".into()), common));
    assert_eq!(by("{ header: { name: X-User } }"), SessionBy::Header("x-user".into(), default));
    assert_eq!(by("{ source: {} }"), SessionBy::Source(PrefixLengths { v4: 32, v6: 64 }, default));
    let source = "{ source: { ipv4_prefix: 24, ipv6_prefix: 56, entries_max: 5, expires: 1m } }";
    assert_eq!(by(source), SessionBy::Source(PrefixLengths { v4: 24, v6: 56 }, own));
    assert_eq!(by("{ rdp_cookie: {} }"), SessionBy::Rdp(default));
    assert_eq!(by("{ rdp_cookie: { entries_max: 5, expires: 1m } }"), SessionBy::Rdp(own));
    let route = SessionRoute { on: HashKey::Cookie("ID".into()), label: "route".into() };
    assert_eq!(by("{ route: { cookie: ID } }"), SessionBy::Route(route));
    let plain = persistence("{ source: {} }");
    assert_eq!((plain.otherwise, plain.when_full), (WhenAway::Another, WhenFull::Wait));
    let strict = persistence("{ source: {}, otherwise: refuse, when_full: away }");
    assert_eq!((strict.otherwise, strict.when_full), (WhenAway::Refuse, WhenFull::Away));
}

#[test]
fn mistakes_are_told_with_what_to_write() {
    let one = |line: &str, message: &str| assert_eq!(told(line), [message], "{line}");
    one(
        "{ cookie: { secret: short } }",
        "the secret has 5 bytes, which can be guessed: use at least 16 (`openssl rand -hex 32` makes a good one)",
    );
    one("{ learn: { cookie: 'a b' } }", "`a b` is not the name of a cookie");
    one("{ header: { name: 'a b' } }", "`a b` is not the name of a header field");
    one("{ cookie: { secret: 0123456789abcdef, name: 'a;b' } }", "`a;b` is not the name of a cookie");
    one("{ cookie: { secret: 0123456789abcdef, path: x } }", "`x` is not a path (write `/`)");
    one("{ cookie: { secret: 0123456789abcdef, path: '/;x' } }", "`/;x` is not a path (write `/`)");
    one(
        "{ cookie: { secret: 0123456789abcdef, domain: 'a;b' } }",
        "`a;b` is not a host name, nor an address, without a port",
    );
    one(
        "{ cookie: { secret: 0123456789abcdef, same_site: none, secure: false } }",
        "browsers drop a cookie with `same_site: none` that is not secure (leave `secure` out)",
    );
    one(
        "{ cookie: { secret: 0123456789abcdef, name: __Host-lb } }",
        "browsers drop a cookie `__Host-lb` that is not secure (write `secure: true`)",
    );
    one(
        "{ cookie: { secret: 0123456789abcdef, name: __Host-lb, secure: true, path: /x } }",
        "browsers drop a cookie `__Host-lb` with a domain, or a path other than `/`",
    );
    one(
        "{ source: { expires: 10ms } }",
        "this is less than a second, the smallest unit of a cookie (write `1s` or more)",
    );
    one(
        "{ route: { cookie: ID, label: node } }",
        "no endpoint has a label `node` (write `labels: { node: NAME }` at the endpoints)",
    );
}

#[test]
fn exactly_one_way_is_needed() {
    for line in
        ["{}", "{ otherwise: refuse }", "{ source: {}, header: { name: x } }", "{ cookie: {} }", "{ learn: {} }"]
    {
        assert_eq!(told(line).len(), 1, "{line}: {:?}", told(line));
    }
    assert!(told("{ cokie: { secret: 0123456789abcdef } }")[0].contains("did you mean `cookie`?"));
}

/// Two clusters with a cookie, and routes.
fn two(routes: &str, (first, second): (&str, &str)) -> Vec<String> {
    let cluster = |name: &str, more: &str| {
        format!(
            "  {name}: {{ endpoints: ['127.0.0.1:1'], persistence: {{ cookie: {{ secret: 0123456789abcdef{more} }} }} }}\n"
        )
    };
    messages(&format!(
        "version: 1\nroutes: [{routes}]\nlisteners: {{ web: {{ bind: '127.0.0.1:0' }} }}\nclusters:\n{}{}",
        cluster("shop", first),
        cluster("blog", second)
    ))
}

#[test]
fn clusters_that_one_client_meets_set_different_cookies() {
    let by_path = "{ match: { path: { prefix: /blog } }, cluster: blog }, { cluster: shop }";
    let told = |name: &str| {
        vec![format!(
            "6: the cluster `shop` sets a cookie `{name}` for the same clients: each of them would ignore the other's \
             cookie (give one of them another name: `name: {name}-blog`)"
        )]
    };
    assert_eq!(two(by_path, ("", "")), told("equipoise"));
    assert_eq!(two(by_path, (", name: lb", ", name: lb")), told("lb"));
    for different in [", name: lb", ", path: /blog", ", domain: example.com"] {
        assert_eq!(two(by_path, ("", different)), [""; 0], "{different}");
    }
    let hosts = |one: &str, other: &str| {
        format!("{{ match: {{ host: '{one}' }}, cluster: shop }}, {{ match: {{ host: '{other}' }}, cluster: blog }}")
    };
    assert_eq!(two(&hosts("shop.example.com", "blog.example.com"), ("", "")), [""; 0], "no client sends it to both");
    assert_eq!(two(&hosts("*.a.example", "*.b.example"), ("", "")), [""; 0]);
    for (one, other) in [("a.example", "a.example"), ("*.example", "a.example"), ("a.b.c", "*.b.c"), ("*.b.c", "*.c")] {
        assert_eq!(two(&hosts(one, other), ("", "")), told("equipoise"), "{one} {other}");
    }
    let domain = ", domain: example.com";
    assert_eq!(two(&hosts("shop.example.com", "blog.example.com"), (domain, domain)), told("equipoise"));
    let weighted = "{ clusters: [{ cluster: shop, weight: 1 }, { cluster: blog, weight: 1 }] }";
    assert_eq!(two(weighted, ("", "")), [""; 0], "a session is of one of them");
    assert_eq!(two("{ cluster: shop }", ("", "")), [""; 0], "nobody gets to the other");
}

#[test]
fn a_cluster_of_the_name_of_a_setting_hides_its_secrets_too() {
    let text = "version: 1\nclusters:\n  persistence:\n    endpoints: ['127.0.0.1:1']\n    health_check: { http: { path: /, headers: \
                { authorization: plain-text } } }\n    persistence: { cookie: { secret: 0123456789abcdef } }\n";
    let loaded = load(text).unwrap_or_else(|told| panic!("{told}"));
    let shown = loaded.effective();
    let cluster = &shown["clusters"]["persistence"];
    assert_eq!(cluster["health_check"]["http"]["headers"]["authorization"], "(hidden)");
    assert_eq!(cluster["persistence"]["cookie"]["name"], "equipoise");
    assert_eq!(cluster["persistence"]["cookie"]["secret"], "(hidden)");
}

#[test]
fn a_label_that_names_endpoints_names_one() {
    let text = "version: 1\nclusters:\n  a:\n    endpoints: [{ address: '127.0.0.1:1', labels: { route: x } }, { address: \
                '127.0.0.1:2', labels: { route: x } }]\n    persistence: { route: { cookie: ID } }\n";
    let told = "4: `127.0.0.1:2` and `127.0.0.1:1` have the same label `route: x` (it identifies sessions: give each endpoint its \
                own value)";
    assert_eq!(messages(text), [told]);
    assert_eq!(messages(&text.replacen("route: x", "route: y", 1)), [""; 0]);
}
