//! TLS of the administrator's listener, and whose certificates open it.

use model::snapshot::{AdminRole, CertificateName, ClientAuth};

use crate::support::{LOADER, load, messages, set_certs, write_certificates};

/// A certificate, and with `CLIENT` behind it those of clients.
const SHOWN: &str = r#"certificates: [{ chain: "${CERTS}/site.pem", key: "${CERTS}/site.key" }]"#;
const CLIENT: &str = r#", client: { mode: required, authorities: "${CERTS}/site.pem" }"#;

/// What stands below `admin`, from line 4 on.
fn admin(lines: &str) -> String {
    format!("version: 1\nadmin:\n  bind: \"127.0.0.1:9900\"\n{lines}")
}

/// A folder with certificates, as long as it is held.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    set_certs(folder.path());
    write_certificates(folder.path(), &["site"]);
    folder
}

#[test]
fn identities_and_certificates_are_as_they_were_written() {
    let folder = certificates();
    let text = format!(
        "  tls: {{ {SHOWN}{CLIENT}, handshake_timeout: 3s }}\n  identities:\n    - {{ name: eye, role: read, common_name: Eye }}\n    \
         - {{ name: hand, role: admin, alternative_name: \"spiffe://example.com/hand\" }}\n"
    );
    let text = admin(&text).replace("127.0.0.1", "10.0.0.1");
    let loaded = load(&text).unwrap_or_else(|error| panic!("{error}"));
    let admin = loaded.snapshot.admin.as_ref().unwrap();
    assert!(admin.asks_for_credentials() && admin.changes_allowed, "a certificate is a credential");
    let tls = admin.tls.as_ref().unwrap();
    assert!(matches!(&tls.client, ClientAuth::Required(trust) if trust.authorities == tls.certificates[0].chain));
    assert_eq!((tls.certificates.len(), tls.handshake_timeout.as_secs()), (1, 3));
    let told: Vec<_> = admin.identities.iter().map(|one| (one.name.as_str(), one.role, &one.certificate)).collect();
    let wanted = [
        ("eye", AdminRole::Read, &CertificateName::Subject("Eye".into())),
        ("hand", AdminRole::Admin, &CertificateName::Alternative("spiffe://example.com/hand".into())),
    ];
    assert_eq!(told, wanted);
    // They are looked at again as those of listeners are.
    let named: Vec<_> = ["site.pem", "site.key"].iter().map(|name| folder.path().join(name)).collect();
    assert_eq!(loaded.referenced_files(), named);
    write_certificates(folder.path(), &["site"]);
    let renewed = LOADER.reload_files(&loaded).unwrap();
    assert_ne!(renewed.snapshot.admin, loaded.snapshot.admin);
}

#[test]
fn certificates_may_be_asked_for_beside_tokens_alone() {
    let _folder = certificates();
    let token = "  tokens: [{ name: a, role: admin, token: 0123456789abcdef }]\n";
    assert_eq!(messages(&admin(&format!("  tls: {{ {SHOWN}{CLIENT} }}\n{token}"))), [""; 0]);
    assert_eq!(messages(&admin(&format!("  tls: {{ {SHOWN} }}\n{token}"))), [""; 0]);
    assert_eq!(messages(&admin(&format!("  tls: {{ {SHOWN} }}\n"))), [""; 0], "on loopback, as without TLS");
}

#[test]
fn tokens_that_cross_a_network_in_clear_are_warned_of() {
    let _folder = certificates();
    let token = "  tokens: [{ name: a, role: admin, token: 0123456789abcdef }]\n";
    let warnings = |text: &str| {
        let loaded = load(text).unwrap_or_else(|error| panic!("{error}"));
        let told = |warning: &config::Diagnostic| (warning.line, warning.message.clone(), warning.suggestion.clone());
        loaded.warnings().iter().map(told).collect::<Vec<_>>()
    };
    let outside = |text: &str| text.replace("127.0.0.1", "10.0.0.1");
    let message = "tokens are sent unencrypted to `10.0.0.1:9900`, which can be reached from outside";
    let mend = "add `tls`, bind `127.0.0.1:9900`, or accept this with `tokens_in_clear: true` where something else encrypts them";
    let clear = admin(token);
    assert_eq!(warnings(&outside(&clear)), [(4, message.to_owned(), Some(mend.to_owned()))]);
    for fine in [
        clear.clone(),
        clear.replace("127.0.0.1:9900", "unix:/run/equipoise.sock"),
        outside(&admin(&format!("  tokens_in_clear: true\n{token}"))),
        outside(&admin(&format!("  tls: {{ {SHOWN} }}\n{token}"))),
    ] {
        assert_eq!(warnings(&fine), [], "{fine}");
    }
}

#[test]
fn tls_alone_shows_nobody_who_asks() {
    let _folder = certificates();
    let text = admin(&format!("  tls: {{ {SHOWN} }}\n")).replace("127.0.0.1", "10.0.0.1");
    assert_eq!(
        messages(&text),
        [
            "3: `10.0.0.1:9900` can be reached from outside, and the admin API requires no credentials: everyone who reaches it can read the configuration (bind `127.0.0.1:9900`, add `tokens`, or `tls` with `identities`, or accept \
          this with `allow_remote: true`)"
        ]
    );
}

#[test]
fn what_does_not_go_together_is_told_with_what_to_write() {
    let _folder = certificates();
    let identity = "  identities: [{ name: a, role: read, common_name: a }]\n";
    let told = |lines: &str| messages(&admin(lines));
    assert_eq!(
        told(identity),
        [
            "4: `identities` has no effect without `tls`: no client presents a certificate (add `tls` with `client: { mode: required, \
          authorities: FILE }`)"
        ]
    );
    assert_eq!(
        told(&format!("  tls: {{ {SHOWN} }}\n{identity}")),
        ["5: `identities` has no effect unless client certificates are requested (add `client: { mode: required, \
          authorities: FILE }` to `tls`)"]
    );
    let nobody = [
        "4: client certificates are requested, but `identities` grants no one access (add `identities: [{ name: NAME, role: \
          admin, common_name: NAME }]`, or `tokens`)",
    ];
    assert_eq!(told(&format!("  tls: {{ {SHOWN}{CLIENT} }}\n")), nobody);
    assert_eq!(told(&format!("  tls: {{ {SHOWN}{CLIENT} }}\n  identities: []\n")), nobody);
    let named = CLIENT.replace(" }", ", identity_header: x-who }");
    assert_eq!(
        told(&format!("  tls: {{ {SHOWN}{named} }}\n{identity}")),
        ["4: `identity_header` has no effect here: nothing is forwarded (leave it out)"]
    );
    let two = SHOWN.replace("}]", "}, { chain: \"${CERTS}/site.pem\", key: \"${CERTS}/site.key\" }]");
    assert_eq!(
        told(&format!("  tls: {{ {two} }}\n")),
        ["4: the admin listener uses one certificate (leave the others out; one certificate may have many names)"]
    );
    let socket = admin(&format!("  tls: {{ {SHOWN} }}\n")).replace("127.0.0.1:9900", "unix:/run/a.sock");
    assert_eq!(
        messages(&socket),
        [
            "4: `tls` applies to network addresses only (leave it out: a Unix socket is protected by its file permissions)"
        ]
    );
}

#[test]
fn identities_are_told_apart() {
    let _folder = certificates();
    let told = |identities: &str| {
        let lines = format!("  tls: {{ {SHOWN}{CLIENT} }}\n  identities:\n{identities}");
        messages(&admin(&lines))
    };
    assert_eq!(
        told("    - { name: a, role: read, common_name: x }\n    - { name: a, role: admin, common_name: x }\n"),
        [
            "7: there is already an identity `a` (give one of them another name)",
            "7: it is the same as that of `a`: a client with it could be either (give each its own)",
        ]
    );
    assert_eq!(
        told(
            "    - { name: a, role: read, common_name: x, alternative_name: y }\n    - { name: b, role: root, common_name: z }\n"
        ),
        [
            "6: `common_name` and `alternative_name` exclude each other in `identities` of `admin` (keep one of them)",
            "7: `role` must be `read` or `admin`, not the text `root`",
        ]
    );
    assert_eq!(
        told("    - { name: a, role: read }\n"),
        ["6: `identities` of `admin` needs one of `common_name` or `alternative_name`"]
    );
    // A common name and an alternative name are two things, whatever they say.
    let both = "    - { name: a, role: read, common_name: x }\n    - { name: b, role: admin, alternative_name: x }\n";
    assert_eq!(told(both), [""; 0]);
}

#[test]
fn a_file_that_is_not_there_is_told_where_it_is_named() {
    let folder = certificates();
    std::fs::remove_file(folder.path().join("site.key")).unwrap();
    let told = messages(&admin(&format!("  tls: {{ {SHOWN} }}\n")));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("4: cannot read `") && told[0].contains("site.key"), "{told:?}");
}

#[test]
fn a_socket_that_everybody_may_open_is_warned_of() {
    let warnings = |lines: &str| {
        let text = admin(lines).replace("127.0.0.1:9900", "unix:/run/equipoise.sock");
        let loaded = load(&text).unwrap_or_else(|error| panic!("{error}"));
        loaded.warnings().iter().map(|warning| (warning.line, warning.message.clone())).collect::<Vec<_>>()
    };
    let message = "every user of this machine may open the socket, and change the configuration there";
    assert_eq!(warnings("  mode: \"0666\"\n"), [(4, message.to_owned())]);
    let token = "  mode: \"0666\"\n  tokens: [{ name: a, role: admin, token: 0123456789abcdef }]\n";
    for fine in ["", "  mode: \"0660\"\n", "  mode: \"0644\"\n", token] {
        assert_eq!(warnings(fine), [], "{fine}");
    }
}
