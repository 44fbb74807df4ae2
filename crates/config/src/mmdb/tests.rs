//! Files are written here, whole and damaged, and read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

/// Writes files: a tree of networks that do not overlap, and their records.
struct Writer {
    nodes: Vec<[Slot; 2]>,
    data: Vec<u8>,
    /// Offsets of texts, so that a second one is a pointer.
    texts: HashMap<String, usize>,
    is_v6: bool,
}

#[derive(Clone, Copy)]
enum Slot {
    Empty,
    Node(usize),
    Data(usize),
}

impl Writer {
    fn new(is_v6: bool) -> Self {
        Self { nodes: vec![[Slot::Empty; 2]], data: Vec::new(), texts: HashMap::new(), is_v6 }
    }

    /// The bits of a network, from the highest of 128 on, and how many count.
    fn bits(&self, network: &str) -> (u128, u8) {
        let (address, length) = network.split_once('/').unwrap();
        let length: u8 = length.parse().unwrap();
        match address.parse().unwrap() {
            IpAddr::V6(address) => (u128::from(address), length),
            IpAddr::V4(address) if self.is_v6 => (u32::from(address).into(), 96 + length),
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, length),
        }
    }

    fn set(&mut self, network: &str, slot: Slot) {
        let (bits, length) = self.bits(network);
        let mut node = 0;
        for depth in 0..length {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == length {
                self.nodes[node][side] = slot;
                return;
            }
            node = match self.nodes[node][side] {
                Slot::Node(next) => next,
                _ => {
                    self.nodes.push([Slot::Empty; 2]);
                    let next = self.nodes.len() - 1;
                    self.nodes[node][side] = Slot::Node(next);
                    next
                }
            };
        }
    }

    fn add(&mut self, network: &str, record: &Value) {
        let offset = self.data.len();
        let mut data = std::mem::take(&mut self.data);
        encode(record, &mut data, &mut self.texts);
        self.data = data;
        self.set(network, Slot::Data(offset));
    }

    /// Has a network lead to where IPv4 begins.
    fn alias(&mut self, network: &str) {
        let mut node = 0;
        for _ in 0..96 {
            let Slot::Node(next) = self.nodes[node][0] else { panic!("there is no IPv4") };
            node = next;
        }
        self.set(network, Slot::Node(node));
    }

    fn file(&self, record_bits: usize) -> Vec<u8> {
        let count = self.nodes.len();
        let number = |slot: Slot| match slot {
            Slot::Empty => count,
            Slot::Node(node) => node,
            Slot::Data(offset) => count + tree::GAP + offset,
        };
        let mut file = Vec::new();
        for node in &self.nodes {
            let [one, other] = node.map(|slot| number(slot) as u32);
            match record_bits {
                24 => [one, other].iter().for_each(|record| file.extend_from_slice(&record.to_be_bytes()[1..])),
                28 => {
                    file.extend_from_slice(&one.to_be_bytes()[1..]);
                    file.push(((one >> 24) << 4 | other >> 24) as u8);
                    file.extend_from_slice(&other.to_be_bytes()[1..]);
                }
                _ => [one, other].iter().for_each(|record| file.extend_from_slice(&record.to_be_bytes())),
            }
        }
        file.extend_from_slice(&[0; tree::GAP]);
        file.extend_from_slice(&self.data);
        file.extend_from_slice(MARKER);
        let metadata = json!({
            "binary_format_major_version": 2, "node_count": count, "record_size": record_bits,
            "ip_version": if self.is_v6 { 6 } else { 4 }, "database_type": "Test",
        });
        encode(&metadata, &mut file, &mut HashMap::new());
        file
    }
}

fn header(kind: u8, size: usize, out: &mut Vec<u8>) {
    let high = if kind > 7 { 0 } else { kind << 5 };
    out.push(high | size.min(29) as u8);
    out.extend((kind > 7).then(|| kind - 7));
    out.extend((size >= 29).then(|| u8::try_from(size - 29).unwrap()));
}

fn encode(value: &Value, out: &mut Vec<u8>, texts: &mut HashMap<String, usize>) {
    match value {
        Value::String(text) => match texts.get(text) {
            Some(offset) => out.extend_from_slice(&[0x20 | (offset >> 8) as u8, *offset as u8]),
            None => {
                if out.len() < 2_048 {
                    texts.insert(text.clone(), out.len());
                }
                header(2, text.len(), out);
                out.extend_from_slice(text.as_bytes());
            }
        },
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => {
                let bytes = number.to_be_bytes();
                let used = &bytes[bytes.iter().position(|byte| *byte != 0).unwrap_or(8)..];
                header(9, used.len(), out);
                out.extend_from_slice(used);
            }
            (None, Some(number)) => {
                header(8, 4, out);
                out.extend_from_slice(&i32::try_from(number).unwrap().to_be_bytes());
            }
            _ => {
                header(3, 8, out);
                out.extend_from_slice(&number.as_f64().unwrap().to_be_bytes());
            }
        },
        Value::Bool(flag) => header(14, usize::from(*flag), out),
        Value::Array(items) => {
            header(11, items.len(), out);
            items.iter().for_each(|item| encode(item, out, texts));
        }
        Value::Object(map) => {
            header(7, map.len(), out);
            for (key, value) in map {
                encode(&Value::String(key.clone()), out, texts);
                encode(value, out, texts);
            }
        }
        Value::Null => panic!("there is no null"),
    }
}

fn country(code: &str) -> Value {
    json!({ "country": { "iso_code": code, "is_in_european_union": code == "DE" }, "location": { "latitude": -7.5, "metro": -3 },
            "subdivisions": [{ "iso_code": "BE" }, { "iso_code": format!("{code}-x") }] })
}

/// Countries, of which two neighbours are the same.
fn countries() -> Writer {
    let mut writer = Writer::new(true);
    for (network, code) in [
        ("192.0.2.0/25", "DE"),
        ("192.0.2.128/25", "DE"),
        ("198.51.100.0/24", "FR"),
        ("198.51.101.0/24", "DE"),
        ("2001:db8::/33", "FR"),
        ("2001:db8:8000::/33", "FR"),
        ("2001:dba::/32", "DE"),
    ] {
        writer.add(network, &country(code));
    }
    writer.alias("2002::/16");
    writer
}

fn read(file: &[u8], field: &str) -> Result<Vec<String>, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    entries(file, field).map(|all| all.iter().map(|(key, value)| format!("{} {}", text(key), text(value))).collect())
}

#[test]
fn networks_have_a_field_as_their_value_and_equal_neighbours_are_one() {
    for record_bits in [24, 28, 32] {
        let file = countries().file(record_bits);
        let wanted =
            ["192.0.2.0/24 DE", "198.51.100.0/24 FR", "198.51.101.0/24 DE", "2001:db8::/32 FR", "2001:dba::/32 DE"];
        assert_eq!(read(&file, "country.iso_code").unwrap(), wanted, "{record_bits}");
    }
    let mut writer = Writer::new(false);
    writer.add("10.0.0.0/9", &country("DE"));
    writer.add("10.128.0.0/9", &country("DE"));
    writer.add("11.0.0.0/8", &json!({ "asn": 64_500_u64 }));
    assert_eq!(read(&writer.file(24), "country.iso_code").unwrap(), ["10.0.0.0/8 DE"]);
    assert_eq!(read(&writer.file(28), "asn").unwrap(), ["11.0.0.0/8 64500"]);
}

#[test]
fn all_of_ipv4_is_no_half_of_a_network_of_ipv6() {
    let mut writer = Writer::new(true);
    writer.add("::/1", &country("DE"));
    assert_eq!(read(&writer.file(24), "country.iso_code").unwrap(), ["0.0.0.0/0 DE", "::/1 DE"]);
    let mut writer = Writer::new(true);
    writer.add("0.0.0.0/0", &country("DE"));
    writer.add("::1:0:0/96", &country("DE"));
    assert_eq!(read(&writer.file(24), "country.iso_code").unwrap(), ["0.0.0.0/0 DE", "::1:0:0/96 DE"]);
}

#[test]
fn values_of_any_kind_become_text_and_items_of_lists_have_numbers() {
    let file = countries().file(28);
    for (field, value) in [
        ("country.is_in_european_union", "true"),
        ("subdivisions.0.iso_code", "BE"),
        ("subdivisions.1.iso_code", "DE-x"),
        ("location.latitude", "-7.5"),
        ("location.metro", "-3"),
    ] {
        assert_eq!(read(&file, field).unwrap()[0], format!("192.0.2.0/24 {value}"), "{field}");
    }
    let mut writer = Writer::new(false);
    writer.add("10.0.0.0/8", &json!({ "name": format!("{}\r\nx: y", "a".repeat(40)) }));
    assert_eq!(read(&writer.file(24), "name").unwrap(), [format!("10.0.0.0/8 {}  x: y", "a".repeat(40))]);
    for field in ["country.iso", "country", "subdivisions.2.iso_code", "subdivisions.x", "country.iso_code.x", "", "."]
    {
        assert_eq!(
            read(&file, field).unwrap_err(),
            format!(
                "no network has the field `{field}`; the first has `country.iso_code`, `country.is_in_european_union`, \
                 `location.latitude`, `location.metro`, `subdivisions`"
            )
        );
    }
}

#[test]
fn a_file_that_is_cut_or_changed_anywhere_is_an_error_or_a_map() {
    let file = countries().file(28);
    for length in 0..file.len() {
        let _ = entries(&file[..length], "country.iso_code");
    }
    let mut seed = 7_u64;
    for _ in 0..20_000 {
        let mut damaged = file.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 33) as usize % damaged.len();
            damaged[at] = (seed >> 24) as u8;
        }
        let _ = entries(&damaged, "country.iso_code");
    }
    assert_eq!(read(b"a b\n", "x").unwrap_err(), "it is not a MaxMind DB");
    assert!(!is_one(b"10.0.0.0/8 office\n") && is_one(&file));
}

#[test]
fn loops_and_nests_end() {
    let damaged = |why: &str| format!("the MaxMind DB is damaged: {why}");
    let mut looping = Writer::new(true);
    looping.add("2001:db8::/32", &country("DE"));
    looping.set("4000::/2", Slot::Node(0));
    assert_eq!(read(&looping.file(24), "x").unwrap_err(), damaged("its tree has loops"));
    // Each bit leads to the same node both ways: 2^100 places.
    let mut wide = Writer::new(true);
    for node in 0..100 {
        wide.nodes[node] = [Slot::Node(node + 1); 2];
        wide.nodes.push([Slot::Empty; 2]);
    }
    assert_eq!(read(&wide.file(32), "x").unwrap_err(), damaged("its tree has loops"));
    let mut nested = json!("x");
    for _ in 0..100 {
        nested = json!([nested]);
    }
    let mut writer = Writer::new(false);
    writer.add("10.0.0.0/8", &json!({ "a": nested, "b": "c" }));
    assert_eq!(read(&writer.file(24), "b").unwrap_err(), damaged("its values are nested too deeply"));
    // A map that holds itself, and a pointer to itself.
    for (data, why) in [(&[0xe1, 0x41, b'a', 0x20, 0][..], None), (&[0x20, 0], Some("a pointer leads to another one"))]
    {
        let mut writer = Writer::new(false);
        writer.data = data.to_vec();
        writer.set("10.0.0.0/8", Slot::Data(0));
        let told = read(&writer.file(24), "a.a.a.a.a").unwrap_err();
        assert!(why.map_or(told.starts_with("no network has"), |why| told == damaged(why)), "{told}");
    }
    let mut writer = Writer::new(false);
    writer.data = [&[0x5f, 0xff, 0xff, 0xff][..], b"short"].concat();
    writer.set("10.0.0.0/8", Slot::Data(0));
    assert_eq!(read(&writer.file(24), "a").unwrap_err(), damaged("a value ends beyond the data"));
}

/// The tests of the program, and the fuzz target, begin with this file; `EQUIPOISE_ACCEPT=1` writes it.
#[test]
fn the_file_for_other_tests_is_what_is_written_here() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/mmdb/countries");
    let file = countries().file(28);
    if std::env::var_os("EQUIPOISE_ACCEPT").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, [b"\0".as_slice(), &file].concat()).unwrap();
    }
    assert!(std::fs::read(&path).unwrap()[1..] == file, "run it with EQUIPOISE_ACCEPT=1");
}
