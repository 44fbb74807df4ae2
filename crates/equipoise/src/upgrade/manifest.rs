//! What is said of sockets beside the descriptors themselves.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use control::handover::{from_hex, to_hex};
use model::{Address, Name};
use proxy::Transport;
use proxy::handover::{Flow, Inherited, Place, QuicHandover, TicketHandover, TicketKey};
use serde_json::{Value, json};

/// Sockets as the new process is told of them, and their descriptors in the same order.
pub(crate) fn write(sockets: Vec<Inherited>) -> (Value, Vec<OwnedFd>) {
    let mut descriptors = Vec::new();
    let mut list = Vec::new();
    for one in sockets {
        list.push(json!({
            "listener": one.name.as_ref().map(Name::as_str),
            "transport": one.transport.as_str(),
            "bind": one.bind.to_string(),
            "address": one.address.to_string(),
            "made": one.made,
            "descriptors": one.sockets.len(),
            "ways": one.ways.len(),
            "quic": one.quic.as_ref().map(write_quic),
        }));
        descriptors.extend(one.sockets);
        descriptors.extend(one.ways);
    }
    (list.into(), descriptors)
}

/// The reverse of [`write()`]; what it does not know is closed. Takes its descriptors from the front.
pub(crate) fn read(list: &Value, descriptors: &mut VecDeque<OwnedFd>) -> Vec<Inherited> {
    let mut sockets = Vec::new();
    for one in list.as_array().into_iter().flatten() {
        let mut next = |key: &str| -> Vec<OwnedFd> {
            let count = one[key].as_u64().map_or(0, |count| count as usize).min(descriptors.len());
            descriptors.drain(..count).collect()
        };
        let (own, ways) = (next("descriptors"), next("ways"));
        let address = |key: &str| one[key].as_str().and_then(|text| text.parse::<Address>().ok());
        let transport = one["transport"].as_str().and_then(transport);
        let (Some(transport), Some(bind), Some(address)) = (transport, address("bind"), address("address")) else {
            continue;
        };
        if own.is_empty() {
            continue;
        }
        let name = one["listener"].as_str().map(Name::from);
        let made = serde_json::from_value(one["made"].clone()).ok();
        let quic = read_quic(&one["quic"]);
        let is_activated = false;
        sockets.push(Inherited { name, transport, bind, address, sockets: own, made, ways, quic, is_activated });
    }
    sockets
}

fn write_quic(quic: &QuicHandover) -> Value {
    json!({ "ids": quic.ids, "resets": to_hex(&quic.resets), "process": quic.process })
}

fn read_quic(told: &Value) -> Option<QuicHandover> {
    let ids = serde_json::from_value(told["ids"].clone()).ok()?;
    let process = u8::try_from(told["process"].as_u64()?).ok()?;
    Some(QuicHandover { ids, resets: told["resets"].as_str().and_then(from_hex)?, process })
}

/// Keys of session tickets, and the secret behind tokens of QUIC.
pub(crate) fn write_secrets((tickets, tokens): &(Vec<TicketHandover>, Vec<u8>)) -> Value {
    let key = |key: &TicketKey| json!([to_hex(&key.name), to_hex(&key.secret), key.age.as_secs()]);
    let ticket = |one: &TicketHandover| {
        let keys: Value = one.keys.iter().map(key).collect();
        json!({ "listener": one.listener, "proof": to_hex(&one.proof), "keys": keys })
    };
    let tickets: Value = tickets.iter().map(ticket).collect();
    json!({ "tickets": tickets, "tokens": to_hex(tokens) })
}

/// The reverse of [`write_secrets`].
pub(crate) fn read_secrets(told: &Value) -> (Vec<TicketHandover>, Vec<u8>) {
    let bytes = |told: &Value| told.as_str().and_then(from_hex);
    let key = |one: &Value| {
        let (name, secret) = (bytes(&one[0])?.try_into().ok()?, bytes(&one[1])?.try_into().ok()?);
        Some(TicketKey { name, secret, age: Duration::from_secs(one[2].as_u64()?) })
    };
    let ticket = |one: &Value| {
        let keys = one["keys"].as_array().into_iter().flatten().filter_map(key).collect();
        Some(TicketHandover { listener: one["listener"].as_str()?.to_owned(), proof: bytes(&one["proof"])?, keys })
    };
    let tickets = told["tickets"].as_array().into_iter().flatten().filter_map(ticket).collect();
    (tickets, bytes(&told["tokens"]).unwrap_or_default())
}

/// Flows of the old process.
pub(crate) fn write_flows(flows: &[Flow]) -> Value {
    let flow =
        |((name, transport), port, envelope): &Flow| json!([name.as_str(), transport.as_str(), port, to_hex(envelope)]);
    flows.iter().map(flow).collect()
}

/// The reverse of [`write_flows`].
pub(crate) fn read_flows(list: &Value) -> Vec<Flow> {
    let flow = |one: &Value| {
        let place = (Name::from(one[0].as_str()?), transport(one[1].as_str()?)?);
        Some((place, u32::try_from(one[2].as_u64()?).ok()?, from_hex(one[3].as_str()?)?))
    };
    list.as_array().into_iter().flatten().filter_map(flow).collect()
}

/// The sockets that the new process has taken over.
pub(crate) fn write_taken(places: &[Place]) -> Value {
    places.iter().map(|(name, transport)| json!([name.as_str(), transport.as_str()])).collect()
}

/// The reverse of [`write_taken`].
pub(crate) fn read_taken(list: &Value) -> Vec<Place> {
    let place = |one: &Value| Some((Name::from(one[0].as_str()?), transport(one[1].as_str()?)?));
    list.as_array().into_iter().flatten().filter_map(place).collect()
}

fn transport(text: &str) -> Option<Transport> {
    Transport::ALL.into_iter().find(|transport| transport.as_str() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()
    }

    #[test]
    fn secrets_are_told_and_read_back() {
        let keys = vec![TicketKey { name: [3; 16], secret: [9; 32], age: Duration::from_secs(60) }];
        let tickets = vec![TicketHandover { listener: "web".into(), proof: vec![1, 2], keys }];
        let secrets = (tickets, vec![5; 64]);
        assert_eq!(read_secrets(&write_secrets(&secrets)), secrets);
        let strange = json!({ "tickets": [7, { "listener": "a", "proof": "zz" }, { "listener": "a", "proof": "00", "keys": [["00"]] }] });
        let (tickets, tokens) = read_secrets(&strange);
        assert!(tickets.iter().all(|one| one.keys.is_empty()) && tokens.is_empty());
    }

    /// Says which one it was when a test fails with it.
    struct Seed(u64);

    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("with the seed {}", self.0);
            }
        }
    }

    /// Puts something strange in the place of a part that chance chooses.
    fn spoil(told: &mut Value, random: &mut plan::Random) {
        let strange =
            ["null", "-1", "18446744073709551615", "1e300", "\"\"", "\"0g\"", "[]", "{}", "[[7]]", "{\"a\":{}}"];
        let inner: Vec<&mut Value> = match told {
            Value::Array(list) => list.iter_mut().collect(),
            Value::Object(map) => map.values_mut().collect(),
            _ => Vec::new(),
        };
        let chosen = random.below(inner.len() as u64 + 1) as usize;
        match inner.into_iter().nth(chosen) {
            Some(one) => spoil(one, random),
            None => *told = serde_json::from_str(strange[random.below(strange.len() as u64) as usize]).unwrap(),
        }
    }

    #[test]
    fn whatever_an_old_process_tells_of_what_it_has_is_read_or_passed_over() {
        let key = TicketKey { name: [3; 16], secret: [9; 32], age: Duration::from_secs(60) };
        let tickets = vec![TicketHandover { listener: "web".into(), proof: vec![1, 2], keys: vec![key] }];
        let socket_told = json!({
            "listener": "web", "transport": "quic", "bind": "127.0.0.1:80", "address": "127.0.0.1:80", "made": [1, 2, 3],
            "descriptors": 1, "ways": 1, "quic": { "ids": [1, 2], "resets": "00", "process": 1 },
        });
        let handed = control::ConfigurationHandover {
            generation: 7,
            refused: 1,
            desired: Some(<_>::default()),
            ..<_>::default()
        };
        let good = json!({
            "sockets": [socket_told, socket_told],
            "secrets": write_secrets(&(tickets, vec![5; 64])),
            "flows": write_flows(&[(("a".into(), Transport::Datagram), 3, vec![1, 255])]),
            "taken": write_taken(&[("a".into(), Transport::Stream)]),
            "past": serde_json::to_value(handed).unwrap(),
        });
        for seed in 0..2_000 {
            let (_seed, mut random, mut told) = (Seed(seed), plan::Random::new(seed), good.clone());
            (0..=random.below(4)).for_each(|_| spoil(&mut told, &mut random));
            let mut descriptors: VecDeque<OwnedFd> = [socket(), socket(), socket()].into();
            let sockets = read(&told["sockets"], &mut descriptors);
            let given: usize = sockets.iter().map(|one| one.sockets.len() + one.ways.len()).sum();
            assert!(given + descriptors.len() <= 3 && sockets.iter().all(|one| !one.sockets.is_empty()));
            let (tickets, tokens) = read_secrets(&told["secrets"]);
            assert!(tickets.len() <= 1 && tokens.len() <= 64);
            assert!(read_flows(&told["flows"]).len() <= 1 && read_taken(&told["taken"]).len() <= 1);
            // It is refused, or can be followed.
            drop(serde_json::from_value::<control::ConfigurationHandover>(told["past"].clone()));
        }
    }

    #[test]
    fn sockets_are_told_and_read_back_and_what_is_not_known_is_passed_over() {
        let sockets = ["a", "b"].map(|name| Inherited {
            name: Some(name.into()),
            transport: Transport::Stream,
            bind: "127.0.0.1:0".parse().unwrap(),
            address: "unix:/run/x".parse().unwrap(),
            sockets: vec![socket(), socket()],
            made: Some([0o660, 1, 2]),
            ways: vec![socket()],
            quic: Some(QuicHandover { ids: [1, u64::MAX], resets: vec![7; 64], process: 255 }),
            is_activated: false,
        });
        let (mut told, descriptors) = write(sockets.into());
        told[0]["transport"] = "pigeon".into();
        told[1]["colour"] = "green".into();
        let mut descriptors = descriptors.into();
        let read = read(&told, &mut descriptors);
        assert!(descriptors.is_empty(), "those of the pigeon are closed");
        let [one] = &read[..] else { panic!("{read:?}") };
        assert_eq!((one.name.as_deref(), one.sockets.len(), one.made), (Some("b"), 2, Some([0o660, 1, 2])));
        assert_eq!((one.address.to_string().as_str(), one.ways.len()), ("unix:/run/x", 1));
        assert_eq!(
            one.quic.as_ref().map(|quic| (quic.ids, quic.resets.len(), quic.process)),
            Some(([1, u64::MAX], 64, 255))
        );
        let flows = vec![(("a".into(), Transport::Datagram), 3, vec![1, 255])];
        assert_eq!(read_flows(&write_flows(&flows)), flows);
        assert!(read_flows(&json!([["a", "datagram", -1, "00"], ["a", "datagram", 1, "0"], 7])).is_empty());
        for nonsense in ["null", "7", "[7]", "[{\"descriptors\": 9}]", "{\"a\": []}"] {
            let nonsense = serde_json::from_str(nonsense).unwrap();
            assert!(super::read(&nonsense, &mut VecDeque::new()).is_empty(), "{nonsense}");
        }
        let places = vec![("a".into(), Transport::Stream), ("a".into(), Transport::Quic)];
        assert_eq!(read_taken(&write_taken(&places)), places);
        assert!(read_taken(&json!([["a"], 7, ["a", "pigeon"]])).is_empty());
    }
}
