//! Instances without sockets.

use std::path::Path;
use std::sync::Arc;

use wire::peers::write_block;

use super::*;
use crate::loader::without_names;

const SENDER: u128 = 1;

/// A plan that replicates the sessions of clusters of these names.
fn plan(names: &[&str], before: Option<&Plan>) -> Plan {
    let cluster = |name: &&str| {
        format!(
            "  {name}: {{ endpoints: [\"127.0.0.1:1\"], persistence: {{ learn: {{ cookie: sid, replicate: true }} }} }}\n"
        )
    };
    let clusters: String = names.iter().map(cluster).collect();
    let text = format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:80\" }} }}\nroutes: [{{ name: main, cluster: {} }}]\n\
         peers: {{ listen: \"127.0.0.1:2\", members: [\"127.0.0.1:2\"] }}\nclusters:\n{clusters}",
        names[0]
    );
    let loaded = without_names(|loader| loader.load_text("test", &text, Path::new("")));
    let snapshot = loaded.unwrap_or_else(|error| panic!("{error}")).snapshot;
    plan::compile(Arc::new(snapshot), before, 1).unwrap_or_else(|issues| panic!("{issues:?}"))
}

/// What a sender sends with one session of a cluster; `None`: the end of all sessions.
fn sent(number: u64, to: Option<(&Sessions, &str, u64)>) -> (u64, Vec<u8>) {
    let mut blocks = Vec::new();
    if let Some((sessions, name, key)) = to {
        let table = sessions.tables.iter().find(|table| table.name() == name).unwrap();
        let mut records = Vec::new();
        SessionRecord { key, endpoint: 7, stamp: 1, age: 0 }.write(&mut records);
        write_block(&Block { table: name, fingerprint: table.fingerprint(), records: &records }, &mut blocks);
    }
    (number, blocks)
}

fn take(sessions: &mut Sessions, following: &mut Following, (number, blocks): (u64, Vec<u8>)) -> Option<u64> {
    let written = Written { number, age: 0, blocks: &blocks };
    sessions.take((SENDER, following), &written, Instant::now())
}

fn asked(sessions: &Sessions, following: &mut Following) -> Option<u64> {
    match sessions.ask(SENDER, following) {
        Some(Frame::FollowSessions(after)) => Some(after),
        None => None,
        other => panic!("{other:?}"),
    }
}

fn known(sessions: &Sessions) -> usize {
    let mut count = 0;
    for table in &sessions.tables {
        table.copies(moment(Instant::now()), &mut |_| count += 1);
    }
    count
}

#[test]
fn a_change_on_its_way_does_not_stand_for_the_sessions_of_a_new_table() {
    let (mut sessions, mut following) = (Sessions::default(), Following::default());
    let first = plan(&["a"], None);
    sessions.follow(&first);
    assert_eq!(asked(&sessions, &mut following), Some(0));
    assert_eq!(take(&mut sessions, &mut following, sent(4, None)), Some(4));
    let change = sent(5, Some((&sessions, "a", 1)));
    assert_eq!(take(&mut sessions, &mut following, change), Some(5));
    let second = plan(&["a", "b"], Some(&first));
    sessions.follow(&second);
    let change = sent(6, Some((&sessions, "a", 2)));
    assert_eq!(take(&mut sessions, &mut following, change), None, "before the sender is asked");
    assert_eq!(asked(&sessions, &mut following), Some(0), "all, for the new table");
    let change = sent(7, Some((&sessions, "a", 3)));
    assert_eq!(take(&mut sessions, &mut following, change), None, "before the sender has read that");
    assert_eq!(known(&sessions), 3, "each is taken in all the same");
    assert_eq!(take(&mut sessions, &mut following, sent(7, None)), Some(7));
    assert_eq!(asked(&sessions, &mut following), None);
    let change = sent(8, Some((&sessions, "b", 4)));
    assert_eq!(take(&mut sessions, &mut following, change), Some(8));
    assert_eq!((asked(&sessions, &mut Following::default()), known(&sessions)), (Some(8), 4));
}

#[test]
fn a_connection_that_breaks_before_the_end_of_all_sessions_asks_for_all_again() {
    let (mut sessions, mut following) = (Sessions::default(), Following::default());
    let first = plan(&["a"], None);
    sessions.follow(&first);
    assert_eq!(asked(&sessions, &mut following), Some(0));
    for (number, key) in [(9, 1), (0, 2), (0, 3)] {
        let frame = sent(number, Some((&sessions, "a", key)));
        assert_eq!(take(&mut sessions, &mut following, frame), None);
    }
    let mut following = Following::default();
    assert_eq!(asked(&sessions, &mut following), Some(0));
    // Another table comes in the meantime: the end of what was asked for before is not that of what is asked for then.
    sessions.follow(&plan(&["a", "b"], Some(&first)));
    assert_eq!(asked(&sessions, &mut following), None);
    assert_eq!(take(&mut sessions, &mut following, sent(9, None)), None);
    assert_eq!(asked(&sessions, &mut following), Some(0));
    assert_eq!(take(&mut sessions, &mut following, sent(9, None)), Some(9));
}

#[test]
fn a_receiver_that_comes_back_is_known_again_when_as_many_are_known_as_may_be() {
    let mut sessions = Sessions { head: 9, ..Sessions::default() };
    for receiver in 0..KNOWN_MAX as u128 {
        sessions.begin(receiver, 9);
    }
    sessions.part(0, Instant::now());
    sessions.begin(0, 3);
    assert!(!sessions.has_all(0));
    assert!(sessions.receivers[&0].parted.is_none(), "what it lacks is kept");
}
