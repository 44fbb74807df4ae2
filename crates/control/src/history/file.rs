//! The history on disk, so that generations from before a restart can be shown and restored.
//!
//! It is less important than the configuration: a history that cannot be read delays nothing, and one that cannot be written loses only
//! its last generations.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{KeptDifference, KeptGeneration, Whole};
use serde_json::Value;

use super::{Entry, Origin};
use crate::atomic_file::stage_file;
use crate::difference::{Difference, Differences};

/// Name of the file in the folder of what is kept.
pub(crate) const FILE: &str = "history.json";
/// Where one that is not understood is put.
const ASIDE: &str = "history.json.unread";
/// Largest file that is read. One of ours is far smaller, unless its texts are nothing but quotes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Texts in it, together; those of the oldest are left out.
const TEXTS_BYTES_MAX: usize = 8 << 20;
/// Largest text in it: with every change of a configuration the whole of it would be written.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Differences of one generation in it.
const DIFFERENCES_MAX: usize = 50;

/// The texts as last written, with their objects: rendering them again is slow.
pub(super) type Known = Vec<(Whole, Arc<str>)>;

/// Reads the history of a folder, oldest first. A file that cannot be read is put aside and reported.
pub(crate) fn take_up(folder: &Path) -> Vec<Entry> {
    let why = match read(folder) {
        Ok(entries) => return entries,
        Err(why) => why,
    };
    let place = folder.join(FILE);
    let aside = match fs::rename(&place, folder.join(ASIDE)) {
        Ok(()) => ASIDE.to_owned(),
        Err(error) => format!("still there: {error}"),
    };
    let file = place.display();
    let pairs: telemetry::log::Pairs<'_> = &[("file", &file), ("why", &why), ("now", &aside)];
    telemetry::log::warn("the history of generations cannot be read and starts empty", pairs);
    Vec::new()
}

fn read(folder: &Path) -> Result<Vec<Entry>, String> {
    let place = folder.join(FILE);
    let told = |error: io::Error| error.to_string();
    let file = match config::open_file(&place) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(told(error)),
    };
    if file.metadata().map_err(told)?.len() > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(told)?;
    config::read_history(&text)?.into_iter().map(entry).collect()
}

fn entry(kept: KeptGeneration) -> Result<Entry, String> {
    let Some(origin) = Origin::named(&kept.origin) else {
        return Err(format!("generation {} has an origin that is not known: `{}`", kept.generation, kept.origin));
    };
    let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
    let difference = |kept: KeptDifference| {
        let KeptDifference { path, before, after } = kept;
        Difference { path, before: before.map(value), after: after.map(value) }
    };
    let list = kept.differences.into_iter().map(difference).collect();
    let left_out = usize::try_from(kept.left_out).unwrap_or(usize::MAX);
    Ok(Entry {
        generation: kept.generation,
        at: SystemTime::UNIX_EPOCH + Duration::from_millis(kept.at_unix_ms),
        origin,
        author: kept.author.map(Arc::from),
        differences: Arc::new(Differences { list, left_out }),
        tried: kept.tried.map(Arc::from),
        text: kept.text.map(Whole::from),
    })
}

/// Puts a history, newest first, in the place of what is kept in a folder.
///
/// # Errors
/// The disk is full, the folder cannot be written.
pub(super) fn write(folder: &Path, entries: &[Entry], known: &mut Known) -> io::Result<()> {
    let text = config::write_history(&to_keep(entries, known));
    stage_file(folder, FILE, text.as_bytes())?.finish()
}

/// Oldest first, with as many texts as there is room for.
fn to_keep(entries: &[Entry], known: &mut Known) -> Vec<KeptGeneration> {
    let mut room = Room { left: TEXTS_BYTES_MAX, texts: Vec::new() };
    let newest_first = entries.iter().map(|entry| {
        let text = entry.text.as_ref().and_then(|whole| room.take(whole, known));
        kept(entry, text)
    });
    let mut all: Vec<KeptGeneration> = newest_first.collect();
    all.reverse();
    *known = room.texts;
    all
}

/// Room for texts.
struct Room {
    left: usize,
    texts: Known,
}

impl Room {
    /// The text of a configuration, if there is room for it. Those of one text share it.
    fn take(&mut self, whole: &Whole, known: &Known) -> Option<Arc<str>> {
        let find = |texts: &Known| {
            let found = texts.iter().find(|(other, _)| other.is_copy_of(whole));
            found.map(|(_, text)| Arc::clone(text))
        };
        if let Some(text) = find(&self.texts) {
            return Some(text);
        }
        if self.left == 0 || whole.is_longer_than(TEXT_BYTES_MAX) {
            return None;
        }
        let text = find(known).unwrap_or_else(|| whole.text());
        let Some(left) = self.left.checked_sub(text.len()) else {
            // Nor for any that is older.
            self.left = 0;
            return None;
        };
        self.left = left;
        self.texts.push((whole.clone(), Arc::clone(&text)));
        Some(text)
    }
}

fn kept(entry: &Entry, text: Option<Arc<str>>) -> KeptGeneration {
    let at = entry.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let told = &entry.differences;
    let value = |value: &Option<Value>| value.as_ref().map(Value::to_string);
    let difference = |one: &Difference| KeptDifference {
        path: one.path.clone(),
        before: value(&one.before),
        after: value(&one.after),
    };
    let left_out = told.left_out + told.list.len().saturating_sub(DIFFERENCES_MAX);
    KeptGeneration {
        generation: entry.generation,
        at_unix_ms: u64::try_from(at.as_millis()).unwrap_or(0),
        origin: entry.origin.as_str().to_owned(),
        author: entry.author.as_deref().map(str::to_owned),
        tried: entry.tried.as_deref().map(str::to_owned),
        differences: told.list.iter().take(DIFFERENCES_MAX).map(difference).collect(),
        left_out: left_out as u64,
        text,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn entry(generation: u64, text: &str) -> Entry {
        let one = Difference { path: "clusters/a".into(), before: None, after: Some(json!({ "x": 1.5 })) };
        Entry {
            generation,
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_311_580_842),
            origin: Origin::Api,
            author: Some("hand".into()),
            differences: Arc::new(Differences { list: vec![one], left_out: 3 }),
            tried: None,
            text: Some(Arc::<str>::from(text).into()),
        }
    }

    #[test]
    fn what_was_written_is_read_back_by_the_next_process() {
        let folder = TempDir::new().unwrap();
        assert!(take_up(folder.path()).is_empty());
        let mut newest_first = vec![entry(9, "version: 1 # nine"), entry(4, "version: 1 # four")];
        write(folder.path(), &newest_first, &mut Known::new()).unwrap();
        let found = take_up(folder.path());
        newest_first.reverse();
        assert_eq!(found, newest_first);
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "texts may hold secrets");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_is_kept_is_bounded_and_texts_of_the_newest_come_first() {
        let large = "x".repeat(TEXT_BYTES_MAX);
        let too_large = "x".repeat(TEXT_BYTES_MAX + 1);
        let mut all: Vec<Entry> = (1..=20).map(|generation| entry(generation, &large)).collect();
        all.push(entry(21, &too_large));
        let one = Difference { path: "p".into(), before: None, after: None };
        let list = vec![one; DIFFERENCES_MAX + 10];
        all.push(Entry { differences: Arc::new(Differences { list, left_out: 5 }), ..entry(22, "small") });
        all.reverse();
        let mut known = Known::new();
        let kept = to_keep(&all, &mut known);
        let with_text: Vec<u64> = kept.iter().filter(|one| one.text.is_some()).map(|one| one.generation).collect();
        assert_eq!(with_text, [14, 15, 16, 17, 18, 19, 20, 22], "what there is room for, and none that is too large");
        assert_eq!(kept.len(), 22);
        let last = kept.last().unwrap();
        assert_eq!((last.differences.len(), last.left_out), (DIFFERENCES_MAX, 15));
        assert_eq!(known.len(), with_text.len());
    }

    #[test]
    fn what_cannot_be_read_is_put_aside_and_the_history_is_empty() {
        let folder = TempDir::new().unwrap();
        let place = folder.path().join(FILE);
        write(folder.path(), &[entry(1, "version: 1")], &mut Known::new()).unwrap();
        let good = fs::read_to_string(&place).unwrap();
        for bad in [
            String::new(),
            good[..good.len() / 2].to_owned(),
            "#!/bin/sh\n".to_owned(),
            "[1, 2]".to_owned(),
            good.replace("\"format\": 1", "\"format\": 2"),
            good.replace("\"api\"", "\"somebody\""),
        ] {
            fs::write(&place, &bad).unwrap();
            assert!(take_up(folder.path()).is_empty(), "{bad}");
            assert!(!place.exists(), "it is not tried again");
            assert_eq!(fs::read_to_string(folder.path().join(ASIDE)).unwrap(), bad, "nor is it lost");
        }
        fs::write(&place, b"\xff\xfe").unwrap();
        assert!(take_up(folder.path()).is_empty());
        fs::create_dir(&place).unwrap();
        assert_eq!(read(folder.path()).unwrap_err(), "it is not a file");
        let sparse = fs::remove_dir(&place).and_then(|()| fs::File::create(&place)).unwrap();
        sparse.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(read(folder.path()).unwrap_err(), "it is larger than 67108864 bytes");
    }
}
