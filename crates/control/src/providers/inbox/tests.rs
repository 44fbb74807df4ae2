use super::*;

fn text(text: &str) -> State {
    let text = crate::given::Text { text: text.to_owned(), ..<_>::default() };
    State { texts: vec![text], ..State::default() }
}

#[test]
fn what_is_lacking_is_told_and_holds_up_nothing_of_the_rest() {
    let inbox = Inbox::default();
    inbox.set_providers(&[("a", "dns")]);
    inbox.send("a", text("1"), Some("b.test: no answer"));
    let status = inbox.statuses().remove(0);
    assert_eq!((status.reach, status.reason.as_deref()), (Reach::Away, Some("b.test: no answer")));
    assert!(status.last_success.is_some() && inbox.take_unsettled(false).len() == 1);
    inbox.send("a", text("1"), None);
    assert_eq!((inbox.statuses()[0].reach, &inbox.statuses()[0].reason), (Reach::Up, &None));
}

#[test]
fn the_latest_of_each_is_taken_in_the_order_written_until_it_is_settled() {
    let inbox = Inbox::default();
    inbox.set_providers(&[("z", "file"), ("a", "file")]);
    for (name, wanted) in [("a", "1"), ("z", "1"), ("a", "2"), ("other", "1")] {
        inbox.send(name, text(wanted), None);
    }
    let open = inbox.take_unsettled(false);
    assert_eq!(open.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["z", "a"]);
    assert_eq!(*open[1].1, text("2"));
    assert!(inbox.lock().due.is_none(), "taken");
    inbox.send("a", text("2"), None);
    assert!(inbox.lock().due.is_none(), "the same as before is nothing new");
    assert_eq!(inbox.take_unsettled(false).len(), 2, "what was not settled is wanted still");
}

#[test]
fn what_was_taken_in_vain_is_due_again_when_somebody_reminds_of_it_unless_it_was_refused() {
    let inbox = Inbox::default();
    inbox.set_providers(&[("a", "file")]);
    inbox.remind();
    assert!(inbox.lock().due.is_none(), "nothing is wanted");
    inbox.send("a", text("1"), None);
    let state = inbox.take_unsettled(false).remove(0).1;
    inbox.remind();
    assert!(inbox.lock().due.is_some());
    inbox.take_unsettled(false);
    inbox.refuse("a", &state, "it is bad");
    inbox.remind();
    assert!(inbox.lock().due.is_none());
}

#[test]
fn what_the_data_plane_does_not_take_is_tried_again_and_what_is_wrong_is_not() {
    let inbox = Inbox::default();
    inbox.set_providers(&[("a", "file"), ("b", "file")]);
    inbox.send("a", text("1"), None);
    let state = inbox.take_unsettled(false).remove(0).1;
    let mut waits = Vec::new();
    for _ in 0..3 {
        inbox.put_off("a", &state, "the port is in use");
        waits.push(inbox.lock().next().expect("it is tried again").saturating_duration_since(Instant::now()));
        inbox.remind();
        assert!(inbox.lock().due.is_none(), "not before its time");
        assert_eq!(inbox.take_unsettled(false).len(), 1);
        assert_eq!(inbox.lock().next(), None);
    }
    assert!(waits[0] <= Duration::from_secs(1) && waits[2] > Duration::from_secs(2), "{waits:?}");
    assert_eq!(inbox.statuses()[0].refused, 1, "told once");
    // Reading it with the files may come to nothing, and while that waits for something else it is not tried.
    inbox.put_off("a", &state, "the port is in use");
    let due = inbox.lock().next();
    assert_eq!((inbox.unsettled().len(), inbox.lock().next()), (1, due));
    inbox.take_unsettled(true);
    assert!(inbox.lock().next().is_some_and(|later| later > Instant::now()));
    // Who wants something meanwhile does not wait for that.
    inbox.put_off("a", &state, "the port is in use");
    inbox.send("b", text("1"), None);
    assert!(inbox.lock().next() <= Some(Instant::now() + SETTLE));
    inbox.take_unsettled(false);
    inbox.put_off("a", &state, "the port is in use");
    inbox.send("a", text("2"), None);
    let other = inbox.take_unsettled(false).remove(0).1;
    inbox.refuse("a", &other, "it is wrong");
    inbox.put_off("a", &state, "too late");
    assert_eq!(inbox.lock().next(), None);
    // After something that could not even be tried.
    inbox.pause();
    inbox.put_off("a", &other, "no thread");
    inbox.take_unsettled(false);
    inbox.send("a", text("3"), None);
    inbox.pause_after(Duration::ZERO);
    let soon = Instant::now() + PAUSE_MAX / 2;
    assert!(inbox.lock().next().is_some_and(|due| due > soon), "a short pause does not end a long one");
}

#[test]
fn a_stream_of_changes_does_not_put_off_the_first() {
    let inbox = Inbox::default();
    inbox.set_providers(&[("a", "file")]);
    inbox.send("a", text("1"), None);
    let due = inbox.lock().due;
    for n in 0..100 {
        inbox.send("a", text(&n.to_string()), None);
    }
    assert!(due.is_some() && inbox.lock().due == due);
    inbox.take_unsettled(false);
    inbox.pause_after(Duration::from_secs(100));
    inbox.pause_after(Duration::MAX);
    let latest = Instant::now() + PAUSE_MAX + SETTLE;
    inbox.send("a", text("next"), None);
    assert!(inbox.lock().due.is_some_and(|due| due <= latest), "no pause is longer than its bound");
}

#[test]
fn changes_now_and_then_do_not_wait_for_those_before_and_a_stream_of_them_takes_its_part_of_all_time() {
    let inbox = Inbox::default();
    inbox.set_providers(&[("a", "file")]);
    let cost = Duration::from_millis(10);
    // What the test itself takes only makes less of what is booked.
    let booked = BOOKED_FREE.as_millis() / (cost * PAUSE_FACTOR).as_millis();
    let wait = |wanted: &str| {
        inbox.send("a", text(wanted), None);
        let due = inbox.lock().due.expect("it is wanted");
        inbox.take_unsettled(false);
        due.saturating_duration_since(Instant::now())
    };
    for n in 0..booked {
        assert!(wait(&n.to_string()) <= SETTLE, "{n}");
        inbox.pause_after(cost);
    }
    inbox.pause_after(Duration::from_secs(1));
    assert!(wait("one behind a change that cost much") > SETTLE);
}

#[test]
fn a_refused_state_is_counted_once() {
    let inbox = Inbox::default();
    inbox.set_providers(&[("a", "file")]);
    inbox.send("a", text("bad"), None);
    let state = inbox.take_unsettled(false).remove(0).1;
    inbox.refuse("a", &state, "it is bad");
    inbox.refuse("a", &state, "it is bad still");
    let status = inbox.statuses().remove(0);
    assert_eq!((status.refused, status.problems.as_deref()), (1, Some("it is bad still")));
    inbox.send("a", text("other"), None);
    inbox.refuse("a", &state, "too late");
    assert_eq!(inbox.statuses()[0].refused, 1, "it wants something else by now");
}

#[test]
fn one_that_is_away_is_waited_for_unless_something_was_kept_of_it() {
    let inbox = Inbox::default();
    inbox.set_providers(&[("a", "file")]);
    inbox.set_kept("a", text("kept"));
    inbox.failed("a", "nobody is there");
    inbox.wait_for("a", Duration::from_secs(3600));
    inbox.wait_for("nobody", Duration::from_secs(3600));
    let status = inbox.statuses().remove(0);
    assert_eq!((status.reach, status.is_kept), (Reach::Away, true));
    inbox.send("a", text("own"), None);
    inbox.set_kept("a", text("kept"));
    assert_eq!(*inbox.take_unsettled(false)[0].1, text("own"));
    assert!(!inbox.statuses()[0].is_kept);
}
