//! Other instances, as they may be written.

use crate::support::{load, messages};

fn with(peers: &str, table: &str) -> String {
    format!("version: 1\n{peers}\ntables: {{ t: {{ counters: [requests]{table} }} }}\n")
}

#[test]
fn peers_are_addresses_and_names_with_a_port() {
    let text = with(
        "peers: { listen: '127.0.0.1:7100', members: ['[::1]:7100', 'edge.internal:7101'], insecure: true }",
        ", replicate: true",
    );
    let loaded = load(&text).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let peers = loaded.snapshot.peers.as_ref().expect("peers");
    let members: Vec<_> = peers.members.iter().map(ToString::to_string).collect();
    assert_eq!(members, ["[::1]:7100", "edge.internal:7101"]);
    assert!(peers.tls.is_none() && loaded.snapshot.tables[0].is_replicated);
    let open = with("peers: { listen: '0.0.0.0:7100', members: ['10.0.0.2:7100'], insecure: true }", "");
    let told = |text: &str| {
        let loaded = load(text).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        loaded.warnings().iter().filter(|warning| warning.message.contains("insecure")).count()
    };
    assert_eq!(told(&open), 0);
    let leaves = with("peers: { listen: '127.0.0.1:7100', members: ['10.0.0.2:7100'], insecure: true }", "");
    assert_eq!(told(&leaves), 0);
    let needless =
        with("peers: { listen: '127.0.0.1:7100', members: ['127.0.0.2:7100', '[::1]:7100'], insecure: true }", "");
    assert_eq!(told(&needless), 1);
}

#[test]
fn mistakes_are_named_with_their_mend() {
    assert_eq!(
        messages(&with("", ", replicate: true")),
        [
            "3: there are no peers to replicate the table to (add `peers` with `listen` and `members` at the top level, or leave `replicate` out)"
        ]
    );
    let sessions = "version: 1
routes: [{ cluster: a }]
clusters: { a: { endpoints: ['127.0.0.1:1'], persistence: { learn: { cookie: sid, replicate: true } } } }
";
    assert_eq!(
        messages(sessions),
        [
            "3: there are no peers to replicate sessions to (add `peers` with `listen` and `members` at the top level, or leave `replicate` out)"
        ]
    );
    assert_eq!(
        messages(&with("peers: { listen: '10.0.0.1:7100', members: ['10.0.0.2:7100'] }", "")),
        [
            "2: `10.0.0.1:7100` can be reached from outside, and peers would be believed without a certificate (add `tls` with `certificate` and `authorities`, or listen on 127.0.0.1; `insecure: true` allows it)"
        ]
    );
    for member in ["10.0.0.2:7100", "edge.internal:7100"] {
        let text = with(&format!("peers: {{ listen: '127.0.0.1:7100', members: ['127.0.0.1:7100', '{member}'] }}"), "");
        let told = format!(
            "2: `{member}` is not a loopback address, and tables would be sent to it in clear (add `tls` with `certificate` and `authorities`; `insecure: true` allows it)"
        );
        assert_eq!(messages(&text), [told]);
    }
    assert_eq!(
        messages(&with("peers: { listen: '127.0.0.1:7100', members: ['10.0.0.2'] }", "")),
        ["2: `10.0.0.2` is not a host with a port (write `10.0.0.2:7100` or `name:7100`)"]
    );
    assert_eq!(messages(&with("peers: { listen: '127.0.0.1:7100', members: [] }", "")).len(), 1);
    let taken = "listeners: { web: { bind: '127.0.0.1:7100' } }\npeers: { listen: '127.0.0.1:7100', members: ['127.0.0.2:7100'] }";
    assert!(messages(&with(taken, "")).iter().any(|told| told.contains("is already used by")));
    let unread = "peers: { listen: '10.0.0.1:7100', members: ['10.0.0.2:7100'], tls: { certificate: { chain: no.pem, key: no.key }, authorities: no.pem } }";
    assert_eq!(messages(&with(unread, "")).len(), 3);
}
