//! The form into which a listener brings paths.

use model::snapshot::{EscapedSlashes, Paths, Protocol};

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
            "3: `merge_slashes` has no meaning while paths stay as they came \
             (leave it out, or leave `normalize: false` out)",
            "3: `escaped_slashes` has no meaning while paths stay as they came \
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
