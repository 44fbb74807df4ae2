use super::*;

const ID: u16 = 0x1234;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// An answer as a resolver writes it.
struct Written {
    bytes: Vec<u8>,
    counts: [u16; 3],
}

impl Written {
    fn to(asked: &str, kind: Kind, code: u8) -> Self {
        let mut bytes = question(ID, &name(asked), kind, false);
        bytes[2] = 0x81;
        bytes[3] = 0x80 | code;
        Self { bytes, counts: [0; 3] }
    }

    fn with(mut self, section: usize, owner: &str, (kind, ttl): (u16, u32), data: &[u8]) -> Self {
        name(owner).write(&mut self.bytes);
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend(CLASS_IN.to_be_bytes());
        self.bytes.extend(ttl.to_be_bytes());
        self.bytes.extend((data.len() as u16).to_be_bytes());
        self.bytes.extend(data);
        self.counts[section] += 1;
        let counts = self.counts.map(u16::to_be_bytes).concat();
        self.bytes[6..12].copy_from_slice(&counts);
        self
    }

    fn a(self, owner: &str, ttl: u32, last: u8) -> Self {
        self.with(0, owner, (1, ttl), &[10, 0, 0, last])
    }

    fn alias(self, owner: &str, ttl: u32, target: &str) -> Self {
        let mut data = Vec::new();
        name(target).write(&mut data);
        self.with(0, owner, (TYPE_CNAME, ttl), &data)
    }

    fn meaning(&self, asked: &str, kind: Kind) -> Meaning {
        Answer::read(&self.bytes, ID, &name(asked), kind).expect("an answer").meaning()
    }
}

fn ten(last: &[u8]) -> Vec<IpAddr> {
    last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
}

#[test]
fn a_question_is_as_others_write_it() {
    let bytes = question(ID, &name("a.b"), Kind::Aaaa, true);
    let expected = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01a\x01b\x00\x00\x1c\x00\x01\
        \x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
    assert_eq!(bytes, expected);
}

#[test]
fn addresses_are_sorted_and_live_as_long_as_the_first_to_go() {
    let written = Written::to("a.b", Kind::A, 0).a("a.b", 30, 2).a("A.B", 20, 1).a("a.b", 30, 2);
    assert_eq!(written.meaning("a.b", Kind::A), Meaning::Addresses(ten(&[1, 2]), 20));
}

#[test]
fn records_of_other_names_do_not_answer() {
    let written = Written::to("a.b", Kind::A, 0).a("a.b", 30, 1).a("evil.b", 30, 9);
    assert_eq!(written.meaning("a.b", Kind::A), Meaning::Addresses(ten(&[1]), 30));
}

#[test]
fn aliases_are_followed_in_any_order_and_bound_the_time_to_live() {
    let written = Written::to("a.b", Kind::A, 0).a("c.b", 30, 1).alias("b.b", 40, "c.b").alias("a.b", 5, "b.b");
    assert_eq!(written.meaning("a.b", Kind::A), Meaning::Addresses(ten(&[1]), 5));
    let circle = Written::to("a.b", Kind::A, 0).alias("a.b", 5, "b.b").alias("b.b", 5, "a.b");
    assert_eq!(circle.meaning("a.b", Kind::A), Meaning::Refused(Refused::Aliases));
    let open = Written::to("a.b", Kind::A, 0).alias("a.b", 5, "elsewhere");
    assert_eq!(open.meaning("a.b", Kind::A), Meaning::Refused(Refused::Aliases), "nothing is known of where it leads");
}

#[test]
fn a_name_without_addresses_and_no_name_are_told_apart() {
    let mut soa = vec![0, 0];
    soa.extend([0; 16]);
    soa.extend(60u32.to_be_bytes());
    let nothing = Written::to("a.b", Kind::A, 0).with(1, "b", (TYPE_SOA, 30), &soa);
    assert_eq!(nothing.meaning("a.b", Kind::A), Meaning::Nothing(Some(30)));
    let no_name = Written::to("a.b", Kind::A, 3).with(1, "b", (TYPE_SOA, 300), &soa);
    assert_eq!(no_name.meaning("a.b", Kind::A), Meaning::NoName(Some(60)));
    assert_eq!(Written::to("a.b", Kind::A, 0).meaning("a.b", Kind::A), Meaning::Nothing(None));
    for (code, refused) in [(1, Refused::Format), (2, Refused::Failure), (5, Refused::Unwilling), (4, Refused::Code(4))]
    {
        assert_eq!(Written::to("a.b", Kind::A, code).meaning("a.b", Kind::A), Meaning::Refused(refused));
    }
}

#[test]
fn a_referral_is_no_answer() {
    let mut referral = Written::to("a.b", Kind::A, 0).with(1, "b", (2, 30), &[0]);
    referral.bytes[3] = 0;
    assert_eq!(referral.meaning("a.b", Kind::A), Meaning::Refused(Refused::Referral));
}

#[test]
fn places_have_priority_weight_port_and_host() {
    let mut data = [0, 1, 0, 20, 0x1f, 0x90].to_vec();
    name("one.b").write(&mut data);
    let written = Written::to("_h._tcp.b", Kind::Srv, 0).with(0, "_h._tcp.b", (33, 7), &data);
    let place = Srv { priority: 1, weight: 20, port: 8080, target: name("one.b") };
    assert_eq!(written.meaning("_h._tcp.b", Kind::Srv), Meaning::Places(vec![place], 7));
}

#[test]
fn an_answer_that_was_cut_is_asked_for_again() {
    let mut written = Written::to("a.b", Kind::A, 0).a("a.b", 30, 1);
    written.bytes[2] |= 0x02;
    assert_eq!(written.meaning("a.b", Kind::A), Meaning::Cut);
    written.bytes.truncate(20 + 2);
    assert_eq!(written.meaning("a.b", Kind::A), Meaning::Cut, "wherever it was cut");
}

#[test]
fn what_does_not_answer_the_question_is_not_believed() {
    let written = Written::to("a.b", Kind::A, 0).a("a.b", 30, 1);
    let read = |bytes: &[u8], id, asked, kind| Answer::read(bytes, id, &name(asked), kind).is_some();
    assert!(read(&written.bytes, ID, "a.b", Kind::A));
    assert!(!read(&written.bytes, 1, "a.b", Kind::A), "another id");
    assert!(!read(&written.bytes, ID, "a.c", Kind::A), "another name");
    assert!(!read(&written.bytes, ID, "a.b", Kind::Aaaa), "another kind");
    let mut asking = written.bytes.clone();
    asking[2] &= 0x7f;
    assert!(!read(&asking, ID, "a.b", Kind::A), "a question");
}

#[test]
fn an_answer_cut_short_without_saying_so_is_none() {
    let written = Written::to("a.b", Kind::A, 0).a("a.b", 30, 1).alias("x.b", 5, "y.b").a("a.b", 30, 3);
    for end in 0..written.bytes.len() {
        assert!(Answer::read(&written.bytes[..end], ID, &name("a.b"), Kind::A).is_none(), "{end}");
    }
}

#[test]
fn records_of_the_wrong_length_and_more_than_are_there_are_no_answer() {
    let short = Written::to("a.b", Kind::A, 0).with(0, "a.b", (1, 30), &[10, 0, 0]);
    assert!(Answer::read(&short.bytes, ID, &name("a.b"), Kind::A).is_none());
    let mut many = Written::to("a.b", Kind::A, 0).a("a.b", 30, 1).bytes;
    many[6..8].copy_from_slice(&[0xff, 0xff]);
    assert!(Answer::read(&many, ID, &name("a.b"), Kind::A).is_none());
    let mut beside = [0, 1, 0, 20, 0x1f, 0x90].to_vec();
    name("one.b").write(&mut beside);
    beside.push(0);
    let srv = Written::to("a.b", Kind::Srv, 0).with(0, "a.b", (33, 30), &beside);
    assert!(Answer::read(&srv.bytes, ID, &name("a.b"), Kind::Srv).is_none());
}

#[test]
fn the_extended_code_counts_and_a_time_to_live_with_the_first_bit_is_none() {
    let bad_version = Written::to("a.b", Kind::A, 0).with(2, "x", (TYPE_OPT, 1 << 24), &[]);
    assert_eq!(bad_version.meaning("a.b", Kind::A), Meaning::Refused(Refused::Code(16)));
    let huge = Written::to("a.b", Kind::A, 0).a("a.b", u32::MAX, 1);
    assert_eq!(huge.meaning("a.b", Kind::A), Meaning::Addresses(ten(&[1]), 0));
}
