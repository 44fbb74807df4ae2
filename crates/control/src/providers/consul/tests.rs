use serde_json::json;

use super::*;

fn settings() -> ConsulProvider {
    ConsulProvider {
        origin: model::provider::Origin {
            place: model::provider::Place::Host("localhost".to_owned(), 8500),
            host: "localhost:8500".to_owned(),
            tls: None,
            timeout: Duration::from_secs(1),
            fields: Vec::new(),
        },
        datacenter: Some("east 1".to_owned()),
        namespace: None,
        stale: true,
        prefix: Some("eq uipoise/".to_owned()),
        wait: Duration::from_secs(60),
    }
}

#[test]
fn what_is_asked_for_is_written_as_consul_reads_it() {
    let of = |subject| path(&subject, &settings(), 7);
    assert_eq!(of(Subject::Key("web".into())), "/v1/health/service/web?index=7&wait=60000ms&dc=east%201&stale");
    assert_eq!(
        of(Subject::Key("a/b.web".into())),
        "/v1/health/service/web?tag=a%2Fb&index=7&wait=60000ms&dc=east%201&stale"
    );
    assert_eq!(of(Subject::Store), "/v1/kv/eq%20uipoise/?recurse=true&index=7&wait=60000ms&dc=east%201&stale");
}

#[test]
fn an_index_that_goes_back_begins_anew() {
    assert_eq!((next_index(0, Some(5)), next_index(5, Some(5)), next_index(5, Some(9))), (5, 5, 9));
    assert_eq!((next_index(9, Some(5)), next_index(9, Some(0)), next_index(9, None)), (0, 0, 0));
}

#[test]
fn critical_ones_are_left_out_and_warned_ones_weigh_what_is_said_for_that() {
    let entry = |address: &str, node: &str, port: u64, statuses: &[&str]| {
        let checks: Vec<Value> = statuses.iter().map(|status| json!({ "Status": status })).collect();
        json!({
            "Node": { "Address": node },
            "Service": {
                "ID": "web-1", "Address": address, "Port": port, "Weights": { "Passing": 10, "Warning": 2 },
                "Meta": { "version": "v2", "empty": "" },
            },
            "Checks": checks,
        })
    };
    let (found, problems) = endpoints(&[
        entry("10.0.0.2", "10.9.9.9", 80, &["passing", "warning"]),
        entry("", "10.0.0.1", 80, &["passing"]),
        entry("10.0.0.3", "", 80, &["passing", "critical"]),
        entry("10.0.0.4", "", 0, &[]),
        entry("host.example", "10.0.0.9", 80, &[]),
        entry("10.0.0.2", "", 80, &[]),
        json!({}),
    ]);
    let shown: Vec<_> = found.iter().map(|one| (one.address.as_str(), one.weight, one.labels.len())).collect();
    assert_eq!(shown, [("10.0.0.1:80", 10, 1), ("10.0.0.2:80", 2, 1)]);
    let name = "the instance `web-1` has the address `host.example`, which is not an IP address: host names are not resolved here";
    assert_eq!(problems, ["the instance `web-1` has no port", name, "the instance `` has no address"]);
}

#[test]
fn what_the_token_may_not_see_is_not_taken_for_what_is_not_there() {
    let mut reader = Reader::default();
    let mut told =
        |subject: &Subject, is_filtered, list: &[Value]| match read((subject, is_filtered), list, "eq/", &mut reader) {
            Ok(Found::Endpoints(list, _)) => format!("{} endpoints", list.len()),
            Ok(Found::Stored(state, problems)) => format!("{} keys, {problems:?}", state.endpoints.len()),
            Err(why) => why,
        };
    let (web, store) = (Subject::Key("web".into()), Subject::Store);
    let one = [json!({ "Service": { "Address": "10.0.0.1", "Port": 80 } })];
    let key = [json!({ "Key": "eq/endpoints/web/a", "Value": "MTAuMC4wLjE6ODA=" })];
    assert_eq!([told(&web, false, &[]), told(&web, false, &one)], ["0 endpoints", "1 endpoints"]);
    assert_eq!(told(&web, true, &one), "1 endpoints", "the others are on nodes that are not for us");
    let why = "its ACLs let the token see none of them: it needs `read` for the service and for its nodes";
    assert_eq!(told(&web, true, &[]), why);
    assert_eq!([told(&store, false, &[]), told(&store, false, &key)], ["0 keys, []", "1 keys, []"]);
    assert_eq!(
        told(&store, true, &key),
        "1 keys, [\"keys below `eq/` that the ACLs of Consul do not let the token see\"]"
    );
    let why = "its ACLs let the token see no key below `eq/`: it needs `read` for them";
    assert_eq!(told(&store, true, &[]), why);
}

#[test]
fn of_what_fails_what_was_known_before_stays() {
    let list = |address: &str| vec![EndpointSettings::at(address)];
    let by_key = |all: &[(&str, &str)]| -> BTreeMap<String, Vec<EndpointSettings>> {
        all.iter().map(|(key, address)| ((*key).to_owned(), list(address))).collect()
    };
    let text = crate::given::Text { text: "routes: []".to_owned(), ..Default::default() };
    let before = [("web", "10.0.0.1:1"), ("api", "10.0.0.2:1"), ("stored", "10.0.0.3:1")];
    let sink = Sink::after(State { texts: vec![text], endpoints: by_key(&before), ..State::default() });
    let before = sink.known();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let one = |known: Option<Found>| Watched {
        failing: known.is_none().then(|| "no answer".to_owned()),
        known,
        task: runtime.spawn(async {}),
    };
    let key = |name: &str| Subject::Key(name.to_owned());
    let mut watched: BTreeMap<Subject, Watched> =
        [key("web"), key("api"), Subject::Store].map(|subject| (subject, one(None))).into();
    tell(&watched, &before, &sink);
    assert!(sink.inbox.statuses()[0].is_kept, "nothing was found");
    watched.insert(key("web"), one(Some(Found::Endpoints(list("10.0.0.9:1"), Vec::new()))));
    tell(&watched, &before, &sink);
    let shown = |state: &State| -> Vec<(String, String)> {
        let all = state.endpoints.iter().map(|(key, list)| (key.clone(), list[0].address.clone()));
        all.collect()
    };
    let told = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(key, address)| ((*key).to_owned(), (*address).to_owned())).collect()
    };
    let state = sink.known();
    assert_eq!(shown(&state), told(&[("api", "10.0.0.2:1"), ("stored", "10.0.0.3:1"), ("web", "10.0.0.9:1")]));
    assert_eq!(state.texts.len(), 1);
    // What the store says itself counts, also of a name of which the catalog has no instances.
    watched.insert(key("api"), one(Some(Found::Endpoints(Vec::new(), Vec::new()))));
    let stored = State { endpoints: by_key(&[("api", "10.0.0.7:1")]), ..State::default() };
    watched.insert(Subject::Store, one(Some(Found::Stored(stored, vec!["a key".to_owned()]))));
    tell(&watched, &before, &sink);
    let state = sink.known();
    assert_eq!(sink.inbox.statuses()[0].left_out, ["a key"]);
    assert_eq!(shown(&state), told(&[("api", "10.0.0.7:1"), ("web", "10.0.0.9:1")]));
    assert!(state.texts.is_empty());
}

#[test]
fn a_name_that_only_the_store_knows_keeps_its_endpoints_while_the_store_does_not_answer() {
    let list = |address: &str| vec![EndpointSettings::at(address)];
    let kept = [("gone".to_owned(), list("10.0.0.8:1")), ("web".to_owned(), list("10.0.0.1:1"))];
    let sink = Sink::after(State { endpoints: kept.into(), ..State::default() });
    let mut before = State::clone(&sink.known());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let one = |known: Option<Found>| Watched { known, failing: None, task: runtime.spawn(async {}) };
    let (web, gone) = (Subject::Key("web".to_owned()), Subject::Key("gone".to_owned()));
    let mut watched: BTreeMap<Subject, Watched> = BTreeMap::new();
    watched.insert(Subject::Store, one(None));
    watched.insert(gone.clone(), one(None));
    let mut answer = |watched: &mut BTreeMap<Subject, Watched>, subject: &Subject, found: Found| {
        watched.insert(subject.clone(), one(Some(found)));
        forget_answered(&mut before, watched, subject);
        tell(watched, &before, &sink);
        let known = sink.known();
        let address = |key: &str| known.endpoints.get(key).and_then(|list| Some(list.first()?.address.clone()));
        (address("web").unwrap_or_default(), address("gone").unwrap_or_default())
    };
    let of = |web: &str, gone: &str| (web.to_owned(), gone.to_owned());
    let none = || Found::Endpoints(Vec::new(), Vec::new());
    assert_eq!(answer(&mut watched, &web, none()), of("10.0.0.1:1", "10.0.0.8:1"));
    // What the catalog has said itself it may take back.
    assert_eq!(
        answer(&mut watched, &gone, Found::Endpoints(list("10.0.0.9:1"), Vec::new())),
        of("10.0.0.1:1", "10.0.0.9:1")
    );
    assert_eq!(answer(&mut watched, &gone, none()), of("10.0.0.1:1", ""));
    let stored = Found::Stored(State::default(), Vec::new());
    assert_eq!(answer(&mut watched, &Subject::Store, stored), of("", ""));
}

#[test]
fn what_is_stored_is_read_behind_the_prefix() {
    let list = [
        json!({ "Key": "eq/", "Value": null }),
        json!({ "Key": "eq/endpoints/web/a", "Value": "MTAuMC4wLjE6ODA=" }),
        json!({ "Key": "other", "Value": "?" }),
    ];
    let (state, problems) = Reader::default().state(&stored(&list, "eq/").unwrap());
    assert_eq!((state.endpoints["web"][0].address.as_str(), problems.len()), ("10.0.0.1:80", 0));
    assert!(stored(&[json!({ "Key": "eq/x", "Value": "?" })], "eq/").is_err());
}
