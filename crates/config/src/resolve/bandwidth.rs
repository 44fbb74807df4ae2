//! How fast the bytes of connections move.

use model::snapshot::Bandwidth;

use super::Resolver;
use crate::file;
use crate::units::parse_size;

/// Largest rate, in bytes per second.
const RATE_MAX: u64 = 1_000_000_000_000;

impl Resolver<'_> {
    /// Resolves the rates of the listener at `listener`.
    pub(super) fn bandwidth(&mut self, listener: &str, written: Option<&file::Bandwidth>) -> Bandwidth {
        let Some(written) = written else { return Bandwidth::default() };
        let at = format!("{listener}/bandwidth");
        if !self.has(&at, "download") && !self.has(&at, "upload") {
            let mend = "add `download`, `upload` or both, such as `{ download: 1MB/s }`";
            self.report(&at, "no rate is given", Some(mend.to_owned()));
        }
        Bandwidth {
            download: self.byte_rate(&format!("{at}/download"), written.download.as_deref()),
            upload: self.byte_rate(&format!("{at}/upload"), written.upload.as_deref()),
        }
    }

    fn byte_rate(&mut self, at: &str, written: Option<&str>) -> Option<u64> {
        let text = written?;
        let mend = match parse_size(text.trim_end()) {
            Ok(_) => format!("did you mean `{}/s`?", text.trim_end()),
            Err(_) => "write bytes per second, such as `1MB/s` or `64KiB/s`".to_owned(),
        };
        let size = text.strip_suffix("/s").and_then(|size| parse_size(size.trim_end()).ok());
        match size {
            Some(rate @ 1..=RATE_MAX) => return Some(rate),
            Some(0) => {
                let mend = "leave it out for no limit, or write `1B/s` or more".to_owned();
                self.report(at, format!("`{text}` lets no byte pass"), Some(mend));
            }
            Some(_) => {
                self.report(at, format!("`{text}` is more than 1000GB/s"), Some("leave it out for no limit".to_owned()))
            }
            None => self.report(at, format!("`{text}` is not a rate"), Some(mend)),
        }
        None
    }
}
