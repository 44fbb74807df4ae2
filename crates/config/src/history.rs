//! A history of generations as a file keeps it. Pure: from entries to text and back.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The version of what is written.
const FORMAT: u32 = 1;
/// No one counts further, and what reads JSON elsewhere cannot.
const GENERATION_MAX: u64 = 1 << 53;
/// The end of the year 9999.
const UNIX_MS_MAX: u64 = 253_402_300_799_999;

/// A generation that is kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeptGeneration {
    /// From 1.
    pub generation: u64,
    /// When it went live, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What made it.
    pub origin: String,
    /// Who, if it came by the API.
    pub author: Option<String>,
    /// How it was tried before, if it was.
    pub tried: Option<String>,
    /// What was different from the generation before.
    pub differences: Vec<KeptDifference>,
    /// How many more differences there were.
    pub left_out: u64,
    /// All of its configuration, secrets included. Generations of one text share it.
    pub text: Option<Arc<str>>,
}

/// Its text may hold secrets.
impl fmt::Debug for KeptGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (origin, text) = (&self.origin, self.text.as_ref().map(|text| text.len()));
        write!(f, "KeptGeneration({} by {origin} at {} ms, {text:?} bytes)", self.generation, self.at_unix_ms)
    }
}

/// One place that was different. Values are in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptDifference {
    /// Where.
    pub path: String,
    /// What was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Serialize)]
struct Writing<'a> {
    format: u32,
    generations: Vec<Line>,
    texts: Vec<&'a str>,
}

/// Read before the others: what they are, it says.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    #[serde(rename = "format")]
    _format: u32,
    generations: Vec<Line>,
    texts: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    generation: u64,
    at_unix_ms: u64,
    origin: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tried: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    differences: Vec<KeptDifference>,
    #[serde(default)]
    left_out: u64,
    /// The place of its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<usize>,
}

/// Writes generations, oldest first, as [`read_history`] reads them.
pub fn write_history(all: &[KeptGeneration]) -> String {
    let mut texts: Vec<&Arc<str>> = Vec::new();
    let generations = all.iter().map(|kept| line(kept, &mut texts)).collect();
    let texts = texts.into_iter().map(|text| &**text).collect();
    // There is nothing in it that JSON cannot say.
    serde_json::to_string_pretty(&Writing { format: FORMAT, generations, texts }).unwrap_or_default()
}

fn line<'a>(kept: &'a KeptGeneration, texts: &mut Vec<&'a Arc<str>>) -> Line {
    let text = kept.text.as_ref().map(|text| {
        let known = texts.iter().position(|known| Arc::ptr_eq(known, text) || *known == text);
        known.unwrap_or_else(|| {
            texts.push(text);
            texts.len() - 1
        })
    });
    Line {
        generation: kept.generation,
        at_unix_ms: kept.at_unix_ms,
        origin: kept.origin.clone(),
        author: kept.author.clone(),
        tried: kept.tried.clone(),
        differences: kept.differences.clone(),
        left_out: kept.left_out,
        text,
    }
}

/// Reads what [`write_history`] has written: generations, oldest first.
///
/// # Errors
/// It is something else, of another time, or damaged: a sentence.
pub fn read_history(text: &str) -> Result<Vec<KeptGeneration>, String> {
    let failed = |error: serde_json::Error| error.to_string();
    let head: Head = serde_json::from_str(text).map_err(failed)?;
    if head.format != FORMAT {
        return Err(format!("its format is {}, and this program knows {FORMAT}", head.format));
    }
    let Reading { generations, texts, .. } = serde_json::from_str(text).map_err(failed)?;
    let texts: Vec<Arc<str>> = texts.into_iter().map(Arc::from).collect();
    let mut last = 0;
    let mut all = Vec::with_capacity(generations.len());
    for line in generations {
        let generation = line.generation;
        if generation <= last || generation > GENERATION_MAX {
            return Err(format!("generation {generation} cannot come after {last}"));
        }
        if line.at_unix_ms > UNIX_MS_MAX {
            return Err(format!("generation {generation} has an invalid time"));
        }
        let missing = || format!("the text of generation {generation} is missing");
        let text = line.text.map(|place| texts.get(place).cloned().ok_or_else(missing)).transpose()?;
        all.push(KeptGeneration {
            generation,
            at_unix_ms: line.at_unix_ms,
            origin: line.origin,
            author: line.author,
            tried: line.tried,
            differences: line.differences,
            left_out: line.left_out,
            text,
        });
        last = generation;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(generation: u64, text: Option<&Arc<str>>) -> KeptGeneration {
        let text = text.cloned();
        KeptGeneration { generation, at_unix_ms: 1_795_311_580_842, origin: "api".into(), text, ..<_>::default() }
    }

    #[test]
    fn what_is_written_is_read_back_and_one_text_is_written_once() {
        let (first, second): (Arc<str>, Arc<str>) = ("version: 1\n# first".into(), "version: 1\n# second".into());
        let difference = KeptDifference { path: "clusters/a".into(), before: None, after: Some("{\"x\":1}".into()) };
        let all = [
            kept(3, Some(&first)),
            KeptGeneration { author: Some("hand".into()), differences: vec![difference], ..kept(4, Some(&second)) },
            KeptGeneration { tried: Some("it did well".into()), left_out: 7, ..kept(7, None) },
            kept(9, Some(&first)),
        ];
        let text = write_history(&all);
        assert_eq!(text.matches("# first").count(), 1);
        assert_eq!(read_history(&text).unwrap(), all);
        assert!(read_history(&write_history(&[])).unwrap().is_empty());
        assert!(!format!("{all:?}").contains("version"), "texts may hold secrets");
    }

    #[test]
    fn what_is_something_else_is_refused_with_a_reason() {
        let line = r#"{ "generation": 1, "at_unix_ms": 5, "origin": "start" }"#;
        let of = |generations: &str| format!(r#"{{ "format": 1, "generations": [{generations}], "texts": ["a"] }}"#);
        assert!(read_history(&of(line)).is_ok());
        for (text, wanted) in [
            (String::new(), "EOF while parsing"),
            ("[]".into(), "invalid length 0"),
            ("{}".into(), "missing field `format`"),
            ("not JSON".into(), "expected ident"),
            (r#"{ "format": 2, "generations": "other" }"#.into(), "its format is 2, and this program knows 1"),
            (r#"{ "format": 1, "changes": {}, "wishes": [] }"#.into(), "unknown field `changes`"),
            (of(line)[..60].into(), "EOF while parsing"),
            (of(&line.replace('1', "0")), "generation 0 cannot come after 0"),
            (of(&format!("{line}, {line}")), "generation 1 cannot come after 1"),
            (of(&line.replace(": 1,", ": 9007199254740993,")), "generation 9007199254740993 cannot come after 0"),
            (of(&line.replace(": 5,", ": 253402300800000,")), "generation 1 has an invalid time"),
            (of(&line.replace(" }", ", \"text\": 1 }")), "the text of generation 1 is missing"),
            (of(&line.replace(" }", ", \"txt\": 1 }")), "unknown field `txt`"),
        ] {
            let why = read_history(&text).unwrap_err();
            assert!(why.contains(wanted), "{text}: {why}");
        }
    }
}
