use std::sync::Arc;

use config::file::EndpointSettings;

use super::*;
use crate::loader::without_names;

#[test]
fn an_endpoint_that_is_taken_away_goes_also_from_a_list_that_is_wrong_now() {
    // Their ports and weights.
    let with = |before: &Given, all: &[(u16, u32)]| {
        let list: Vec<EndpointSettings> = all
            .iter()
            .map(|(port, weight)| EndpointSettings {
                weight: *weight,
                ..EndpointSettings::at(format!("127.0.0.1:{port}"))
            })
            .collect();
        let names: Vec<String> = all.iter().map(|(port, _)| port.to_string()).collect();
        let state = State {
            endpoints: [("web".to_owned(), list)].into(),
            names: [("web".to_owned(), names)].into(),
            by_parts: true,
            ..State::default()
        };
        without_names(|loader| before.with(loader, "store", Arc::new(state))).unwrap()
    };
    let shown = |given: &Given| {
        let accepted = &given.by_name["store"];
        let (names, found) = (accepted.state.names["web"].join(" "), &accepted.endpoints["web"]);
        let found: Vec<String> = found.iter().map(|one| format!("{}={}", one.address, one.weight)).collect();
        (names, found.join(" ").replace("127.0.0.1:", ""), accepted.left_out.values().cloned().collect::<Vec<_>>())
    };
    let told = vec!["the endpoints of `web`: all weights are 0".to_owned()];
    let all = with(&Given::default(), &[(1, 1), (2, 1), (3, 0)]);
    assert_eq!(shown(&all), ("1 2 3".to_owned(), "1=1 2=1 3=0".to_owned(), Vec::new()));
    let fewer = with(&all, &[(2, 0), (3, 0)]);
    assert_eq!(shown(&fewer), ("2 3".to_owned(), "2=1 3=0".to_owned(), told.clone()));
    // Without the last that had a weight there is no work for any.
    let none = with(&fewer, &[(3, 0)]);
    assert_eq!(shown(&none), ("3".to_owned(), "3=0".to_owned(), told.clone()));
    let same = with(&none, &[(3, 0)]);
    assert_eq!(shown(&same), ("3".to_owned(), "3=0".to_owned(), told.clone()), "it is told as long as it is so");
    assert_eq!(shown(&with(&none, &[(4, 0)])), ("4".to_owned(), "4=0".to_owned(), told));
    let again = with(&none, &[(3, 0), (4, 1)]);
    assert_eq!(shown(&again), ("3 4".to_owned(), "3=0 4=1".to_owned(), Vec::new()));
}
