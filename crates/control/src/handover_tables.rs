//! Tables of counters, for the process that follows.
//!
//! Entries of a table are one text of hexadecimal digits, for there may be many: of each the length of its key (one byte), its key, how
//! many milliseconds it was idle, and its values, in eight bytes each. Those of longer keys are a text of their own: of each the hash of
//! its key (eight bytes), and the same of what is kept of the key. The key of the hash goes with them.

use std::time::{Duration, Instant};

use plan::Plan;
use plan::table::{Handed, Table};
use serde_json::{Map, Value, json};

use crate::chance::chance;
use crate::handover::{from_hex, to_hex};

/// Entries of all tables that are handed over. Tables share this room, and those of a table that were counted last go first.
const ENTRIES_MAX: usize = 500_000;

/// Returns the entries of tables; with `since`, those that were counted in this last time.
pub fn of_tables(plan: &Plan, now: Instant, since: Option<Duration>) -> Value {
    // A moment more, which either clock may have been behind.
    let since = since.map_or(Duration::MAX, |since| since + Duration::from_millis(100));
    let mut room = ENTRIES_MAX;
    let mut tables = Map::new();
    // What a small table leaves of its share goes to the larger ones after it.
    let mut by_size: Vec<_> = plan.tables.iter().collect();
    by_size.sort_by_key(|table| table.entries());
    for (place, table) in by_size.iter().enumerate() {
        let share = room / (by_size.len() - place);
        let handed = table.hand_over(share, since, now);
        room -= handed.len();
        let (mut whole, mut in_part) = (Vec::new(), Vec::new());
        for one in &handed {
            let bytes = match one.hash {
                None => &mut whole,
                Some(hash) => {
                    in_part.extend(hash.to_be_bytes());
                    &mut in_part
                }
            };
            bytes.push(one.key.len() as u8);
            bytes.extend(&one.key);
            bytes.extend((one.idle.as_millis() as u64).to_be_bytes());
            one.values.iter().for_each(|value| bytes.extend(value.to_be_bytes()));
        }
        let told = json!({
            "shape": table.shape(),
            "is_whole": handed.len() < share,
            "entries": to_hex(&whole),
            "in_part": to_hex(&in_part),
            "hash_key": table.hash_key().map(|key| write_hash_key(&key)),
        });
        tables.insert(table.name().to_string(), told);
    }
    tables.into()
}

/// Takes over the entries that [`of_tables`] returned. Returns whether all tables that are replicated have come whole.
pub fn inherit_tables(plan: &Plan, told: &Value, now: Instant) -> bool {
    let mut is_whole = true;
    for table in &plan.tables {
        let told = &told[table.name().as_str()];
        let is_same = told["shape"].as_str() == Some(&table.shape());
        is_whole &= !table.is_replicated() || is_same && told["is_whole"] == true;
        if !is_same {
            continue;
        }
        let bytes = |name: &str| told[name].as_str().and_then(from_hex).unwrap_or_default();
        let mut handed = read(&bytes("entries"), table, false);
        handed.extend(read(&bytes("in_part"), table, true));
        // Of two that want one place, the one that was counted last is to have it.
        handed.sort_by_key(|one| one.idle);
        table.inherit((&handed, read_hash_key(&told["hash_key"])), now, &mut chance);
    }
    is_whole
}

/// Writes the key of hashes.
pub(crate) fn write_hash_key(key: &[u64; 2]) -> String {
    to_hex(key.map(u64::to_be_bytes).as_flattened())
}

/// The reverse of [`write_hash_key`].
pub(crate) fn read_hash_key(told: &Value) -> Option<[u64; 2]> {
    let bytes = from_hex(told.as_str()?)?;
    let (first, second) = bytes.split_at_checked(8)?;
    Some([u64::from_be_bytes(first.try_into().ok()?), u64::from_be_bytes(second.try_into().ok()?)])
}

/// Reads as many entries as are whole, but no more than are ever handed over.
fn read(mut bytes: &[u8], table: &Table, is_in_part: bool) -> Vec<Handed> {
    // Open connections are those of each process, and not handed over.
    let counters = table.settings().counters.iter().filter(|counter| !counter.is_level()).count();
    let count = counters + table.settings().rates.len();
    let mut all = Vec::new();
    while let Some((one, rest)) = read_one(bytes, count, is_in_part).filter(|_| all.len() < ENTRIES_MAX) {
        all.push(one);
        bytes = rest;
    }
    all
}

fn read_one(mut bytes: &[u8], count: usize, is_in_part: bool) -> Option<(Handed, &[u8])> {
    let mut hash = None;
    if is_in_part {
        let (eight, rest) = bytes.split_first_chunk::<8>()?;
        (hash, bytes) = (Some(u64::from_be_bytes(*eight)), rest);
    }
    let (length, rest) = bytes.split_first()?;
    let (key, rest) = rest.split_at_checked(usize::from(*length))?;
    let (idle, rest) = rest.split_first_chunk::<8>()?;
    let (values, rest) = rest.split_at_checked(8 * count)?;
    let (values, _) = values.as_chunks::<8>();
    let idle = Duration::from_millis(u64::from_be_bytes(*idle));
    let values = values.iter().map(|eight| u64::from_be_bytes(*eight)).collect();
    Some((Handed { key: key.to_vec(), hash, idle, values }, rest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::table::{Counter, Reading, TableKey};

    use super::*;

    fn plan() -> Plan {
        let settings = model::table::Table {
            name: "abuse".into(),
            key: TableKey::Header("x-api-key".to_owned()),
            keys_max: 100,
            expire: Duration::from_secs(60),
            counters: vec![Counter::OpenConnections, Counter::Requests],
            rates: vec![(Counter::Errors, Duration::from_secs(10))],
            is_replicated: false,
        };
        let table = Arc::new(Table::compile(&Arc::new(settings), None).unwrap());
        Plan { tables: vec![table], ..Plan::default() }
    }

    #[test]
    fn what_was_counted_is_taken_over_and_rubbish_is_not() {
        let (before, after, now) = (plan(), plan(), Instant::now());
        before.tables[0].count(b"ann", &[(Counter::Requests, 7), (Counter::Errors, 2)], now, &mut || 7);
        before.tables[0].count(b"", &[(Counter::Requests, 1)], now, &mut || 7);
        let long = [b'k'; 300];
        before.tables[0].count(&long, &[(Counter::Requests, 9)], now, &mut || 7);
        let told = of_tables(&before, now, None);
        inherit_tables(&after, &told, now);
        let get = |key: &[u8], is_rate| {
            let counter = if is_rate { Counter::Errors } else { Counter::Requests };
            after.tables[0].get(key, Reading { counter, is_rate }, now)
        };
        assert_eq!((get(b"ann", false), get(b"ann", true), get(b"", false), get(&long, false)), (7, 2, 1, 9));
        for part in ["entries", "in_part", "hash_key"] {
            let text = told["abuse"][part].as_str().unwrap();
            for cut in 0..text.len() {
                let (mut broken, after) = (told.clone(), plan());
                broken["abuse"][part] = text[..cut].into();
                inherit_tables(&after, &broken, now);
                assert!(after.tables[0].entries() < 3, "{part} {cut}");
            }
        }
        for strange in [json!(null), json!([]), json!({ "abuse": 7 }), json!({ "abuse": { "entries": "ff" } })] {
            inherit_tables(&plan(), &strange, now);
        }
        let mut other = told.clone();
        other["abuse"]["shape"] = "another".into();
        let empty = plan();
        inherit_tables(&empty, &other, now);
        assert_eq!(empty.tables[0].entries(), 0);
        assert_eq!(of_tables(&before, now, Some(Duration::ZERO)), told);
    }
}
