//! Endpoints and routes from the labels of containers, by the API of the engine.
//!
//! ```text
//!  open the stream of events ─▶ list containers ─▶ state ─▶ an event, or long silence ─┐
//!                                    ▲                                                  │
//!                                    └──────────────── a moment for more ◀──────────────┘
//! ```
//! Paths carry no version: the engine answers as its newest does, and what is read is there since 1.24.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use config::file::EndpointSettings;
use model::limits;
use model::provider::DockerProvider;
use serde_json::{Map, Value, json};

use super::Sink;
use super::backoff::backoff;
use super::client::{Client, Request, Response};
use crate::given::{State, Text};
use crate::loader::without_names;

/// Bytes of a list of containers.
const BYTES_MAX: u64 = 64 << 20;
const CONTAINERS_MAX: usize = 10_000;
/// Several events that come together are one change.
const GATHERED_FOR: Duration = Duration::from_millis(50);
/// A stream that says nothing for so long may be dead: everything is asked for again.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// An engine that does not begin its stream of events so soon is asked for its containers meanwhile.
const HEAD_WAIT: Duration = Duration::from_millis(500);
/// What changes which containers can be reached.
const EVENTS: [&str; 9] =
    ["start", "die", "destroy", "pause", "unpause", "health_status", "connect", "disconnect", "rename"];
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
const COMPOSE: &str = "com.docker.compose.service";

/// Lists and watches containers.
pub(super) async fn run(settings: DockerProvider, sink: Sink) {
    let mut failures = 0;
    let mut checked = Checked::after(&sink.known());
    loop {
        let mut has_listed = false;
        let ended = follow((&settings, &mut checked), &sink, &mut has_listed).await;
        if has_listed {
            failures = 0;
        }
        if let Err(why) = ended {
            sink.failed(&why);
            failures += 1;
            tokio::time::sleep(backoff(failures, sink.name())).await;
        }
    }
}

/// `Ok`: it is time to begin anew.
async fn follow(
    (settings, checked): (&DockerProvider, &mut Checked),
    sink: &Sink,
    has_listed: &mut bool,
) -> Result<(), String> {
    let client = Client::new(&settings.origin)?;
    let filters = json!({ "type": ["container", "network"], "event": EVENTS }).to_string();
    let path = format!("/events?filters={}", encoded(&filters));
    let mut opening = Box::pin(open(&client, &path));
    // Docker answers at once, Podman with its first event.
    let mut events = match tokio::time::timeout(HEAD_WAIT, &mut opening).await {
        Ok(opened) => Some(opened?),
        Err(_) => None,
    };
    loop {
        let (state, problems) = read(&list(&client, settings).await?, settings, sink.name(), checked);
        *has_listed = true;
        sink.send(state);
        sink.leave_out(problems);
        let event = async {
            match &mut events {
                Some(stream) => stream.chunk().await?.map(drop).ok_or_else(|| "the stream of events ended".to_owned()),
                none => {
                    *none = Some(opening.as_mut().await?);
                    // What changed since the list is not among its events.
                    Ok(())
                }
            }
        };
        match tokio::time::timeout(SILENCE_MAX, event).await {
            Err(_) => return Ok(()),
            Ok(event) => event?,
        }
        tokio::time::sleep(GATHERED_FOR).await;
    }
}

/// The stream of events.
async fn open(client: &Client, path: &str) -> Result<Response, String> {
    let events = client.ask(Request { method: "GET", path, ..Request::default() }).await?;
    if events.status == 200 { Ok(events) } else { Err(format!("status {} for events", events.status)) }
}

async fn list(client: &Client, settings: &DockerProvider) -> Result<Vec<Value>, String> {
    // Whatever it says: what is neither `true` nor `false` is told.
    let label = format!("{}.enable", settings.prefix);
    let path = match settings.all {
        true => "/containers/json".to_owned(),
        false => format!("/containers/json?filters={}", encoded(&json!({ "label": [label] }).to_string())),
    };
    let mut response = client.send(Request { method: "GET", path: &path, ..Request::default() }).await?;
    let body = tokio::time::timeout(settings.origin.timeout, response.whole(BYTES_MAX)).await;
    let body = body.unwrap_or_else(|_| Err("the list of containers does not end".to_owned()))?;
    if response.status != 200 {
        return Err(format!("status {} for the list of containers", response.status));
    }
    match serde_json::from_slice(&body) {
        Ok(Value::Array(all)) if all.len() > CONTAINERS_MAX => {
            Err(format!("there are more than {CONTAINERS_MAX} containers"))
        }
        Ok(Value::Array(all)) => Ok(all),
        Ok(_) => Err("the list of containers is no list".to_owned()),
        Err(error) => Err(format!("the list of containers is no JSON: {error}")),
    }
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A container with its labels behind the prefix.
struct Container<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    whole: &'a Value,
}

/// What was found when containers were read last.
#[derive(Default)]
struct Checked {
    /// Texts that labels made, and what is wrong with each by itself.
    faults: HashMap<String, Option<String>>,
    /// By cluster the text of its routes.
    routed: BTreeMap<String, String>,
}

impl Checked {
    /// As if what a state says was found last: its texts are the routes, by cluster.
    fn after(state: &State) -> Self {
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

/// The state that these containers make, and why some are left out.
fn read(list: &[Value], settings: &DockerProvider, provider: &str, checked: &mut Checked) -> (State, Vec<String>) {
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
            problems.push(format!("{}: its routes to `{cluster}` are not those of {first}", container.name));
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

/// What is wrong with a text of routes by itself, told of the labels that made it.
fn fault_of(provider: &str, text: &str) -> Option<String> {
    let found = without_names(|loader| config::fault_of_provided(loader, provider, text))?;
    Some(format!("its labels make no route: {}", found.message))
}

/// Tells of labels behind the prefix that mean nothing.
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

/// Its own name. Of others that link to it come names such as `/other/alias`, in any order.
fn name_of(whole: &Value) -> Option<&str> {
    let names = whole["Names"].as_array().into_iter().flatten();
    names.filter_map(|name| Some(name.as_str()?.trim_start_matches('/'))).find(|name| !name.contains('/'))
}

/// Its label, what Compose says, or its name.
fn cluster_of<'a>(container: &Container<'a>) -> &'a str {
    let composed = || container.whole["Labels"][COMPOSE].as_str();
    container.labels.get("cluster").copied().or_else(composed).unwrap_or(container.name)
}

/// `None`: it is not to get any work now.
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

/// Its label, or the only port that its image exposes.
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
        [] => Err("it exposes no port, and no label says one".to_owned()),
        _ => Err("it exposes several ports, and no label says which".to_owned()),
    }
}

/// Whether it, while it runs, does not say that it is not healthy. One that is still starting is not yet.
fn is_healthy(whole: &Value) -> bool {
    let status = whole["Status"].as_str().unwrap_or_default();
    !status.contains("(unhealthy)") && !status.contains("(health: starting)")
}

/// Its address in the network of its label or of the settings, or in its only one.
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
        return Err("it shares the network of another container: that one is to have the labels".to_owned());
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
        _ => Err("it is in several networks, and no label says which".to_owned()),
    }
}

/// A cluster with its route, if labels ask for one.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> DockerProvider {
        DockerProvider {
            origin: model::provider::Origin {
                place: model::provider::Place::Address("unix:/run/docker.sock".parse().unwrap()),
                host: "docker".to_owned(),
                tls: None,
                timeout: Duration::from_secs(1),
                fields: Vec::new(),
            },
            prefix: "equipoise".to_owned(),
            network: None,
            all: false,
        }
    }

    fn read_all(list: &[Value], settings: &DockerProvider) -> (State, Vec<String>) {
        read(list, settings, "engine", &mut Checked::default())
    }

    fn one(name: &str, labels: Value, more: Value) -> Value {
        let mut whole = json!({
            "Names": [format!("/{name}")], "State": "running", "Status": "Up 5 minutes", "Labels": labels,
            "Ports": [{ "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp", "IP": "0.0.0.0" }, { "PrivatePort": 80, "Type": "tcp" }],
            "HostConfig": { "NetworkMode": "shop_default" },
            "NetworkSettings": { "Networks": { "shop_default": { "IPAddress": "172.18.0.2", "GlobalIPv6Address": "" } } },
        });
        whole["Labels"]["equipoise.enable"] = json!("true");
        for (key, value) in more.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        whole
    }

    fn problem(labels: Value, more: Value) -> String {
        let (state, problems) = read_all(&[one("web", labels, more)], &settings());
        assert!(state.endpoints.is_empty(), "{state:?}");
        problems.join("; ")
    }

    #[test]
    fn containers_are_gathered_by_label_by_what_compose_says_and_by_name() {
        let all = [
            one("shop-web-1", json!({ COMPOSE: "web" }), json!({})),
            one("b", json!({ "equipoise.cluster": "web", "equipoise.port": "81", "equipoise.weight": "3" }), json!({})),
            one("alone", json!({ "equipoise.zone": "a", "equipoise.label.version": "v2" }), json!({})),
        ];
        let (state, problems) = read_all(&all, &settings());
        assert!(problems.is_empty() && state.texts.is_empty(), "{problems:?}");
        let web: Vec<_> = state.endpoints["web"].iter().map(|one| (one.address.as_str(), one.weight)).collect();
        assert_eq!(web, [("172.18.0.2:81", 3), ("172.18.0.2:80", 1)]);
        let alone = &state.endpoints["alone"][0];
        assert_eq!((alone.zone.as_deref(), alone.labels["version"].as_str()), (Some("a"), "v2"));
    }

    #[test]
    fn only_those_that_want_it_are_taken_unless_all_are() {
        let mut whole = one("a", json!({}), json!({}));
        whole["Labels"] = json!({});
        assert!(read_all(std::slice::from_ref(&whole), &settings()).0.endpoints.is_empty());
        let all = DockerProvider { all: true, ..settings() };
        assert_eq!(read_all(std::slice::from_ref(&whole), &all).0.endpoints.len(), 1);
        whole["Labels"] = json!({ "equipoise.enable": "false" });
        assert!(read_all(&[whole], &all).0.endpoints.is_empty());
    }

    fn shop(name: &str, path: &str, address: &str, status: &str) -> Value {
        let labels = json!({ "equipoise.cluster": "shop", "equipoise.route.path": path });
        let networks = json!({ "Networks": { "shop_default": { "IPAddress": address } } });
        one(name, labels, json!({ "Status": status, "NetworkSettings": networks }))
    }

    #[test]
    fn who_had_the_routes_of_a_cluster_has_them_also_when_the_provider_begins_anew() {
        let old = shop("shop-b", "/old", "172.18.0.2", "Up 5 minutes");
        let new = shop("shop-a", "/new", "172.18.0.3", "Up 5 minutes");
        let (state, _) = read_all(std::slice::from_ref(&old), &settings());
        let sink = Sink::after(state.clone());
        let mut checked = Checked::after(&sink.known());
        let (again, problems) = read(&[new, old], &settings(), "engine", &mut checked);
        assert_eq!(again, state);
        assert_eq!(problems, ["shop-a: its routes to `shop` are not those of shop-b"]);
    }

    #[test]
    fn a_container_with_other_routes_takes_none_from_those_that_get_work() {
        let (up, starting) = ("Up 5 minutes", "Up 1 second (health: starting)");
        let there = shop("shop-b", "/old", "172.18.0.2", up);
        let mut checked = Checked::default();
        let mut read_now = |list: &[Value]| {
            let (state, problems) = read(list, &settings(), "engine", &mut checked);
            let addresses: Vec<String> = state.endpoints["shop"].iter().map(|one| one.address.clone()).collect();
            let is_old = state.texts.len() == 1 && state.texts[0].text.contains("/old");
            (addresses.join(" "), is_old, problems.join("; "))
        };
        // Before anything is known, who gets work decides.
        let new = shop("shop-a", "/new", "172.18.0.3", starting);
        let told = "shop-a: its routes to `shop` are not those of shop-b".to_owned();
        assert_eq!(read_now(&[new, there.clone()]), ("172.18.0.2:80".into(), true, told.clone()));
        // Then who was first, as long as it gets work.
        let new = shop("shop-a", "/new", "172.18.0.3", up);
        assert_eq!(read_now(&[new.clone(), there.clone()]), ("172.18.0.2:80".into(), true, told));
        let gone = shop("shop-b", "/old", "172.18.0.2", "Up 5 minutes (unhealthy)");
        let told = "shop-b: its routes to `shop` are not those of shop-a".to_owned();
        assert_eq!(read_now(&[new, gone]), ("172.18.0.3:80".into(), false, told));
    }

    #[test]
    fn those_that_do_not_run_or_are_not_healthy_get_no_work_and_their_cluster_stays() {
        for more in [
            json!({ "State": "paused" }),
            json!({ "State": "exited" }),
            json!({ "State": "restarting", "Status": "Restarting (1) 2 seconds ago", "Ports": [] }),
            json!({ "Status": "Up 2 minutes (unhealthy)" }),
            json!({ "Status": "Up 1 second (health: starting)" }),
        ] {
            let (state, problems) = read_all(&[one("web", json!({}), more)], &settings());
            assert!(state.endpoints["web"].is_empty() && problems.is_empty(), "{problems:?}");
        }
        let (state, _) = read_all(&[one("web", json!({}), json!({ "Status": "Up 2 minutes (healthy)" }))], &settings());
        assert_eq!(state.endpoints["web"].len(), 1);
    }

    #[test]
    fn a_network_and_a_port_are_chosen_or_the_container_is_left_out_and_told() {
        let several =
            json!({ "a": { "IPAddress": "10.0.0.1" }, "b": { "IPAddress": "10.0.0.2" }, "c": { "IPAddress": "" } });
        let several = json!({ "NetworkSettings": { "Networks": several } });
        assert_eq!(problem(json!({}), several.clone()), "web: it is in several networks, and no label says which");
        let chosen = |network: &str| json!({ "equipoise.network": network });
        assert_eq!(problem(chosen("c"), several.clone()), "web: it has no address in the network `c`");
        assert_eq!(problem(chosen("d"), several.clone()), "web: it is not in the network `d`");
        let (state, _) = read_all(&[one("web", chosen("b"), several)], &settings());
        assert_eq!(state.endpoints["web"][0].address, "10.0.0.2:80");
        assert_eq!(problem(json!({}), json!({ "Ports": [] })), "web: it exposes no port, and no label says one");
        let two = json!({ "Ports": [{ "PrivatePort": 1, "Type": "tcp" }, { "PrivatePort": 2, "Type": "tcp" }] });
        assert_eq!(problem(json!({}), two), "web: it exposes several ports, and no label says which");
        assert_eq!(problem(json!({ "equipoise.port": "x" }), json!({})), "web: \"x\" is not a port");
        let heavy = problem(json!({ "equipoise.weight": "1001" }), json!({}));
        assert_eq!(heavy, "web: `equipoise.weight` is \"1001\", not a number up to 1000");
    }

    #[test]
    fn the_network_of_the_host_is_this_machine_and_that_of_another_container_is_told() {
        // As Docker 26 and as Podman 5 say it.
        let host = json!({ "host": { "NetworkID": "host", "IPAddress": "", "GlobalIPv6Address": "" } });
        let host = |mode: Value| json!({ "HostConfig": mode, "NetworkSettings": { "Networks": host.clone() } });
        for more in [host(json!({ "NetworkMode": "host" })), host(Value::Null)] {
            let (state, _) = read_all(&[one("web", json!({}), more)], &settings());
            assert_eq!(state.endpoints["web"][0].address, "127.0.0.1:80");
        }
        let shared =
            json!({ "HostConfig": { "NetworkMode": "container:775153a91e76" }, "NetworkSettings": { "Networks": {} } });
        let told = "web: it shares the network of another container: that one is to have the labels";
        assert_eq!(problem(json!({}), shared), told);
    }

    #[test]
    fn a_container_is_called_by_its_own_name_and_not_as_others_link_to_it() {
        for names in [json!(["/a-first/db", "/web", "/z-last/db"]), json!(["/web"])] {
            let (state, _) = read_all(&[one("", json!({}), json!({ "Names": names }))], &settings());
            assert_eq!(state.endpoints.keys().collect::<Vec<_>>(), ["web"]);
        }
        // One that is being removed has none.
        let removed = ["/x"; 0];
        let (state, problems) = read_all(&[one("", json!({}), json!({ "Names": removed }))], &settings());
        assert!(state.endpoints.is_empty() && problems.is_empty());
    }

    #[test]
    fn labels_make_a_route_and_a_cluster_once() {
        let labels = json!({ "equipoise.route.host": "shop.example", "equipoise.route.path": "/api", "equipoise.cluster": "web" });
        let mut other = labels.clone();
        other["equipoise.route.host"] = json!("other.example");
        let all = [one("a", labels.clone(), json!({})), one("b", labels, json!({})), one("c", other, json!({}))];
        let (state, problems) = read_all(&all, &settings());
        assert_eq!(problems, ["c: its routes to `web` are not those of a"]);
        let text: Value = serde_json::from_str(&state.texts[0].text).unwrap();
        assert_eq!(text["routes"][0]["match"], json!({ "host": "shop.example", "path": { "prefix": "/api" } }));
        assert_eq!(text["clusters"]["web"]["endpoints"], json!({ "from": "engine", "key": "web" }));
        assert_eq!(state.texts.len(), 1);
        assert_eq!(state.endpoints["web"].len(), 1, "the same address once");
    }
}
