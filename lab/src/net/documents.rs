//! Documents that compress as real ones do: JSON records and HTML pages of varied words and numbers, always the same for a size.

use std::fmt::Write;

/// What the origin answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    /// One line, repeated.
    Plain,
    /// Records of a shop.
    Json,
    /// Articles with links and lists.
    Html,
}

impl Content {
    /// What a target asks for by the segment before its last: `/json/10k`, `/html/100k`; anything else is plain.
    pub(crate) fn of(target: &str) -> Self {
        let path = target.split('?').next().unwrap_or(target);
        match path.rsplit('/').nth(1) {
            Some("json") => Self::Json,
            Some("html") => Self::Html,
            _ => Self::Plain,
        }
    }

    /// The media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain",
            Self::Json => "application/json",
            Self::Html => "text/html; charset=utf-8",
        }
    }

    /// The body of this size. A document is cut off only when its size does not even hold its frame.
    pub(crate) fn body(self, size: usize) -> Vec<u8> {
        let mut chance = Chance(0x5eed);
        match self {
            Self::Plain => (0..size).map(|at| b"equipoise-lab\n"[at % 14]).collect(),
            Self::Json => {
                let total = chance.between(1_000, 90_000);
                let head = format!("{{\"total\":{total},\"page\":1,\"items\":[");
                assemble(size, &mut chance, head, record, ["],\"note\":\"", "\"}\n"])
            }
            Self::Html => {
                let head = page_head(&mut chance);
                assemble(size, &mut chance, head, article, ["<footer><p>", "</p></footer>\n</body>\n</html>\n"])
            }
        }
    }
}

/// As many parts as have room, then words up to the size exactly, then the end. All of it is ASCII.
fn assemble(
    size: usize,
    chance: &mut Chance,
    head: String,
    part: fn(&mut Chance, usize) -> String,
    [words, end]: [&str; 2],
) -> Vec<u8> {
    let mut text = head;
    for number in 0.. {
        let next = part(chance, number);
        if text.len() + next.len() + words.len() + end.len() > size {
            break;
        }
        text.push_str(&next);
    }
    text.push_str(words);
    while text.len() + end.len() < size {
        text.push_str(chance.word());
        text.push(' ');
    }
    text.truncate(size.saturating_sub(end.len()));
    text.push_str(end);
    text.truncate(size);
    text.into_bytes()
}

fn record(chance: &mut Chance, number: usize) -> String {
    let mut text = String::from(if number == 0 { "\n" } else { ",\n" });
    let (first, last, city) = (chance.of(FIRST_NAMES), chance.of(LAST_NAMES), chance.of(CITIES));
    let (day, hour) = (chance.between(1, 28), chance.between(0, 23));
    let id = chance.next();
    let _ = write!(text, "{{\"id\":\"{id:016x}\",\"number\":{},", 40_000 + 7 * number);
    let _ = write!(text, "\"title\":\"{} {}\",", capital(chance.word()), chance.word());
    let _ = write!(text, "\"seller\":{{\"name\":\"{first} {last}\",");
    let (first, last) = (first.to_lowercase(), last.to_lowercase());
    let _ = write!(text, "\"email\":\"{first}.{last}{}@example.com\",", chance.between(1, 99));
    let _ = write!(text, "\"city\":\"{city}\",\"verified\":{}}},", chance.between(0, 3) > 0);
    let _ = write!(text, "\"created\":\"2026-{:02}-{day:02}T{hour:02}:", chance.between(1, 12));
    let _ = write!(text, "{:02}:{:02}Z\",", chance.between(0, 59), chance.between(0, 59));
    let _ = write!(text, "\"price\":{}.{:02},", chance.between(1, 900), chance.between(0, 99));
    let _ =
        write!(text, "\"stock\":{},\"rating\":{}.{},", chance.between(0, 500), chance.between(1, 4), chance.digit());
    let _ = write!(text, "\"position\":[{}.{:05},", chance.between(35, 60), chance.between(0, 99_999));
    let _ = write!(text, "{}.{:05}],\"tags\":[", chance.between(1, 25), chance.between(0, 99_999));
    for tag in 0..chance.between(1, 4) {
        let _ = write!(text, "{}\"{}\"", if tag == 0 { "" } else { "," }, chance.word());
    }
    let _ = write!(text, "],\"description\":\"");
    for sentence in 0..chance.between(1, 3) {
        let _ = write!(text, "{}{}", if sentence == 0 { "" } else { " " }, chance.sentence());
    }
    text.push_str("\"}");
    text
}

fn page_head(chance: &mut Chance) -> String {
    let title = format!("{} {} {}", capital(chance.word()), chance.word(), chance.word());
    let mut text = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    let _ = writeln!(text, "<title>{title}</title>");
    let _ = writeln!(text, "<link rel=\"stylesheet\" href=\"/assets/site-{:08x}.css\">", chance.next() as u32);
    let _ = writeln!(text, "<script defer src=\"/assets/site-{:08x}.js\"></script>", chance.next() as u32);
    let _ = writeln!(text, "</head>\n<body class=\"page\">\n<nav class=\"menu\"><ul>");
    for _ in 0..8 {
        let word = chance.word();
        let _ = writeln!(text, "<li class=\"item\"><a href=\"/{word}/\">{}</a></li>", capital(word));
    }
    let _ = writeln!(text, "</ul></nav>\n<h1>{title}</h1>");
    text
}

fn article(chance: &mut Chance, number: usize) -> String {
    let (one, other) = (chance.word(), chance.word());
    let mut text = format!("<article class=\"entry\" id=\"entry-{number}\">\n");
    let _ = writeln!(text, "  <h2><a href=\"/{one}/{other}-{}.html\">", chance.between(100, 99_999));
    let _ = writeln!(text, "    {} {other} {}</a></h2>", capital(one), chance.word());
    let (name, day) = (chance.of(FIRST_NAMES), chance.between(1, 28));
    let date = format!("2026-{:02}-{day:02}", chance.between(1, 12));
    let _ = writeln!(text, "  <p class=\"by\">by <b>{name} {}</b>,", chance.of(LAST_NAMES));
    let _ = writeln!(text, "    <time datetime=\"{date}\">{date}</time>, {}</p>", chance.of(CITIES));
    let (image, width) = (chance.next() as u32, 40 * chance.between(4, 30));
    let _ = writeln!(text, "  <img src=\"/images/{image:08x}.webp\" width=\"{width}\" alt=\"{}\">", chance.word());
    for _ in 0..chance.between(1, 3) {
        text.push_str("  <p>");
        for _ in 0..chance.between(1, 4) {
            let _ = write!(text, "{} ", chance.sentence());
        }
        let _ = writeln!(text, "<a href=\"/{}/{}\">{}</a>.</p>", chance.word(), chance.word(), chance.word());
    }
    if chance.between(0, 2) == 0 {
        text.push_str("  <ul class=\"list\">\n");
        for _ in 0..chance.between(2, 5) {
            let _ = writeln!(text, "    <li>{}: <em>{}</em></li>", capital(chance.word()), chance.between(1, 9_999));
        }
        text.push_str("  </ul>\n");
    }
    text.push_str("</article>\n");
    text
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

/// Numbers that only look random (SplitMix64), for the documents have to be the same in all processes and runs.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    fn digit(&mut self) -> u64 {
        self.between(0, 9)
    }

    fn of(&mut self, words: &[&'static str]) -> &'static str {
        words[self.next() as usize % words.len()]
    }

    /// A word; the first of the list come much more often than the last, as in a language.
    fn word(&mut self) -> &'static str {
        let share = self.next() as f64 / u64::MAX as f64;
        let at = (share * share * WORDS.len() as f64) as usize;
        WORDS[at.min(WORDS.len() - 1)]
    }

    fn sentence(&mut self) -> String {
        let mut text = capital(self.word());
        for _ in 0..self.between(4, 14) {
            text.push_str(if self.between(0, 11) == 0 { ", " } else { " " });
            text.push_str(self.word());
        }
        text.push('.');
        text
    }
}

const FIRST_NAMES: &[&str] = &[
    "Anna", "Bruno", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Katja", "Leon", "Maria",
    "Nils", "Olga", "Paul", "Rosa", "Simon", "Tessa", "Viktor",
];
const LAST_NAMES: &[&str] = &[
    "Albrecht", "Bianchi", "Carlsen", "Dubois", "Eriksson", "Fischer", "Garcia", "Hansen", "Ivanova", "Jansen",
    "Kowalski", "Lindgren", "Moreau", "Novak", "Okafor", "Petrov", "Rossi", "Santos", "Tanaka", "Weber",
];
const CITIES: &[&str] = &[
    "Amsterdam",
    "Barcelona",
    "Copenhagen",
    "Dublin",
    "Edinburgh",
    "Florence",
    "Geneva",
    "Hamburg",
    "Istanbul",
    "Krakow",
    "Lisbon",
    "Munich",
    "Naples",
    "Oslo",
    "Prague",
    "Rotterdam",
    "Stockholm",
    "Turin",
    "Vienna",
    "Zurich",
];
const WORDS: &[&str] = &[
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "for",
    "it",
    "with",
    "as",
    "on",
    "are",
    "by",
    "this",
    "from",
    "or",
    "an",
    "be",
    "at",
    "which",
    "not",
    "have",
    "one",
    "all",
    "new",
    "more",
    "other",
    "time",
    "can",
    "their",
    "use",
    "first",
    "many",
    "each",
    "about",
    "make",
    "work",
    "after",
    "year",
    "small",
    "large",
    "water",
    "place",
    "house",
    "light",
    "short",
    "order",
    "ground",
    "number",
    "people",
    "system",
    "world",
    "under",
    "service",
    "public",
    "price",
    "garden",
    "market",
    "paper",
    "window",
    "table",
    "summer",
    "winter",
    "morning",
    "evening",
    "river",
    "mountain",
    "forest",
    "village",
    "street",
    "bridge",
    "station",
    "journey",
    "letter",
    "picture",
    "colour",
    "silver",
    "golden",
    "leather",
    "cotton",
    "wooden",
    "kitchen",
    "bottle",
    "basket",
    "blanket",
    "candle",
    "mirror",
    "hammer",
    "needle",
    "engine",
    "bicycle",
    "camera",
    "printer",
    "keyboard",
    "battery",
    "charger",
    "adapter",
    "measure",
    "weather",
    "quarter",
    "history",
    "science",
    "library",
    "teacher",
    "student",
    "doctor",
    "nurse",
    "farmer",
    "baker",
    "painter",
    "writer",
    "singer",
    "captain",
    "soldier",
    "neighbour",
    "stranger",
    "visitor",
    "customer",
    "manager",
    "company",
    "factory",
    "product",
    "quality",
    "balance",
    "budget",
    "contract",
    "delivery",
    "discount",
    "document",
    "exchange",
    "festival",
    "guarantee",
    "holiday",
    "insurance",
    "kingdom",
    "language",
    "material",
    "network",
    "opinion",
    "package",
    "question",
    "reason",
    "schedule",
    "transport",
    "umbrella",
    "vehicle",
    "warranty",
    "yellow",
    "ancient",
    "broken",
    "careful",
    "distant",
    "electric",
    "frequent",
    "gentle",
    "hollow",
    "innocent",
    "jealous",
    "kind",
    "lonely",
    "modern",
    "narrow",
    "ordinary",
    "patient",
    "quiet",
    "rapid",
    "secret",
    "tender",
    "useful",
    "valuable",
    "wonderful",
    "agree",
    "borrow",
    "carry",
    "deliver",
    "explain",
    "follow",
    "gather",
    "happen",
    "improve",
    "join",
    "listen",
    "mention",
    "notice",
    "observe",
    "prepare",
    "receive",
    "suggest",
    "travel",
    "understand",
    "wander",
    "almost",
    "beyond",
    "certainly",
    "directly",
    "eventually",
    "finally",
    "generally",
    "however",
    "instead",
    "mostly",
    "nearly",
    "otherwise",
    "perhaps",
    "quickly",
    "rather",
    "several",
    "therefore",
    "usually",
    "whether",
    "yesterday",
];

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    #[test]
    fn the_segment_before_the_size_says_what_is_asked_for() {
        for (target, content) in [
            ("/json/10k", Content::Json),
            ("/any/html/100k?x=/1", Content::Html),
            ("/12", Content::Plain),
            ("/p5000/12", Content::Plain),
            ("/json", Content::Plain),
        ] {
            assert_eq!(Content::of(target), content, "{target}");
        }
    }

    #[test]
    fn a_document_has_its_size_and_is_whole_and_the_same_each_time() {
        for size in [1_000, 10_000, 100_000] {
            let (json, html) = (Content::Json.body(size), Content::Html.body(size));
            assert_eq!((json.len(), html.len()), (size, size));
            assert_eq!((&json, &html), (&Content::Json.body(size), &Content::Html.body(size)));
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert!(value["items"].as_array().unwrap().len() >= size / 1_000);
            let html = String::from_utf8(html).unwrap();
            assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
            assert_eq!(html.matches("<article").count(), html.matches("</article>").count());
        }
        assert_eq!(Content::Json.body(12).len(), 12);
    }

    #[test]
    fn documents_compress_as_real_ones_do() {
        for content in [Content::Json, Content::Html] {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
            encoder.write_all(&content.body(100_000)).unwrap();
            let times = 100_000.0 / encoder.finish().unwrap().len() as f64;
            assert!((2.5..6.0).contains(&times), "{content:?} becomes {times:.1} times smaller");
        }
    }
}
