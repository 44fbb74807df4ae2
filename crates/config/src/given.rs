//! Endpoints that providers give, by a short way: where nothing can be wrong with them, no text is made, parsed and checked for the sake
//! of places to be reported. There may be a hundred thousand, and they are given again with each that comes or goes.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use model::limits;
use model::snapshot::Endpoint;
use serde_json::Value;

use crate::file::{self, EndpointSettings};
use crate::resolve::{placement_of, smaller};
use crate::tree::{Kind, Node};

/// Characters of a zone, as the schema has them.
const ZONE_CHARS_MAX: usize = 64;

/// Returns the endpoints if they are certainly valid, or `None` if only the full check can decide.
pub(crate) fn at_once(list: &[EndpointSettings]) -> Option<Arc<[Endpoint]>> {
    let mut seen = HashSet::with_capacity(list.len());
    let mut all = Vec::with_capacity(list.len());
    for settings in list {
        let address: SocketAddr = settings.address.parse().ok()?;
        if address.port() == 0 || !is_within_bounds(settings) || !seen.insert(address) {
            return None;
        }
        all.push(Endpoint {
            name: settings.address.as_str().into(),
            address: address.into(),
            weight: settings.weight,
            connections_max: smaller(settings.connections_max, settings.requests_max),
            queue_max: settings.queue_max.and_then(NonZeroU32::new),
            state: settings.state.into(),
            agent_port: settings.agent_port,
            placement: placement_of(settings).into(),
        });
    }
    let have_no_weight = !all.is_empty() && all.iter().all(|endpoint| endpoint.weight == 0);
    (!have_no_weight).then(|| all.into())
}

/// Returns the bounds that the schema has.
fn is_within_bounds(settings: &EndpointSettings) -> bool {
    let zone = settings.zone.as_ref().map_or(1, |zone| zone.chars().take(ZONE_CHARS_MAX + 1).count());
    settings.weight <= limits::WEIGHT_MAX
        && settings.priority <= limits::PRIORITY_MAX
        && (1..=ZONE_CHARS_MAX).contains(&zone)
        && settings.connections_max != Some(0)
        && settings.requests_max != Some(0)
        && settings.queue_max != Some(0)
        && settings.agent_port != Some(0)
}

/// Returns what a list says, and whether it says nothing that only the schema refuses. `None`: it is none of endpoints.
pub(crate) fn settings_in(list: &Node) -> Option<(Vec<EndpointSettings>, bool)> {
    let Kind::List(items) = &list.kind else { return None };
    let mut is_plain = true;
    let mut all = Vec::with_capacity(items.len());
    for item in items.iter() {
        all.push(match &item.kind {
            Kind::Scalar(scalar) => match scalar.value() {
                Value::String(address) => EndpointSettings::at(address),
                _ => return None,
            },
            Kind::List(_) | Kind::Invalid => return None,
            Kind::Map(_) => {
                // A key without a value is one too many for the schema, and none at all for types.
                is_plain &= item.entries().iter().all(|(_, node)| !node.to_value().is_null());
                serde_json::from_value::<file::Endpoint>(item.to_value()).ok()?.into()
            }
        });
    }
    Some((all, is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::EndpointState;
    use crate::host::Loader;

    fn with<T>(use_it: impl FnOnce(&Loader<'_>) -> T) -> T {
        let no_names = |_: &model::provider::NameLookup, _: &str, _: u16| Err(std::io::ErrorKind::Unsupported.into());
        use_it(&Loader {
            filters: &[],
            environment: &|_| None,
            resolve_host: &no_names,
            within: None,
            is_offline: false,
        })
    }

    fn endpoint(change: impl FnOnce(&mut EndpointSettings)) -> EndpointSettings {
        let mut settings = EndpointSettings::at("10.0.0.1:80");
        change(&mut settings);
        settings
    }

    #[test]
    fn what_is_right_is_the_same_by_the_short_way_and_by_the_long_one() {
        let right = [
            endpoint(|_| {}),
            endpoint(|one| {
                (one.address, one.weight, one.priority) =
                    ("[2001:db8::1]:443".into(), limits::WEIGHT_MAX, limits::PRIORITY_MAX);
            }),
            endpoint(|one| {
                (one.address, one.weight, one.backup) = ("10.0.0.2:80".into(), 0, true);
                (one.connections_max, one.requests_max, one.agent_port) = (Some(7), Some(5), Some(9));
                one.queue_max = Some(3);
                (one.state, one.zone) = (EndpointState::Drain, Some("é".repeat(ZONE_CHARS_MAX)));
                one.labels = [("version".to_owned(), "v2".to_owned()), (String::new(), String::new())].into();
            }),
        ];
        for list in [&right[..0], &right[..1], &right[..]] {
            let long = with(|loader| loader.endpoints_in_words("fleet", "site", list)).unwrap();
            assert_eq!(at_once(list), Some(long));
        }
    }

    #[test]
    fn what_is_wrong_is_left_to_the_long_way() {
        let wrong = [
            endpoint(|one| one.address = "name:80".into()),
            endpoint(|one| one.address = "10.0.0.1:0".into()),
            endpoint(|one| one.address = "unix:/run/app.sock".into()),
            endpoint(|one| one.weight = 0),
            endpoint(|one| one.weight = limits::WEIGHT_MAX + 1),
            endpoint(|one| one.priority = limits::PRIORITY_MAX + 1),
            endpoint(|one| one.connections_max = Some(0)),
            endpoint(|one| one.requests_max = Some(0)),
            endpoint(|one| one.queue_max = Some(0)),
            endpoint(|one| one.agent_port = Some(0)),
            endpoint(|one| one.zone = Some(String::new())),
            endpoint(|one| one.zone = Some("z".repeat(ZONE_CHARS_MAX + 1))),
        ];
        for one in wrong {
            let list = [one];
            assert_eq!(at_once(&list), None, "{list:?}");
            assert!(with(|loader| loader.endpoints("fleet", "site", &list)).is_err(), "{list:?}");
        }
        assert_eq!(at_once(&[endpoint(|_| {}), endpoint(|_| {})]), None, "it stands there twice");
    }

    #[test]
    fn a_hundred_thousand_endpoints_of_one_key_are_within_bounds() {
        let address = |n: u32| format!("10.{}.{}.{}:80", n >> 16, (n >> 8) & 255, n & 255);
        let list: Vec<EndpointSettings> = (0..100_000).map(|n| EndpointSettings::at(address(n))).collect();
        let found = with(|loader| loader.endpoints("fleet", "site", &list));
        assert_eq!(found.map(|found| found.len()), Ok(100_000));
    }

    #[test]
    fn a_text_of_endpoints_alone_is_taken_as_the_schema_has_it() {
        let read = |text: &str| with(|loader| loader.endpoints_alone(text, false));
        let found =
            read("endpoints: { site: ['10.0.0.1:80', { address: '10.0.0.2:80', weight: 3 }], none: [] }").unwrap();
        let site: Vec<_> = found["site"].iter().map(|one| (one.address.as_str(), one.weight)).collect();
        assert_eq!((site, found["none"].len()), (vec![("10.0.0.1:80", 1), ("10.0.0.2:80", 3)], 0));
        for wrong in [
            "",
            "nowhere",
            "5",
            "{ address: '10.0.0.1:80', zone: }",
            "{ address: '10.0.0.1:80', weight: '3' }",
            "[]",
            "['10.0.0.1:80', 5]",
            "{}",
        ] {
            assert_eq!(read(&format!("endpoints: {{ site: [{wrong}, '10.0.0.9:80'] }}")), None, "{wrong}");
        }
        assert_eq!(read("endpoints: { site: }"), None);
    }
}
