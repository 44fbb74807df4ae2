//! The form into which a listener brings paths, and that of the paths that routes and filters name.

use model::matching::PathMatch;
use model::snapshot::{EscapedSlashes, HostMismatch, Paths, Protocol};

use crate::support::{load, messages};

fn file(listener: &str) -> String {
    format!(
        "version: 1\nlisteners:\n  web: {{ bind: '127.0.0.1:0'{listener} }}\n\
         routes: [{{ cluster: a }}]\nclusters: {{ a: {{ endpoints: ['127.0.0.1:1'] }} }}\n"
    )
}

fn paths(listener: &str) -> Option<Paths> {
    match &load(&file(listener)).unwrap().snapshot.listeners[0].protocol {
        Protocol::Http(http) => http.paths,
        other => panic!("{other:?}"),
    }
}

#[test]
fn paths_have_one_form_unless_they_are_to_stay_as_they_came() {
    let strict = Some(Paths { merge_slashes: true, escaped_slashes: EscapedSlashes::Refuse });
    for listener in ["", ", paths: {}", ", paths: { normalize: true, merge_slashes: true, escaped_slashes: refuse }"] {
        assert_eq!(paths(listener), strict, "{listener}");
    }
    let decoding = Some(Paths { merge_slashes: false, escaped_slashes: EscapedSlashes::Decode });
    assert_eq!(paths(", paths: { merge_slashes: false, escaped_slashes: decode }"), decoding);
    let keeping = Some(Paths { merge_slashes: true, escaped_slashes: EscapedSlashes::Keep });
    assert_eq!(paths(", paths: { escaped_slashes: keep }"), keeping);
    assert_eq!(paths(", paths: { normalize: false }"), None);
}

#[test]
fn what_means_nothing_for_paths_is_told() {
    let about = |listener: &str| messages(&file(listener));
    assert_eq!(
        about(", paths: { normalize: false, merge_slashes: false, escaped_slashes: keep }"),
        [
            "3: `merge_slashes` has no effect with `normalize: false` \
             (leave it out, or leave `normalize: false` out)",
            "3: `escaped_slashes` has no effect with `normalize: false` \
             (leave it out, or leave `normalize: false` out)",
        ]
    );
    let tcp = about(", protocol: tcp, cluster: a, paths: {}");
    assert!(
        tcp.contains(&"3: `paths` is for `protocol: http`, but listener `web` speaks tcp (leave it out)".to_owned()),
        "{tcp:?}"
    );
    let wrong = about(", paths: { escaped_slashes: reject }");
    assert!(wrong.len() == 1 && wrong[0].contains("`escaped_slashes`"), "{wrong:?}");
    assert!(about(", paths: { normalise: true }")[0].contains("`normalise`"));
}

#[test]
fn a_host_that_differs_from_the_target_is_replaced_unless_it_is_to_be_refused() {
    let of = |listener: &str| match &load(&file(listener)).unwrap().snapshot.listeners[0].protocol {
        Protocol::Http(http) => http.host_mismatch,
        other => panic!("{other:?}"),
    };
    assert_eq!(of(""), HostMismatch::Replace);
    assert_eq!(of(", host_mismatch: replace"), HostMismatch::Replace);
    assert_eq!(of(", host_mismatch: refuse"), HostMismatch::Refuse);
    assert_eq!(
        messages(&file(", protocol: tcp, cluster: a, host_mismatch: refuse"))[0],
        "3: `host_mismatch` is for `protocol: http`, but listener `web` speaks tcp (leave it out)"
    );
    assert_eq!(
        messages(&file(", host_mismatch: deny")),
        ["3: `host_mismatch` must be `replace` or `refuse`, not the text `deny`"]
    );
    assert_eq!(
        messages(&file(", host_missmatch: refuse")),
        ["3: unknown key `host_missmatch` in listener `web` (did you mean `host_mismatch`?)"]
    );
}

/// The path of the route below listeners with these `paths`, and what is reported about it.
fn compared(listeners: &[&str], route: &str) -> (Option<PathMatch>, Vec<String>) {
    let all = listeners.iter().zip(["web", "raw"]);
    let all: Vec<_> =
        all.map(|(paths, name)| format!("{name}: {{ bind: '127.0.0.1:0', paths: {{ {paths} }} }}")).collect();
    let text = format!(
        "version: 1\nlisteners: {{ {} }}\nroutes: [{{ match: {{ path: {{ {route} }} }}, cluster: a }}]\n\
         clusters: {{ a: {{ endpoints: ['127.0.0.1:1'] }} }}\n",
        all.join(", ")
    );
    let loaded = load(&text).unwrap_or_else(|error| panic!("{error}"));
    let told = loaded.warnings().iter();
    let told = told.map(|one| format!("{}: {} ({})", one.line, one.message, one.suggestion.as_deref().unwrap_or("-")));
    (loaded.snapshot.routes[0].matches.path.clone(), told.collect())
}

#[test]
fn a_path_of_a_route_is_compared_in_the_form_of_its_listener_however_it_is_written() {
    for (paths, written, wanted) in [
        ("", "/plain/x.html", "/plain/x.html"),
        ("", "/caf%c3%a9/intern", "/caf%C3%A9/intern"),
        ("", "/%7Eops", "/~ops"),
        ("", "/a//b/", "/a/b/"),
        ("", "/a/../b", "/b"),
        ("merge_slashes: false", "/a//b", "/a//b"),
        ("escaped_slashes: keep", "/a%2fb", "/a%2Fb"),
        ("escaped_slashes: decode", "/a%2fb", "/a/b"),
        ("normalize: false", "/caf%c3%a9//b", "/caf%c3%a9//b"),
    ] {
        let exact = compared(&[paths], &format!("exact: '{written}'"));
        assert_eq!(exact, (Some(PathMatch::Exact(wanted.into())), vec![]), "{paths}");
        let prefix = compared(&[paths], &format!("prefix: '{written}'"));
        assert_eq!(prefix, (Some(PathMatch::Prefix(wanted.into())), vec![]), "{paths}");
    }
}

#[test]
fn a_path_that_no_request_has_is_told_with_what_can_be_done() {
    let (path, told) = compared(&[""], "prefix: '/a%2fb'");
    assert_eq!(path, Some(PathMatch::Prefix("/a%2fb".into())));
    let refused = "no request has the path `/a%2fb`: it is ambiguous, so such requests are rejected";
    assert_eq!(told, [format!("3: {refused} (set `paths: {{ escaped_slashes: keep }}` in the listener)")]);
    for path in ["/a/..;/b", "/a%00", "/50%", "/;/a", "/a%2F../b"] {
        let (_, told) = compared(&[""], &format!("exact: '{path}'"));
        let wanted = format!("3: no request has the path `{path}`: it is ambiguous, so such requests are rejected");
        assert!(told.len() == 1 && told[0].starts_with(&wanted), "{told:?}");
    }
}

#[test]
fn listeners_that_do_not_agree_about_a_path_are_told_of_only_where_they_differ() {
    let both = ["", "normalize: false"];
    let (path, told) = compared(&both, "prefix: '/caf%c3%a9'");
    assert_eq!(path, Some(PathMatch::Prefix("/caf%c3%a9".into())));
    assert_eq!(
        told,
        ["3: the listeners of this route normalize the path `/caf%c3%a9` differently: `/caf%C3%A9` and `/caf%c3%a9` \
          (give each listener its own route, with `listeners`; here the path is compared as written)"]
    );
    assert_eq!(compared(&both, "prefix: '/caf%C3%A9'").1, Vec::<String>::new());
    // Where one refuses it, the other's form is the only one.
    let (path, told) = compared(&["", "escaped_slashes: keep"], "exact: '/a%2fb'");
    assert_eq!((path, told), (Some(PathMatch::Exact("/a%2Fb".into())), vec![]));
}

#[test]
fn a_route_of_one_listener_follows_that_one() {
    let text = "version: 1\nlisteners: { web: { bind: '127.0.0.1:0' }, raw: { bind: '127.0.0.1:0', paths: { normalize: false } } }\n\
                routes:\n  - { listeners: [raw], match: { path: { exact: '/a//b' } }, cluster: a }\n  \
                - { listeners: [web], match: { path: { exact: '/a//b' } }, cluster: a }\n\
                clusters: { a: { endpoints: ['127.0.0.1:1'] } }\n";
    let loaded = load(text).unwrap();
    let paths: Vec<_> = loaded.snapshot.routes.iter().map(|route| route.matches.path.clone()).collect();
    assert_eq!(paths, [Some(PathMatch::Exact("/a//b".into())), Some(PathMatch::Exact("/a/b".into()))]);
    assert_eq!(loaded.warnings().len(), 0);
}

#[test]
fn conditions_of_filters_and_prefixes_that_filters_take_away_have_the_same_form() {
    let text = "version: 1\nlisteners: { web: { bind: '127.0.0.1:0' } }\nroutes:\n  - cluster: a\n    filters:\n      \
                - { set_request_header: { x: y }, when: { not: { path: { prefix: '/%7eops' } } } }\n      \
                - rewrite: { below: { from: '/%7eops//x' } }\n      - rewrite: { below: { from: '/a%2fb' } }\n\
                clusters: { a: { endpoints: ['127.0.0.1:1'] } }\n";
    let loaded = load(text).unwrap();
    let filters = &loaded.snapshot.routes[0].filters;
    let not = filters[0].when.as_ref().and_then(|when| when.not.as_ref()).expect("it has a condition");
    assert_eq!(not.matches.path, Some(PathMatch::Prefix("/~ops".into())));
    assert_eq!(filters[1].settings["below"]["from"], "/~ops/x");
    let told: Vec<_> = loaded.warnings().iter().map(|one| (one.line, one.message.as_str())).collect();
    assert_eq!(told, [(8, "no request has the path `/a%2fb`: it is ambiguous, so such requests are rejected")]);
}
