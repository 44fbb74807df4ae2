//! A file or a folder that is watched, by looking at it: notifications of the kernel do not cross network file systems, and a
//! look at a few files costs microseconds.
//!
//! What has changed is taken once two looks have found it the same, so that a file that is being written in pieces is not
//! read half; and what is read is looked at again, so that a folder that is swapped meanwhile is read anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::provider::FileProvider;

use super::outlet::Outlet;
use super::state::{State, Text};
use crate::watch::Stamp;

/// Bytes of all files together.
const BYTES_MAX: usize = 64 << 20;

/// How everything looks.
type Look = BTreeMap<PathBuf, Stamp>;

pub(super) async fn run(settings: FileProvider, outlet: Outlet) {
    let mut taken: Option<Look> = None;
    let mut before: Option<Look> = None;
    loop {
        match look(&settings.path) {
            Err(why) => {
                // What comes back is taken even if it looks as it did.
                (before, taken) = (None, None);
                outlet.failed(why);
            }
            Ok(now) if taken.as_ref() == Some(&now) => {
                before = None;
                outlet.unchanged();
            }
            // At the start nobody should wait for a second look; what is half then is looked at again.
            Ok(now) if before.as_ref() == Some(&now) || (taken.is_none() && before.is_none()) => match read(&now) {
                Err(why) => {
                    before = None;
                    outlet.failed(why);
                }
                Ok(state) if look(&settings.path).as_ref() == Ok(&now) => {
                    outlet.send(state);
                    (before, taken) = (None, Some(now));
                }
                Ok(_) => before = Some(now),
            },
            Ok(now) => before = Some(now),
        }
        tokio::time::sleep(settings.interval).await;
    }
}

/// What it says now.
///
/// # Errors
/// It cannot be read.
pub(super) fn state(settings: &FileProvider) -> Result<State, String> {
    read(&look(&settings.path)?)
}

/// The files, as they look.
fn look(path: &Path) -> Result<Look, String> {
    let files = config::files_of(path).map_err(|why| format!("{}: {why}", path.display()))?;
    let stamp = |file: PathBuf| match Stamp::of(&file) {
        Some(stamp) => Ok((file, stamp)),
        None => Err(format!("{}: there is no such file", file.display())),
    };
    files.into_iter().map(stamp).collect()
}

fn read(look: &Look) -> Result<State, String> {
    let mut texts = Vec::new();
    let mut left = BYTES_MAX;
    for file in look.keys() {
        let text = config::read_text(file).map_err(|why| format!("{}: {why}", file.display()))?;
        left = left
            .checked_sub(text.len())
            .ok_or_else(|| format!("all files together are larger than {BYTES_MAX} bytes"))?;
        let folder = Some(file.parent().unwrap_or(Path::new("")).to_owned());
        texts.push(Text { name: file.display().to_string(), folder, text: text.to_string() });
    }
    Ok(State::of_texts(texts, true))
}
