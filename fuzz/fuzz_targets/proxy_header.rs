//! The PROXY protocol: no panic; an answer once given is not changed by more bytes; what is told is written and read
//! again as the same.
#![no_main]

use equipoise_fuzz::{choice_and_message, cuts};
use libfuzzer_sys::fuzz_target;
use model::limits::PROXY_HEADER_BYTES_MAX;
use wire::proxy_protocol::{Outgoing, Proxied, read, write_v1, write_v2};

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    let whole = read(message);
    for end in cuts(choice, message.len()) {
        let part = read(&message[..end]);
        assert!(part == Proxied::NeedMore || part == whole);
    }
    assert!(whole != Proxied::NeedMore || message.len() < PROXY_HEADER_BYTES_MAX);
    let Proxied::Whole(header) = whole else { return };
    assert!(header.len <= message.len() && header.len <= PROXY_HEADER_BYTES_MAX);
    let Some(peers) = header.peers else { return };
    let mut again = Vec::new();
    let told = &header.told;
    write_v2(
        &Outgoing {
            peers: Some(peers),
            alpn: told.alpn,
            authority: told.authority,
            unique_id: told.unique_id,
            checksum: true,
            ..Outgoing::default()
        },
        &mut again,
    );
    let Proxied::Whole(second) = read(&again) else { panic!("what we write is no header: {again:?}") };
    let second_peers = second.peers.expect("addresses");
    assert_eq!(second_peers.source.ip().to_canonical(), peers.source.ip().to_canonical());
    assert_eq!(second_peers.destination.port(), peers.destination.port());
    let mut line = Vec::new();
    write_v1(Some(peers), &mut line);
    assert!(matches!(read(&line), Proxied::Whole(first) if first.len == line.len()));
});
