//! What one look at a list of a million networks costs:
//! `cargo run --release -p equipoise-plan --example address_cost`.

use std::fmt::Write;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use model::filter::FilterUse;
use model::{Facts, Name, RequestHead, facts::Scheme};
use plan::filter::{Chain, Flow, Notes, Turn};
use serde_json::json;

const NETWORKS: u64 = 1_000_000;
const ROUNDS: u32 = 5_000_000;

fn main() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move || {
        // xorshift64: any spread does.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let v4 = |bits: u64| IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
    let v6 = |bits: u64| IpAddr::V6(Ipv6Addr::from_bits((0x2001 << 112) | (u128::from(bits) << 48)));
    measure("IPv4", v4, 24..=32, &mut draw);
    measure("IPv6", v6, 40..=64, &mut draw);
}

fn measure(
    family: &str,
    address: impl Fn(u64) -> IpAddr,
    prefixes: std::ops::RangeInclusive<u64>,
    draw: &mut impl FnMut() -> u64,
) {
    let mut list = String::new();
    let lengths = prefixes.end() - prefixes.start() + 1;
    for _ in 0..NETWORKS {
        let (bits, length) = (draw(), prefixes.start() + draw() % lengths);
        writeln!(list, "{}/{length}", address(bits)).expect("memory takes it");
    }
    let settings = json!({ "deny_files": [{ "name": "list", "text": list }], "close": true });
    let begin = Instant::now();
    let uses = [FilterUse { name: "address_list".into(), settings, when: None, calls: Vec::new() }];
    let chain = Chain::compile(&uses, None).expect("good settings");
    println!("{family}: {NETWORKS} networks compiled in {:.2} s", begin.elapsed().as_secs_f64());
    let clients: Vec<IpAddr> = (0..1 << 16).map(|_| address(draw())).collect();
    let (listener, mut head, mut scratch) = (Name::from("web"), RequestHead::default(), Vec::new());
    let (mut notes, mut chance) = (Notes::default(), || 7);
    let (mut refused, begin) = (0_u32, Instant::now());
    for round in 0..ROUNDS {
        let facts = facts(&listener, clients[round as usize % clients.len()]);
        let mut turn = Turn {
            facts: &facts,
            now: begin,
            wall_clock: &Duration::default,
            chance: &mut chance,
            notes: &mut notes,
            scratch: &mut scratch,
            is_rehearsal: false,
        };
        refused += u32::from(chain.on_request(black_box(&mut head), &mut turn) == Flow::Close);
    }
    let cost = begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
    println!("{family}: {cost:.0} ns for a look, {refused} of {ROUNDS} refused");
}

fn facts(listener: &Name, client: IpAddr) -> Facts<'_> {
    let address = |text: &str| text.parse().expect("an address");
    let (peer, local) = (address("192.0.2.7:40000"), address("127.0.0.1:8080"));
    Facts { peer, client, local, scheme: Scheme::Http, tls: None, sender: None, listener, request_id: "", user: None }
}
