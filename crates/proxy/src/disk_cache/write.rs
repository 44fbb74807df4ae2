//! The thread that does jobs: it writes, marks and removes files.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use plan::cache::disk::{Finished, chunks, record};
use plan::cache::entry::CHUNK_BYTES;
use plan::cache::{DiskContent, DiskJob, Entry, FileName};
use telemetry::log;

use super::folder::{Folder, Written, is_gone};
use crate::random::Random;

/// How long nothing is written after a failure.
const REST: Duration = Duration::from_secs(10);
/// Files that are tried again. With more of them a purge is durable only after the next scan, which finds the others.
const LATE_MAX: usize = 65_536;
/// How often failures are logged at most.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Does jobs until nobody sends any more.
pub(super) fn run(content: &Weak<DiskContent>, path: &str, jobs: &Receiver<(DiskJob, u64)>) {
    let random = Random::from_system();
    let mut writer = Writer { path, random, files: HashMap::new(), late: Vec::new(), resumes: None, logged: None };
    loop {
        let next = match writer.resumes {
            Some(at) => jobs.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let Some(content) = content.upgrade() else { return };
        match next {
            Ok((job, bytes)) => {
                writer.carry_out(job, &content);
                content.done(bytes);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if writer.resumes.is_some_and(|at| at <= Instant::now()) {
            writer.resumes = None;
            content.pause(false);
            writer.try_again(&content);
        }
    }
}

struct Writer<'a> {
    path: &'a str,
    random: Random,
    /// Those whose bodies come in pieces.
    files: HashMap<u64, Begun>,
    /// Files that could not be removed or marked, see [`LATE_MAX`].
    late: Vec<Late>,
    /// When it writes again after a failure, and tries again to do what is late.
    resumes: Option<Instant>,
    logged: Option<Instant>,
}

/// What is still to be done to a file.
#[derive(Clone, Copy)]
enum Late {
    Delete(FileName),
    MarkStale(FileName),
}

/// A file whose body is not over yet.
struct Begun {
    written: Written,
    entry: Arc<Entry>,
    layout: Layout,
}

/// Where in its file a body lies, and how much of it is written.
struct Layout {
    nonce: u64,
    header_len: u64,
    chunk: u64,
    body_len: u64,
}

impl Writer<'_> {
    fn carry_out(&mut self, job: DiskJob, content: &DiskContent) {
        let done = match job {
            DiskJob::Write { hash, entry, begun, copy: _copy } => {
                self.write(&entry).and_then(|(mut written, header_len)| {
                    let lengths = (entry.body.len(), chunks::file_len(header_len, entry.body.len()));
                    self.publish(&mut written, lengths, |place| content.insert((hash, begun), &entry, place))
                })
            }
            DiskJob::Begin { number, entry } => self.begin(entry).map(|begun| drop(self.files.insert(number, begun))),
            DiskJob::Append { number, bytes } => self.append(number, &bytes),
            DiskJob::Finish(finished) => self.finish(*finished, content),
            DiskJob::Abort { number } => {
                self.files.remove(&number);
                Ok(())
            }
            DiskJob::Delete(name) => self.alter(Late::Delete(name)),
            DiskJob::MarkStale(name) => self.alter(Late::MarkStale(name)),
            DiskJob::Flush(then) => {
                self.try_again(content);
                then(self.late.is_empty());
                Ok(())
            }
        };
        if let Err(error) = done {
            self.failed(&error, content);
        }
    }

    /// Removes or marks a file. What fails is late.
    fn alter(&mut self, what: Late) -> io::Result<()> {
        let done = self.folder().and_then(|folder| match what {
            Late::Delete(name) => folder.remove(name),
            Late::MarkStale(name) => folder.change(name, record::STALE_AT, &[1]).or_else(is_gone),
        });
        if done.is_err() && self.late.len() < LATE_MAX {
            self.late.push(what);
        }
        done
    }

    /// Does what is late. The first failure ends that: the others would fail, too.
    fn try_again(&mut self, content: &DiskContent) {
        let mut late = std::mem::take(&mut self.late).into_iter();
        while let Some(what) = late.next() {
            if let Err(error) = self.alter(what) {
                self.late.extend(late);
                self.failed(&error, content);
                return;
            }
        }
    }

    /// Requests go on without what could not be written, and nothing is written for a while if the next file would fail, too.
    fn failed(&mut self, error: &io::Error, content: &DiskContent) {
        content.counts.failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let now = Instant::now();
        let pauses = is_lasting(error);
        if pauses {
            content.pause(true);
        }
        if pauses || !self.late.is_empty() {
            self.resumes = Some(now + REST);
        }
        if self.logged.is_none_or(|logged| now.duration_since(logged) >= LOGGED_EVERY) {
            self.logged = Some(now);
            let told: [(&str, &dyn std::fmt::Display); 2] = [("folder", &self.path), ("error", error)];
            let message = match pauses {
                true => "cannot write files of a cache, and pauses for ten seconds",
                false => "cannot write files of a cache",
            };
            log::warn(message, &told);
        }
    }

    /// The folder, which is made again if it was removed.
    fn folder(&self) -> io::Result<Folder> {
        Folder::open(self.path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Folder::make(self.path),
            _ => Err(error),
        })
    }

    fn chance(&self) -> impl FnMut() -> u64 {
        || self.random.next()
    }

    fn begin(&self, entry: Arc<Entry>) -> io::Result<Begun> {
        let written = self.folder()?.write(FileName::new(&mut self.chance()))?;
        let nonce = self.random.next();
        let header_len = header(&entry, 0, nonce)?.len() as u64;
        Ok(Begun { written, entry, layout: Layout { nonce, header_len, chunk: 0, body_len: 0 } })
    }

    fn append(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        // Without a file there was a failure before.
        let Some(begun) = self.files.get_mut(&number) else { return Ok(()) };
        let done = begun.layout.append(&begun.written, bytes);
        if done.is_err() {
            self.files.remove(&number);
        }
        done
    }

    fn finish(&mut self, finished: Finished, content: &DiskContent) -> io::Result<()> {
        let Finished { number, hash, begun: asked, pilot: _pilot } = finished;
        let Some(Begun { mut written, entry, layout }) = self.files.remove(&number) else { return Ok(()) };
        let header = header(&entry, layout.body_len, layout.nonce)?;
        written.file.write_all_at(&header, 0)?;
        let lengths = (layout.body_len, chunks::file_len(layout.header_len, layout.body_len));
        self.publish(&mut written, lengths, |place| content.insert((hash, asked), &entry, place))
    }

    /// Writes a response whose body is there, in memory or in another file.
    fn write(&self, entry: &Arc<Entry>) -> io::Result<(Written, u64)> {
        let Begun { written, entry, mut layout } = self.begin(Arc::clone(entry))?;
        let header = header(&entry, entry.body.len(), layout.nonce)?;
        written.file.write_all_at(&header, 0)?;
        let mut room = Vec::new();
        while layout.body_len < entry.body.len() {
            let length = chunks::chunk_len(entry.body.len(), layout.chunk);
            let bytes = match entry.body.file() {
                None => entry.body.piece(layout.body_len),
                Some(file) => {
                    room.resize(length, 0);
                    crate::spool::read_exactly(&**file, &mut room, layout.body_len)?;
                    &room
                }
            };
            if bytes.len() != length || length > CHUNK_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            layout.append(&written, bytes)?;
        }
        Ok((written, layout.header_len))
    }

    /// Gives a file its name, and takes it into the index, which may not want it any more.
    fn publish(
        &mut self,
        written: &mut Written,
        (body_len, file_len): (u64, u64),
        take: impl FnOnce((FileName, u64, u64)) -> bool,
    ) -> io::Result<()> {
        written.keep()?;
        if !take((written.name(), body_len, file_len)) {
            return self.alter(Late::Delete(written.name()));
        }
        Ok(())
    }
}

impl Layout {
    fn append(&mut self, written: &Written, bytes: &[u8]) -> io::Result<()> {
        let sum = chunks::sum(self.nonce, self.chunk, bytes);
        let at = chunks::place(self.header_len, self.chunk);
        written.file.write_all_at(bytes, at)?;
        written.file.write_all_at(&sum, at + bytes.len() as u64)?;
        self.chunk += 1;
        self.body_len += bytes.len() as u64;
        Ok(())
    }
}

fn header(entry: &Entry, body_len: u64, nonce: u64) -> io::Result<Vec<u8>> {
    record::encode(entry, body_len, nonce).ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

/// Whether a failure is one of the disk or the process, so that the next file would fail, too.
fn is_lasting(error: &io::Error) -> bool {
    let known = [libc::ENOSPC, libc::EDQUOT, libc::EIO, libc::EROFS, libc::EMFILE, libc::ENFILE];
    error.raw_os_error().is_some_and(|number| known.contains(&number))
}

#[cfg(test)]
mod tests;
