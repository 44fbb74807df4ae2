//! What the answers of Consul come to: endpoints of the catalog, pairs of the store. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use config::file::EndpointSettings;
use model::{base64, limits};
use serde_json::Value;

use super::super::pairs::PAIRS_MAX;

/// Labels of an endpoint, and characters of one.
const LABELS_MAX: usize = 64;
const LABEL_CHARS_MAX: usize = 256;

/// Returns the endpoints without a critical check, and why others are left out. One with a warning has the weight for that.
pub(super) fn endpoints(list: &[Value]) -> (Vec<EndpointSettings>, Vec<String>) {
    let mut found: BTreeMap<SocketAddr, EndpointSettings> = BTreeMap::new();
    let mut problems = Vec::new();
    for entry in list {
        let checks = entry["Checks"].as_array().map_or(&[][..], Vec::as_slice);
        let has = |status: &str| checks.iter().any(|check| check["Status"] == status);
        if has("critical") || has("maintenance") {
            continue;
        }
        let (offer, node) = (&entry["Service"], &entry["Node"]);
        let address = match address_of(offer, node) {
            Ok(address) => address,
            Err(why) => {
                let named = [&offer["ID"], &node["Node"]].into_iter().find_map(Value::as_str).unwrap_or_default();
                problems.push(format!("the instance `{}` {why}", named.chars().take(100).collect::<String>()));
                continue;
            }
        };
        let mut endpoint = EndpointSettings::at(address.to_string());
        let weight = &offer["Weights"][if has("warning") { "Warning" } else { "Passing" }];
        endpoint.weight = weight.as_u64().map_or(1, |weight| weight.min(u64::from(limits::WEIGHT_MAX)) as u32);
        let meta = offer["Meta"].as_object().into_iter().flatten();
        let texts = meta.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let fits = |(name, value): &(String, String)| {
            !name.is_empty() && name.len() <= 64 && !value.is_empty() && value.chars().count() <= LABEL_CHARS_MAX
        };
        endpoint.labels = texts.filter(fits).take(LABELS_MAX).collect();
        found.entry(address).or_insert(endpoint);
    }
    (found.into_values().collect(), problems)
}

/// Returns where an instance is: its own address, or that of its node.
fn address_of(offer: &Value, node: &Value) -> Result<SocketAddr, String> {
    let mut texts = [&offer["Address"], &node["Address"]].into_iter().filter_map(Value::as_str);
    let text = texts.find(|text| !text.is_empty()).ok_or("has no address")?;
    let ip: IpAddr = text.parse().map_err(|_| {
        let text: String = text.chars().take(100).collect();
        format!("has the address `{text}`, which is not an IP address: host names are not resolved here")
    })?;
    let port = offer["Port"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    Ok(SocketAddr::new(ip, port.ok_or("has no port")?))
}

/// Returns the pairs behind the prefix.
pub(super) fn stored(list: &[Value], prefix: &str) -> Result<BTreeMap<String, Vec<u8>>, String> {
    if list.len() > PAIRS_MAX {
        return Err(format!("there are more than {PAIRS_MAX} keys below `{prefix}`"));
    }
    let mut pairs = BTreeMap::new();
    for entry in list {
        let Some(key) = entry["Key"].as_str().and_then(|key| key.strip_prefix(prefix)) else { continue };
        let value = base64::decode(entry["Value"].as_str().unwrap_or_default().as_bytes())
            .ok_or("the response is not base64")?;
        pairs.insert(key.to_owned(), value);
    }
    Ok(pairs)
}
