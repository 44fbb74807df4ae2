//! Messages as receivers get them, over real sockets.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};

use model::snapshot::SyslogStyle::{Rfc3164, Rfc5424};

use super::*;

fn settings(to: SyslogAddress, style: SyslogStyle) -> snapshot::Syslog {
    snapshot::Syslog { to, priority: 134, tag: "edge".to_owned(), style }
}

fn receiver() -> (UdpSocket, SyslogAddress) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let to = SyslogAddress::Udp(socket.local_addr().unwrap());
    (socket, to)
}

fn message(socket: &UdpSocket) -> String {
    let mut buffer = vec![0; 100_000];
    let count = socket.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..count].to_vec()).unwrap()
}

fn unsent(syslog: &Syslog) -> usize {
    match &syslog.to {
        To::Tcp(stream) => stream.unsent_bytes(),
        To::Udp(..) | To::Unix(..) => 0,
    }
}

/// Goes on until nothing waits, as the thread does.
fn until_sent(syslog: &mut Syslog) -> Option<io::Error> {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    let mut first = None;
    while syslog.has_waiting() {
        assert!(std::time::Instant::now() < end, "still waiting");
        first = first.or(syslog.go_on().err());
        std::thread::yield_now();
    }
    first
}

#[test]
fn each_line_is_a_datagram_in_the_style_that_was_asked_for() {
    let (socket, to) = receiver();
    let (host, id) = (host_name(), process::id());
    let mut newer = Syslog::new(&settings(to.clone(), Rfc5424));
    newer.carry(b"GET / 200\nGET /b 404\n").unwrap();
    for record in ["GET / 200", "GET /b 404"] {
        let message = message(&socket);
        let (time, rest) = message.strip_prefix("<134>1 ").unwrap().split_once(' ').unwrap();
        assert_eq!((time.len(), rest), (24, format!("{host} edge {id} - - {record}").as_str()), "{message}");
    }
    Syslog::new(&settings(to, Rfc3164)).carry(b"x\n").unwrap();
    let older = message(&socket);
    assert!(older.starts_with("<134>") && older.ends_with(&format!(" {host} edge[{id}]: x")), "{older}");
    assert_eq!(older.len(), format!("<134>Nov 22 09:05:07 {host} edge[{id}]: x").len());
}

#[test]
fn a_line_that_no_datagram_can_hold_is_cut() {
    let (socket, to) = receiver();
    let long = [b"a".repeat(80_000), b"\nshort\n".to_vec()].concat();
    Syslog::new(&settings(to, Rfc5424)).carry(&long).unwrap();
    assert_eq!(message(&socket).len(), DATAGRAM_BYTES_MAX);
    assert!(message(&socket).ends_with(" short"));
}

#[test]
fn a_unix_receiver_that_was_started_anew_is_found_and_one_that_is_away_costs_what_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut syslog = Syslog::new(&settings(SyslogAddress::Unix(path.display().to_string()), Rfc3164));
    let mut buffer = [0; 200];
    for _ in 0..2 {
        let receiver = UnixDatagram::bind(&path).unwrap();
        syslog.carry(b"here\n").unwrap();
        let count = receiver.recv(&mut buffer).unwrap();
        assert!(buffer[..count].ends_with(format!(" edge[{}]: here", process::id()).as_bytes()));
        assert_eq!(buffer[..count].iter().filter(|&&byte| byte == b' ').count(), 4, "no host is named");
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(syslog.carry(b"one\ntwo\nthree\n").unwrap_err().records, 3);
}

#[test]
fn a_unix_receiver_that_does_not_read_costs_records_and_no_more_than_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let _receiver = UnixDatagram::bind(&path).unwrap();
    let mut syslog = Syslog::new(&settings(SyslogAddress::Unix(path.display().to_string()), Rfc3164));
    let lost = syslog.carry(&b"line\n".repeat(100_000)).unwrap_err();
    assert!(lost.records > 0 && lost.records < 100_000, "{lost:?}");
}

#[test]
fn over_tcp_messages_wait_for_a_receiver_and_come_whole_and_once() {
    // An address of this process alone, so that no one takes the port meanwhile.
    let [.., high, low] = process::id().to_be_bytes();
    let listener = TcpListener::bind((Ipv4Addr::new(127, 77, high, low), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for (style, expected) in [(Rfc3164, "one"), (Rfc5424, " - - one")] {
        let mut syslog = Syslog::new(&settings(SyslogAddress::Tcp(address), style));
        syslog.carry(b"one\ntwo\n").unwrap();
        assert!(syslog.has_waiting() && syslog.is_busy());
        // No one is there.
        let mut refused = Ok(());
        while refused.is_ok() {
            refused = syslog.go_on();
        }
        assert!(syslog.has_waiting() && !syslog.is_busy(), "it is known to be away");
        let listener = TcpListener::bind(address).unwrap();
        let _ = until_sent(&mut syslog);
        let mut lines = BufReader::new(listener.accept().unwrap().0);
        let mut text = String::new();
        match style {
            Rfc3164 => {
                lines.read_line(&mut text).unwrap();
                assert!(text.ends_with(&format!(": {expected}\n")), "{text}");
            }
            Rfc5424 => {
                let mut length = Vec::new();
                lines.read_until(b' ', &mut length).unwrap();
                let length: usize = String::from_utf8(length).unwrap().trim().parse().unwrap();
                let mut message = vec![0; length];
                io::Read::read_exact(&mut lines, &mut message).unwrap();
                assert!(message.ends_with(expected.as_bytes()));
            }
        }
    }
}

#[test]
fn a_message_that_the_end_of_a_connection_cut_is_sent_again_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut syslog = Syslog::new(&settings(SyslogAddress::Tcp(listener.local_addr().unwrap()), Rfc3164));
    let record = "x".repeat(50_000);
    listener.set_nonblocking(true).unwrap();
    let (mut first, mut rounds_without_any) = (None, 0);
    // Until the kernel takes no more, so that a message is cut somewhere.
    while rounds_without_any < 100 {
        if unsent(&syslog) < 1_000_000 {
            syslog.carry(format!("{record}\n").as_bytes()).unwrap();
        }
        let before = unsent(&syslog);
        syslog.go_on().unwrap();
        first = first.or_else(|| listener.accept().ok());
        let is_still = first.is_some() && unsent(&syslog) == before && before >= 1_000_000;
        rounds_without_any = if is_still { rounds_without_any + 1 } else { 0 };
        std::thread::yield_now();
    }
    drop(first);
    listener.set_nonblocking(false).unwrap();
    let reader = std::thread::spawn(move || {
        let (second, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(second).lines();
        let line = lines.next().unwrap().unwrap();
        (line, lines.count())
    });
    assert!(until_sent(&mut syslog).is_some(), "the end of the first connection is told");
    drop(syslog);
    let (line, more) = reader.join().unwrap();
    assert!(line.starts_with("<134>") && line.ends_with(&record), "{}", &line[..60]);
    assert!(more > 0);
}

#[test]
fn what_waits_has_a_bound() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut syslog = Syslog::new(&settings(SyslogAddress::Tcp(address), Rfc5424));
    let lines = [vec![b'y'; 999], b"\n".to_vec()].concat().repeat(1_000);
    let lost: u64 = (0..6).map(|_| syslog.carry(&lines).map_or_else(|lost| lost.records, |()| 0)).sum();
    assert!((1_000..3_000).contains(&lost), "{lost}");
}
