//! What a list of containers comes to: endpoints and routes from their labels. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use config::file::EndpointSettings;
use model::limits;
use model::provider::DockerProvider;
use serde_json::{Map, Value, json};

use crate::given::{State, Text};
use crate::loader::without_names;

/// What labels behind the prefix are called, but for those that become labels of the endpoint.
const LABELS: [&str; 10] = [
    "enable",
    "cluster",
    "port",
    "network",
    "weight",
    "priority",
    "zone",
    "route.host",
    "route.path",
    "health_check.path",
];
/// The name that Compose gives to what a container is of.
pub(super) const COMPOSE: &str = "com.docker.compose.service";

/// A container with its labels behind the prefix.
struct Container<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    whole: &'a Value,
}

/// What was found when containers were read last.
#[derive(Default)]
pub(super) struct Checked {
    /// Texts that labels made, and what is wrong with each by itself.
    faults: HashMap<String, Option<String>>,
    /// By cluster the text of its routes.
    routed: BTreeMap<String, String>,
}

impl Checked {
    /// Begins with the texts of a state: they are the routes, by cluster.
    pub(super) fn after(state: &State) -> Self {
        let routed = state.texts.iter().map(|text| (text.name.clone(), text.text.clone())).collect();
        Self { routed, ..Self::default() }
    }
}

/// What one container comes to.
struct Found {
    endpoint: Result<Option<EndpointSettings>, String>,
    /// Its routes, if it has any.
    text: Option<String>,
}

/// Returns the state that these containers make, and why some are left out.
pub(super) fn read(
    list: &[Value],
    settings: &DockerProvider,
    provider: &str,
    checked: &mut Checked,
) -> (State, Vec<String>) {
    let mut problems = Vec::new();
    let mut containers: Vec<Container<'_>> =
        list.iter().filter_map(|whole| container(whole, settings, &mut problems)).collect();
    containers.sort_by_key(|container| container.name);
    let mut before = std::mem::take(checked);
    let found: Vec<Found> = containers
        .iter()
        .map(|container| {
            note_strange(container, &settings.prefix, &mut problems);
            let text = routing(cluster_of(container), provider, &container.labels).map(|text| text.to_string());
            let fault = text.as_ref().and_then(|text| {
                let fault = |text: &String| before.faults.remove(text).unwrap_or_else(|| fault_of(provider, text));
                checked.faults.entry(text.clone()).or_insert_with_key(fault).clone()
            });
            let endpoint = endpoint(container, settings);
            Found { endpoint: fault.map_or(endpoint, Err), text }
        })
        .collect();
    let routed = routes(&containers, &found, &before.routed);
    let mut state = State { by_parts: true, ..State::default() };
    let mut addresses: HashSet<(&str, String)> = HashSet::new();
    for (container, Found { endpoint, text }) in containers.iter().zip(found) {
        let cluster = cluster_of(container);
        let endpoint = match endpoint {
            Ok(endpoint) => endpoint,
            Err(why) => {
                problems.push(format!("{}: {why}", container.name));
                continue;
            }
        };
        if let (Some(text), Some((first, known))) = (text, routed.get(cluster))
            && text != *known
        {
            problems.push(format!("{}: its routes to `{cluster}` differ from those of {first}", container.name));
            continue;
        }
        // It is known, and there is nothing to be reached now: its cluster stays.
        let known = state.endpoints.entry(cluster.to_owned()).or_default();
        known.extend(endpoint.filter(|endpoint| addresses.insert((cluster, endpoint.address.clone()))));
    }
    checked.routed = routed.into_iter().map(|(cluster, (_, text))| (cluster.to_owned(), text)).collect();
    let text = |(name, text): (&String, &String)| Text { name: name.clone(), text: text.clone(), ..Text::default() };
    state.texts = checked.routed.iter().map(text).collect();
    (state, problems)
}

/// By cluster the routes to it, and whose they are: those that it had `before`, as long as a container that gets work has them; else of
/// the first that gets work; else of any. So one that has just begun takes nothing from those that are there.
fn routes<'a>(
    containers: &[Container<'a>],
    found: &[Found],
    before: &BTreeMap<String, String>,
) -> BTreeMap<&'a str, (&'a str, String)> {
    let mut routed: BTreeMap<&str, ((bool, bool), &str, &String)> = BTreeMap::new();
    for (container, found) in containers.iter().zip(found) {
        let (Ok(endpoint), Some(text)) = (&found.endpoint, &found.text) else { continue };
        let cluster = cluster_of(container);
        let rank = (endpoint.is_none(), before.get(cluster) != Some(text));
        if routed.get(cluster).is_none_or(|(first, ..)| rank < *first) {
            routed.insert(cluster, (rank, container.name, text));
        }
    }
    routed.into_iter().map(|(cluster, (_, name, text))| (cluster, (name, text.clone()))).collect()
}

/// Returns what is wrong with a text of routes by itself, as a fault of the labels that made it.
fn fault_of(provider: &str, text: &str) -> Option<String> {
    let found = without_names(|loader| config::fault_of_provided(loader, provider, text))?;
    Some(format!("its labels do not form a route: {}", found.message))
}

/// Notes labels behind the prefix that mean nothing.
fn note_strange(container: &Container<'_>, prefix: &str, problems: &mut Vec<String>) {
    for label in container.labels.keys().filter(|label| !LABELS.contains(label) && !label.starts_with("label.")) {
        let mend = config::did_you_mean(label, LABELS).map(|mend| format!(" ({mend})")).unwrap_or_default();
        problems.push(format!("{}: there is no label `{prefix}.{label}`, it is ignored{mend}", container.name));
    }
}

fn container<'a>(whole: &'a Value, settings: &DockerProvider, problems: &mut Vec<String>) -> Option<Container<'a>> {
    let name = name_of(whole)?;
    let of_ours = |label: &'a str| label.strip_prefix(settings.prefix.as_str())?.strip_prefix('.');
    let all = whole["Labels"].as_object().into_iter().flatten();
    let labels: BTreeMap<&str, &str> =
        all.filter_map(|(label, value)| Some((of_ours(label)?, value.as_str()?))).collect();
    let is_wanted = match labels.get("enable").copied() {
        None => settings.all,
        Some(text @ ("true" | "false")) => text == "true",
        Some(text) => {
            problems.push(format!("{name}: `{}.enable` is {text:?}, neither \"true\" nor \"false\"", settings.prefix));
            false
        }
    };
    is_wanted.then_some(Container { name, labels, whole })
}

/// Returns its own name. Containers that link to it add names such as `/other/alias`, in any order.
fn name_of(whole: &Value) -> Option<&str> {
    let names = whole["Names"].as_array().into_iter().flatten();
    names.filter_map(|name| Some(name.as_str()?.trim_start_matches('/'))).find(|name| !name.contains('/'))
}

/// Returns its label, what Compose says, or its name.
fn cluster_of<'a>(container: &Container<'a>) -> &'a str {
    let composed = || container.whole["Labels"][COMPOSE].as_str();
    container.labels.get("cluster").copied().or_else(composed).unwrap_or(container.name)
}

/// Returns its endpoint, or `None` if it must get no work now.
fn endpoint(container: &Container<'_>, settings: &DockerProvider) -> Result<Option<EndpointSettings>, String> {
    // One that is not running has no ports and no address.
    if container.whole["State"] != "running" {
        return Ok(None);
    }
    let port = port(container)?;
    if !is_healthy(container.whole) {
        return Ok(None);
    }
    let address = SocketAddr::new(address(container, settings)?, port);
    let mut endpoint = EndpointSettings::at(address.to_string());
    let number = |label: &str, max: u32| match container.labels.get(label) {
        None => Ok(None),
        Some(text) => match text.parse::<u32>() {
            Ok(number) if number <= max => Ok(Some(number)),
            _ => Err(format!("`{}.{label}` is {text:?}, not a number up to {max}", settings.prefix)),
        },
    };
    endpoint.weight = number("weight", limits::WEIGHT_MAX)?.unwrap_or(1);
    endpoint.priority = number("priority", limits::PRIORITY_MAX)?.unwrap_or(0);
    endpoint.zone = container.labels.get("zone").map(|zone| (*zone).to_owned());
    let labels = container.labels.iter().filter_map(|(label, value)| Some((label.strip_prefix("label.")?, value)));
    endpoint.labels = labels.map(|(label, value)| (label.to_owned(), (*value).to_owned())).collect();
    if endpoint.zone.is_some() || !endpoint.labels.is_empty() {
        // By the code that reads whole lists. That all of one have no weight is nothing that one of them is told of.
        let alone = [EndpointSettings { weight: endpoint.weight.max(1), ..endpoint.clone() }];
        let wrong = without_names(|loader| loader.endpoints("", "", &alone)).err();
        if let Some(first) = wrong.and_then(|wrong| wrong.list.into_iter().next()) {
            return Err(first.message);
        }
    }
    Ok(Some(endpoint))
}

/// Returns the port of its label, or the only one that its image exposes.
fn port(container: &Container<'_>) -> Result<u16, String> {
    if let Some(text) = container.labels.get("port") {
        return text.parse().ok().filter(|port| *port > 0).ok_or(format!("{text:?} is not a port"));
    }
    let ports = container.whole["Ports"].as_array().into_iter().flatten();
    let mut ports: Vec<u64> =
        ports.filter(|port| port["Type"] == "tcp").filter_map(|port| port["PrivatePort"].as_u64()).collect();
    ports.sort_unstable();
    ports.dedup();
    match ports[..] {
        [port] => u16::try_from(port).ok().filter(|port| *port > 0).ok_or(format!("{port} is not a port")),
        [] => Err("it exposes no port, and no label sets one".to_owned()),
        _ => Err("it exposes several ports, and no label selects one".to_owned()),
    }
}

/// Returns whether a running container is not reported as unhealthy or still starting.
fn is_healthy(whole: &Value) -> bool {
    let status = whole["Status"].as_str().unwrap_or_default();
    !status.contains("(unhealthy)") && !status.contains("(health: starting)")
}

/// Returns its address in the network of its label or of the settings, or in its only one.
fn address(container: &Container<'_>, settings: &DockerProvider) -> Result<IpAddr, String> {
    let empty = Map::new();
    let networks = container.whole["NetworkSettings"]["Networks"].as_object().unwrap_or(&empty);
    // Podman tells no mode.
    let mode = container.whole["HostConfig"]["NetworkMode"].as_str().unwrap_or_default();
    if mode == "host" || networks.contains_key("host") {
        // It is where the engine is: on this machine, as far as a socket tells.
        return Ok(IpAddr::from([127, 0, 0, 1]));
    }
    if mode.starts_with("container:") {
        return Err("it shares the network of another container: put the labels there".to_owned());
    }
    let ip = |network: &Value| {
        let texts = [&network["IPAddress"], &network["GlobalIPv6Address"]];
        texts.iter().find_map(|text| text.as_str()?.parse::<IpAddr>().ok())
    };
    let wanted = container.labels.get("network").copied().or(settings.network.as_deref());
    if let Some(wanted) = wanted {
        let network = networks.get(wanted).ok_or(format!("it is not in the network `{wanted}`"))?;
        return ip(network).ok_or(format!("it has no address in the network `{wanted}`"));
    }
    let found: Vec<IpAddr> = networks.values().filter_map(ip).collect();
    match found[..] {
        [ip] => Ok(ip),
        [] => Err("it has no address in any network".to_owned()),
        _ => Err("it is in several networks, and no label selects one".to_owned()),
    }
}

/// Returns a cluster with its route, if labels ask for one.
fn routing(cluster: &str, provider: &str, labels: &BTreeMap<&str, &str>) -> Option<Value> {
    let (host, path) = (labels.get("route.host"), labels.get("route.path"));
    if host.is_none() && path.is_none() {
        return None;
    }
    let mut matches = Map::new();
    matches.extend(host.map(|host| ("host".to_owned(), json!(host))));
    matches.extend(path.map(|path| ("path".to_owned(), json!({ "prefix": path }))));
    let mut settings = json!({ "endpoints": { "from": provider, "key": cluster } });
    if let Some(path) = labels.get("health_check.path") {
        settings["health_check"] = json!({ "http": { "path": path } });
    }
    let route = json!({ "name": format!("{provider}-{cluster}"), "match": matches, "cluster": cluster });
    Some(json!({ "clusters": { cluster: settings }, "routes": [route] }))
}
