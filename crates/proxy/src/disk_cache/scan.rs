//! The thread that looks through the folder: at first for what was stored before, later for what another process has left.

use std::collections::HashSet;
use std::fs::File;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use plan::cache::disk::chunks;
use plan::cache::{DiskContent, FileName};

use super::folder::{self, Folder, TEMPORARY};
use super::read::{NoResponse, read_header};
use crate::random::Random;

/// How long it waits before it looks again.
const EVERY: Duration = Duration::from_secs(600);
/// After so many headers it pauses, so that requests have the disk: about 6000 headers a second.
const BATCH: u32 = 64;
const PAUSE: Duration = Duration::from_millis(10);

/// The process ends soon: it looks no more.
pub(super) static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Looks through the folder until nobody wants that any more.
pub(super) fn run(content: &Weak<DiskContent>, path: &str, end: &Receiver<()>) {
    let random = Random::from_system();
    loop {
        let mut scan = Scan { content, end, random: &random, read: 0 };
        if scan.all(path).is_none() {
            return;
        }
        if let Some(content) = content.upgrade() {
            content.end_first_scan();
        }
        let is_wanted = end.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout);
        if !is_wanted || IS_OVER.load(Ordering::Relaxed) {
            return;
        }
    }
}

struct Scan<'a> {
    content: &'a Weak<DiskContent>,
    end: &'a Receiver<()>,
    random: &'a Random,
    /// Headers that were read.
    read: u32,
}

impl Scan<'_> {
    /// `None`: it is wanted no more.
    fn all(&mut self, path: &str) -> Option<()> {
        let Ok(folder) = Folder::open(path) else { return Some(()) };
        let known = self.content.upgrade()?.names();
        for number in 0..=u8::MAX {
            if let Some(part) = folder.part(&format!("{number:02x}")) {
                self.part((&folder, &part), number, &known)?;
            }
        }
        Some(())
    }

    fn part(&mut self, (folder, part): (&Folder, &File), number: u8, known: &HashSet<FileName>) -> Option<()> {
        let Ok(names) = folder::names(part) else { return Some(()) };
        for text in names {
            if text.starts_with(TEMPORARY) {
                if folder::is_abandoned(part, &text) {
                    self.told(folder::remove(part, &text))?;
                }
                continue;
            }
            // Other names are not ours to remove.
            let name = FileName::parse(&text).filter(|name| name.folder() == format!("{number:02x}"));
            let Some(name) = name.filter(|name| !known.contains(name)) else { continue };
            self.one(folder, name)?;
        }
        Some(())
    }

    /// What cannot be removed is counted, and found again by the next scan.
    fn told(&self, removed: std::io::Result<()>) -> Option<()> {
        if removed.is_err() {
            self.content.upgrade()?.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        Some(())
    }

    fn one(&mut self, folder: &Folder, name: FileName) -> Option<()> {
        self.read += 1;
        if self.read.is_multiple_of(BATCH) && self.end.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
            return None;
        }
        let content = self.content.upgrade()?;
        match folder.read(name).map_err(NoResponse::from).and_then(|file| read_header(&file)) {
            Ok(read) => {
                let lengths = (read.body_len, chunks::file_len(read.header_len, read.body_len));
                let place = (name, lengths.0, lengths.1);
                if !content.adopt(&read.entry, place, &mut || self.random.next()) {
                    content.forget_file(name);
                }
            }
            Err(NoResponse::Bad) => {
                content.counts.bad.fetch_add(1, Ordering::Relaxed);
                content.forget_file(name);
            }
            Err(NoResponse::Missing | NoResponse::Failed) => {}
        }
        Some(())
    }
}
