//! The subject of a certificate in one line (RFC 4514): no value can look like another part of the name.
//!
//! All of it is ASCII, so that it fits a header field: other bytes are escaped one by one, as OpenSSL does.

// Universal tags of DER (X.690 section 8).
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const T61_STRING: u8 = 0x14;
const VIDEOTEX_STRING: u8 = 0x15;
const IA5_STRING: u8 = 0x16;
const GRAPHIC_STRING: u8 = 0x19;
const VISIBLE_STRING: u8 = 0x1a;
const GENERAL_STRING: u8 = 0x1b;
const UNIVERSAL_STRING: u8 = 0x1c;
const BMP_STRING: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version of a certificate, which those of version 1 leave out (RFC 5280 section 4.1).
const VERSION: u8 = 0xa0;

/// The type of common names.
const CN: &[u8] = &[0x55, 4, 3];

/// What types of attributes are called: first those of RFC 4514 section 3, then others as OpenSSL calls them.
const TYPES: [(&[u8], &str); 19] = [
    (CN, "CN"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 43], "initials"),
    (&[0x55, 4, 44], "generationQualifier"),
    (&[0x55, 4, 46], "dnQualifier"),
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 97], "organizationIdentifier"),
];

/// One element of DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// With tag and length.
    whole: &'a [u8],
}

/// The subject of a certificate in DER, such as `CN=ann,OU=Admins,O=Acme`: the last part in the certificate comes first. Returns `None` if
/// it is not a certificate. A subject that cannot be read as a name is shown as hexadecimal bytes, after `#`.
pub fn subject(certificate: &[u8]) -> Option<String> {
    line(&name(certificate, SUBJECT)?)
}

/// Returns the issuer of a certificate in DER, written as [`subject`] is.
pub fn issuer(certificate: &[u8]) -> Option<String> {
    line(&name(certificate, ISSUER)?)
}

fn line(name: &Element<'_>) -> Option<String> {
    let mut line = String::new();
    if write_name(name, &mut line).is_none() {
        line.clear();
        push_bytes(name.whole, &mut line);
    }
    Some(line)
}

/// The common name of what is most specific in the subject of a certificate in DER, which stands last (RFC 4514 section 2.1): `ann`
/// of `DC=com,DC=corp,CN=Users,CN=ann`. `None`: there is none, it is no text, or two stand side by side there.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let mut found = None;
    for relative in parts(&name(certificate, SUBJECT)?, SEQUENCE)? {
        let mut here = Vec::new();
        for attribute in parts(&relative, SET)? {
            let [kind, value] = &parts(&attribute, SEQUENCE)?[..] else { return None };
            if (kind.tag, kind.content) == (OBJECT_ID, CN) {
                here.push(text(value));
            }
        }
        match here.len() {
            0 => {}
            1 => found = here.pop().flatten(),
            _ => found = None,
        }
    }
    found
}

/// Elements between the serial number and a name: algorithm; or that, the issuer and the validity.
const ISSUER: usize = 1;
const SUBJECT: usize = 3;

/// A name in a certificate, as it stands there.
fn name(certificate: &[u8], behind: usize) -> Option<Element<'_>> {
    let (certificate, _) = element(certificate)?;
    let (signed, _) = element(certificate.content)?;
    let (first, mut rest) = element(signed.content)?;
    // The serial number, unless that was it.
    let skipped = if first.tag == VERSION { behind + 1 } else { behind };
    for _ in 0..skipped {
        (_, rest) = element(rest)?;
    }
    let (name, _) = element(rest)?;
    Some(name)
}

/// The first element, and what follows it. Tags of several bytes and lengths beyond 16 MiB are none that names have.
fn element(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x83 => {
            let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = after;
            digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit))
        }
        _ => return None,
    };
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (content, after) = rest.split_at_checked(length)?;
    Some((Element { tag, content, whole: &bytes[..bytes.len() - after.len()] }, after))
}

/// What an element of this tag is made of.
fn parts<'a>(of: &Element<'a>, tag: u8) -> Option<Vec<Element<'a>>> {
    if of.tag != tag {
        return None;
    }
    let (mut parts, mut rest) = (Vec::new(), of.content);
    while !rest.is_empty() {
        let (part, after) = element(rest)?;
        parts.push(part);
        rest = after;
    }
    Some(parts)
}

/// RFC 4514 section 2.1 and 2.2. `None`: it is no name, and what is written is of no use.
fn write_name(name: &Element<'_>, out: &mut String) -> Option<()> {
    for (place, relative) in parts(name, SEQUENCE)?.iter().rev().enumerate() {
        if place > 0 {
            out.push(',');
        }
        for (place, attribute) in parts(relative, SET)?.iter().enumerate() {
            if place > 0 {
                out.push('+');
            }
            write_attribute(attribute, out)?;
        }
    }
    Some(())
}

/// RFC 4514 sections 2.3 and 2.4.
fn write_attribute(attribute: &Element<'_>, out: &mut String) -> Option<()> {
    let parts = parts(attribute, SEQUENCE)?;
    let [kind, value] = &parts[..] else { return None };
    if kind.tag != OBJECT_ID {
        return None;
    }
    let name = TYPES.iter().find(|(id, _)| *id == kind.content).map(|(_, name)| *name);
    match name {
        Some(name) => out.push_str(name),
        None => write_dotted(kind.content, out)?,
    }
    out.push('=');
    match text(value).filter(|_| name.is_some()) {
        Some(text) => write_escaped(&text, out),
        None => push_bytes(value.whole, out),
    }
    Some(())
}

/// An object identifier as numbers with dots (X.690 section 8.19).
fn write_dotted(id: &[u8], out: &mut String) -> Option<()> {
    if id.last()? & 0x80 != 0 {
        return None;
    }
    let (mut number, mut is_first) = (0_u64, true);
    for &byte in id {
        number = number.checked_mul(128)? + u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if is_first {
            let root = (number / 40).min(2);
            out.push_str(&format!("{root}.{}", number - root * 40));
        } else {
            out.push_str(&format!(".{number}"));
        }
        (number, is_first) = (0, false);
    }
    Some(())
}

/// What a value says, where its type is one of text and it holds such text. What T61 and its like mean beyond ASCII is read in
/// more ways than one, so that such values are told byte by byte.
fn text(value: &Element<'_>) -> Option<String> {
    let bytes = value.content;
    match value.tag {
        UTF8_STRING | NUMERIC_STRING | PRINTABLE_STRING | IA5_STRING | VISIBLE_STRING => {
            String::from_utf8(bytes.to_vec()).ok()
        }
        T61_STRING | VIDEOTEX_STRING | GRAPHIC_STRING | GENERAL_STRING if bytes.is_ascii() => {
            String::from_utf8(bytes.to_vec()).ok()
        }
        BMP_STRING => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
            char::decode_utf16(units).collect::<Result<String, _>>().ok().filter(|_| rest.is_empty())
        }
        UNIVERSAL_STRING => {
            let (units, rest) = bytes.as_chunks::<4>();
            let units = units.iter().map(|unit| char::from_u32(u32::from_be_bytes(*unit)));
            units.collect::<Option<String>>().filter(|_| rest.is_empty())
        }
        _ => None,
    }
}

/// RFC 4514 section 2.4. Spaces at the ends are written as bytes too: fields are trimmed.
fn write_escaped(text: &str, out: &mut String) {
    for (place, byte) in text.bytes().enumerate() {
        let is_end = place == 0 || place + 1 == text.len();
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => out.extend(['\\', char::from(byte)]),
            b'#' if place == 0 => out.push_str("\\#"),
            b'!'..=b'~' => out.push(char::from(byte)),
            b' ' if !is_end => out.push(' '),
            _ => {
                out.push('\\');
                push_hex(byte, out);
            }
        }
    }
}

fn push_bytes(bytes: &[u8], out: &mut String) {
    out.push('#');
    for &byte in bytes {
        push_hex(byte, out);
    }
}

fn push_hex(byte: u8, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([char::from(HEX[usize::from(byte >> 4)]), char::from(HEX[usize::from(byte & 15)])]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COUNTRY: &[u8] = &[0x55, 4, 6];
    const ORGANISATION: &[u8] = &[0x55, 4, 10];
    const UNIT: &[u8] = &[0x55, 4, 11];
    const NAME: &[u8] = &[0x55, 4, 3];

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        match content.len() {
            length @ 0..0x80 => out.push(length as u8),
            length => out.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        out.extend(content);
        out
    }

    fn attribute(id: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(SEQUENCE, &[der(OBJECT_ID, id), der(tag, value)].concat())
    }

    fn certificate(name: &[u8]) -> Vec<u8> {
        let (serial, empty) = (der(0x02, &[1]), der(SEQUENCE, &[]));
        let version = der(VERSION, &der(0x02, &[2]));
        let signed = [&version[..], &serial, &empty, &empty, &empty, name, &empty].concat();
        der(SEQUENCE, &der(SEQUENCE, &signed))
    }

    /// Each with one attribute, in the order of the certificate.
    fn named(parts: &[(&[u8], &str)]) -> String {
        let one = |(id, value): &(&[u8], &str)| der(SET, &attribute(id, UTF8_STRING, value.as_bytes()));
        let parts: Vec<u8> = parts.iter().flat_map(one).collect();
        subject(&certificate(&der(SEQUENCE, &parts))).unwrap()
    }

    fn told(tag: u8, value: &[u8]) -> String {
        let name = der(SEQUENCE, &der(SET, &attribute(NAME, tag, value)));
        subject(&certificate(&name)).unwrap().strip_prefix("CN=").unwrap().to_owned()
    }

    #[test]
    fn a_name_is_told_from_its_end_with_short_names() {
        assert_eq!(named(&[(COUNTRY, "DE"), (ORGANISATION, "Acme"), (NAME, "ann")]), "CN=ann,O=Acme,C=DE");
        assert_eq!(named(&[]), "");
        let two = [attribute(NAME, PRINTABLE_STRING, b"ann"), attribute(UNIT, IA5_STRING, b"x")].concat();
        let name = der(SEQUENCE, &der(SET, &two));
        assert_eq!(subject(&certificate(&name)).unwrap(), "CN=ann+OU=x");
        assert_eq!(issuer(&certificate(&name)).as_deref(), Some(""), "the issuer of this one is empty");
        // Of version 1.
        let old = der(SEQUENCE, &[&der(0x02, &[1])[..], &der(SEQUENCE, &[]).repeat(3), &name].concat());
        assert_eq!(subject(&der(SEQUENCE, &old)).unwrap(), "CN=ann+OU=x");
        let empty = || der(SEQUENCE, &[]);
        let old = der(SEQUENCE, &[&der(0x02, &[1])[..], &empty(), &name, &empty(), &empty()].concat());
        assert_eq!(issuer(&der(SEQUENCE, &old)).unwrap(), "CN=ann+OU=x");
        let version = der(VERSION, &der(0x02, &[2]));
        let new = der(SEQUENCE, &[&version[..], &der(0x02, &[1]), &empty(), &name, &empty(), &empty()].concat());
        assert_eq!(
            (issuer(&der(SEQUENCE, &new)).unwrap().as_str(), subject(&der(SEQUENCE, &new)).as_deref()),
            ("CN=ann+OU=x", Some(""))
        );
    }

    #[test]
    fn of_several_names_the_most_specific_counts() {
        let of = |parts: &[&[u8]]| common_name(&certificate(&der(SEQUENCE, &parts.concat())));
        let one = |id, tag, value: &[u8]| der(SET, &attribute(id, tag, value));
        let (users, ann) = (one(NAME, UTF8_STRING, b"Users"), one(NAME, PRINTABLE_STRING, b"ann"));
        let (country, empty) = (one(COUNTRY, PRINTABLE_STRING, b"DE"), one(NAME, UTF8_STRING, b""));
        assert_eq!(of(&[&users, &ann, &country]).as_deref(), Some("ann"), "whatever stands behind it");
        assert_eq!(of(&[&ann, &users]).as_deref(), Some("Users"));
        assert_eq!(of(&[&users, &empty]).as_deref(), Some(""), "and nothing less specific in its place");
        assert_eq!(of(&[&one(NAME, BMP_STRING, &[0, b'b', 0, b'o', 0, b'b'])]).as_deref(), Some("bob"));
        let two = der(SET, &[attribute(NAME, UTF8_STRING, b"ann"), attribute(NAME, UTF8_STRING, b"eve")].concat());
        let none: [&[&[u8]]; 6] = [
            &[],
            &[&country],
            &[&users, &two],
            &[&users, &one(NAME, UTF8_STRING, b"\xff")],
            &[&ann, &der(SEQUENCE, &[])],
            &[&ann, &der(SET, &der(SEQUENCE, &[]))],
        ];
        for parts in none {
            assert_eq!(of(parts), None, "{parts:?}");
        }
        assert_eq!((common_name(b""), common_name(b"\x30\x80")), (None, None));
    }

    #[test]
    fn a_value_cannot_look_like_another_part_of_the_name() {
        let honest = named(&[(ORGANISATION, "Acme"), (UNIT, "Admins"), (NAME, "bob")]);
        assert_eq!(honest, "CN=bob,OU=Admins,O=Acme");
        assert_eq!(named(&[(NAME, "bob,OU=Admins,O=Acme")]), r"CN=bob\,OU=Admins\,O=Acme");
        assert_eq!(named(&[(NAME, "a+OU=x;y")]), r"CN=a\+OU=x\;y");
    }

    #[test]
    fn what_could_be_mistaken_is_escaped() {
        for (value, wanted) in [
            ("", ""),
            ("a friend", "a friend"),
            (" a  b ", r"\20a  b\20"),
            (" ", r"\20"),
            ("#a#", r"\#a#"),
            ("\"<\\>\"", r#"\"\<\\\>\""#),
            ("a\r\nX: 1\0\x7f", r"a\0D\0AX: 1\00\7F"),
            ("Jos\u{e9}", r"Jos\C3\A9"),
        ] {
            assert_eq!(told(UTF8_STRING, value.as_bytes()), wanted, "{value:?}");
        }
    }

    #[test]
    fn every_kind_of_text_is_read_and_what_is_none_is_told_byte_by_byte() {
        assert_eq!(told(BMP_STRING, &[0, b'a', 0xd8, 0x3d, 0xde, 0x00]), r"a\F0\9F\98\80");
        assert_eq!(told(UNIVERSAL_STRING, &[0, 0, 0, b'a', 0, 0, 0, 0xe9]), r"a\C3\A9");
        assert_eq!(told(T61_STRING, b"ann"), "ann");
        assert_eq!(told(T61_STRING, b"\xe9"), "#1401E9");
        assert_eq!(told(T61_STRING, b"\xe8"), "#1401E8");
        assert_eq!(told(BMP_STRING, &[0, b'a', 0]), "#1E03006100");
        assert_eq!(told(BMP_STRING, &[0xd8, 0x3d]), "#1E02D83D");
        assert_eq!(told(UNIVERSAL_STRING, &[0, 0x11, 0, 0]), "#1C0400110000");
        assert_eq!(told(UTF8_STRING, b"\xff"), "#0C01FF");
        assert_eq!(told(0x02, &[7]), "#020107");
        let private = named(&[(&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 20, 2, 3], "a")]);
        assert_eq!(private, "1.3.6.1.4.1.311.20.2.3=#0C0161");
        assert_eq!(named(&[(&[0x88, 0x37], "a")]), "2.999=#0C0161");
    }

    #[test]
    fn what_is_no_name_is_told_as_it_is_and_what_is_no_certificate_not_at_all() {
        for name in [
            der(SEQUENCE, &der(SEQUENCE, &[])),
            der(SEQUENCE, &der(SET, &der(SEQUENCE, &der(OBJECT_ID, NAME)))),
            der(SEQUENCE, &der(SET, &attribute(&[0x80], UTF8_STRING, b"a"))),
            der(SEQUENCE, &der(SET, &attribute(&[0xff; 12], UTF8_STRING, b"a"))),
            der(SET, &[]),
            der(SEQUENCE, &[SET, 5, 0]),
        ] {
            let mut whole = String::new();
            push_bytes(&name, &mut whole);
            assert_eq!(subject(&certificate(&name)), Some(whole));
        }
        let whole = certificate(&der(SEQUENCE, &[]));
        for length in 0..whole.len() {
            assert_eq!(subject(&whole[..length]), None, "{length}");
        }
        assert_eq!(subject(b"\x30\x80\x30\x80"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), is_name: bool) {
            let bytes = if is_name { certificate(&der(SEQUENCE, &bytes)) } else { bytes };
            let _ = common_name(&bytes);
            if let Some(line) = subject(&bytes) {
                prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            }
        }

        #[test]
        fn two_names_are_never_told_alike(
            one in proptest::collection::vec("[ #+,=\\\\CNé]{0,6}", 0..4),
            other in proptest::collection::vec("[ #+,=\\\\CNé]{0,6}", 0..4),
        ) {
            let tell = |values: &[String]| {
                named(&values.iter().map(|value| (NAME, value.as_str())).collect::<Vec<_>>())
            };
            prop_assert_eq!(one == other, tell(&one) == tell(&other));
        }
    }
}
