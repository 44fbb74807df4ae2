//! HTTP/3 towards clients.

use std::time::Duration;

use model::snapshot::{Http3, HttpListener, Protocol};

use crate::support::{LOADER, messages, write_certificates};

const TLS: &str = "tls: { certificates: [{ chain: site.pem, key: site.key }] }";

fn file(listener: &str, more: &str) -> String {
    format!("version: 1\nlisteners:\n  web: {{ bind: '127.0.0.1:8443', {listener} }}\n{more}")
}

fn http(listener: &str) -> HttpListener {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path(), &["site"]);
    let loaded = LOADER.load_text("site.yaml", &file(&format!("{TLS}, {listener}"), ""), folder.path()).unwrap();
    let listener = &loaded.snapshot.listeners[0];
    match &listener.protocol {
        Protocol::Http(http) => http.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn http3_is_spoken_where_it_is_written_and_has_settings_of_its_own() {
    let versions = |listener| {
        let versions = http(listener).versions;
        (versions.h1, versions.h2, versions.h3)
    };
    assert_eq!(versions(""), (true, true, false));
    assert_eq!(versions("http_versions: [h1, h2, h3]"), (true, true, true));
    assert_eq!(versions("http_versions: [h3]"), (false, false, true));
    let day = Some(Duration::from_secs(86_400));
    let plain = Http3 { advertised_for: day, advertised_port: None, unproven_max: 100 };
    assert_eq!(http("http_versions: [h2, h3]").http3, plain);
    let set = http("http_versions: [h2, h3], http3: { max_age: 5m, port: 443, unproven_max: 0 }").http3;
    let five = Some(Duration::from_secs(300));
    assert_eq!(set, Http3 { advertised_for: five, advertised_port: Some(443), unproven_max: 0 });
    assert_eq!(http("http_versions: [h2, h3], http3: { advertise: false }").http3.advertised_for, None);
}

#[test]
fn what_http3_cannot_do_is_refused_with_what_to_write() {
    let about = |listener: &str, more: &str| {
        let told = messages(&file(listener, more)).into_iter();
        told.filter(|message| !message.contains("site.pem") && !message.contains("site.key")).collect::<Vec<_>>()
    };
    let h3 = "http_versions: [h1, h2, h3]";
    assert_eq!(
        about(h3, ""),
        ["3: `h3` needs TLS, and listener `web` has none (add `tls` with a certificate, or leave `h3` out)"]
    );
    assert_eq!(
        about(&format!("{h3}, {TLS}, proxy_protocol: {{ from: ['10.0.0.0/8'] }}"), ""),
        ["3: `h3` and `proxy_protocol` exclude each other in listener `web`: QUIC has no such header \
          (use a separate listener for HTTP/3, or leave `h3` out)"]
    );
    let unix = file(&format!("{h3}, {TLS}"), "").replace("127.0.0.1:8443", "unix:/tmp/x.sock");
    let told: Vec<_> = messages(&unix).into_iter().filter(|message| message.contains("`h3`")).collect();
    assert_eq!(
        told,
        [
            "3: listener `web` speaks `h3`, which does not work over Unix sockets (bind an address with a port, or leave `h3` out)"
        ]
    );
    assert_eq!(
        about(
            &format!("{h3}, {TLS}"),
            "  dns: { bind: '127.0.0.1:8443', protocol: udp, cluster: c }\nclusters: { c: { endpoints: ['127.0.0.1:9'] } }\n"
        ),
        ["4: `127.0.0.1:8443` is already used by listener `web`, for HTTP/3 (choose another port)"]
    );
    assert_eq!(
        about(&format!("{TLS}, http3: {{ advertise: false }}"), ""),
        ["3: `http3` has no effect: listener `web` does not speak HTTP/3 (add `h3` to `http_versions`)"]
    );
    assert_eq!(
        about("protocol: tcp, http_versions: [h3], cluster: c", "clusters: { c: { endpoints: ['127.0.0.1:9'] } }\n"),
        ["3: `http_versions` is for `protocol: http`, but listener `web` speaks tcp (leave it out)"]
    );
    assert_eq!(about(&format!("http_versions: [h3, h3], {TLS}"), ""), ["3: this version is listed twice"]);
}
