use super::containers::COMPOSE;
use super::*;
use crate::given::State;

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
    assert_eq!(problems, ["shop-a: its routes to `shop` differ from those of shop-b"]);
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
    let told = "shop-a: its routes to `shop` differ from those of shop-b".to_owned();
    assert_eq!(read_now(&[new, there.clone()]), ("172.18.0.2:80".into(), true, told.clone()));
    // Then who was first, as long as it gets work.
    let new = shop("shop-a", "/new", "172.18.0.3", up);
    assert_eq!(read_now(&[new.clone(), there.clone()]), ("172.18.0.2:80".into(), true, told));
    let gone = shop("shop-b", "/old", "172.18.0.2", "Up 5 minutes (unhealthy)");
    let told = "shop-b: its routes to `shop` differ from those of shop-a".to_owned();
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
    assert_eq!(problem(json!({}), several.clone()), "web: it is in several networks, and no label selects one");
    let chosen = |network: &str| json!({ "equipoise.network": network });
    assert_eq!(problem(chosen("c"), several.clone()), "web: it has no address in the network `c`");
    assert_eq!(problem(chosen("d"), several.clone()), "web: it is not in the network `d`");
    let (state, _) = read_all(&[one("web", chosen("b"), several)], &settings());
    assert_eq!(state.endpoints["web"][0].address, "10.0.0.2:80");
    assert_eq!(problem(json!({}), json!({ "Ports": [] })), "web: it exposes no port, and no label sets one");
    let two = json!({ "Ports": [{ "PrivatePort": 1, "Type": "tcp" }, { "PrivatePort": 2, "Type": "tcp" }] });
    assert_eq!(problem(json!({}), two), "web: it exposes several ports, and no label selects one");
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
    let told = "web: it shares the network of another container: put the labels there";
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
    let labels =
        json!({ "equipoise.route.host": "shop.example", "equipoise.route.path": "/api", "equipoise.cluster": "web" });
    let mut other = labels.clone();
    other["equipoise.route.host"] = json!("other.example");
    let all = [one("a", labels.clone(), json!({})), one("b", labels, json!({})), one("c", other, json!({}))];
    let (state, problems) = read_all(&all, &settings());
    assert_eq!(problems, ["c: its routes to `web` differ from those of a"]);
    let text: Value = serde_json::from_str(&state.texts[0].text).unwrap();
    assert_eq!(text["routes"][0]["match"], json!({ "host": "shop.example", "path": { "prefix": "/api" } }));
    assert_eq!(text["clusters"]["web"]["endpoints"], json!({ "from": "engine", "key": "web" }));
    assert_eq!(state.texts.len(), 1);
    assert_eq!(state.endpoints["web"].len(), 1, "the same address once");
}
