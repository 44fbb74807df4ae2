//! One response, read from its file.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};

use plan::cache::disk::{chunks, record};
use plan::cache::entry::CHUNK_BYTES;
use plan::cache::{Body, DiskAsk, DiskContent, DiskEntry, DiskRead, Entry};
use plan::filter::Content;

use super::folder::Folder;
use crate::file_system::OpenFile;
use crate::sys;

/// Bytes of a body that is read whole, and goes to memory.
const SMALL_BYTES_MAX: u64 = 256 << 10;

/// Why there is no response.
pub(super) enum NoResponse {
    /// The file is not there.
    Missing,
    /// It is not as it was written.
    Bad,
    /// It cannot be read at present.
    Failed,
}

impl From<io::Error> for NoResponse {
    fn from(error: io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::NotFound, _) => Self::Missing,
            // A link, or a way out; what a bad sector gives; a file that is cut short.
            (io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData, _) => Self::Bad,
            (_, Some(libc::ELOOP | libc::EXDEV | libc::ENOTDIR | libc::ENXIO | libc::EIO | libc::EISDIR)) => Self::Bad,
            _ => Self::Failed,
        }
    }
}

impl From<record::Bad> for NoResponse {
    fn from(_: record::Bad) -> Self {
        Self::Bad
    }
}

/// Reads a response: a small one whole, of others the head. A file that is bad is removed.
pub(crate) fn read(ask: &DiskAsk) -> DiskRead {
    match try_to_read(ask) {
        Ok(entry) => DiskRead::Found(entry),
        Err(NoResponse::Failed) => DiskRead::Failed,
        Err(none) => {
            ask.content.discard(ask.hash, &ask.entry, matches!(none, NoResponse::Bad));
            DiskRead::Gone
        }
    }
}

fn try_to_read(ask: &DiskAsk) -> Result<Arc<Entry>, NoResponse> {
    let file = Folder::open(ask.content.path()).and_then(|folder| folder.read(ask.entry.name()))?;
    let told = read_header(&file)?;
    let mut entry = told.entry;
    if !ask.entry.is_of(&entry) {
        return Err(NoResponse::Bad);
    }
    if ask.entry.is_marked_stale() {
        entry.mark_stale();
    }
    let place = Place { header_len: told.header_len, body_len: told.body_len, nonce: told.nonce };
    let room = (told.body_len <= SMALL_BYTES_MAX).then(|| ask.store.room(ask.hash, told.body_len)).flatten();
    if room.is_none() && told.body_len > 0 {
        let file = OpenFile::new(file, told.body_len, false).ok_or(NoResponse::Failed)?;
        let (content, hash) = (ask.content.clone(), ask.hash);
        let body = DiskBody { file, place, of: (content, hash, ask.entry.clone()), last: Mutex::default() };
        entry.body = Arc::new(Body::in_file(Arc::new(body), told.body_len));
        return Ok(Arc::new(entry));
    }
    let count = told.body_len.div_ceil(CHUNK_BYTES as u64);
    let read: io::Result<Vec<_>> =
        (0..count).map(|chunk| place.read(&file, chunk).map(Vec::into_boxed_slice)).collect();
    entry.body = Arc::new(Body::new(read?));
    drop(room);
    let entry = Arc::new(entry);
    ask.store.promote((ask.hash, ask.begun), &entry, &ask.entry);
    Ok(entry)
}

/// Reads the header of a file, which must be a regular one, of our user, and of the length that the header says.
pub(super) fn read_header(file: &File) -> Result<record::Record, NoResponse> {
    let told = file.metadata()?;
    if !told.is_file() || told.uid() != sys::user() {
        return Err(NoResponse::Bad);
    }
    let mut prefix = [0; record::PREFIX_BYTES];
    file.read_exact_at(&mut prefix, 0)?;
    let mut header = vec![0; record::header_len(&prefix)?];
    file.read_exact_at(&mut header, 0)?;
    let read = record::decode(&header)?;
    if told.len() != chunks::file_len(read.header_len, read.body_len) {
        return Err(NoResponse::Bad);
    }
    Ok(read)
}

/// Where a body lies in its file.
#[derive(Clone, Copy)]
pub(super) struct Place {
    header_len: u64,
    body_len: u64,
    nonce: u64,
}

impl Place {
    /// Reads a chunk, and checks it.
    fn read(self, file: &impl FileAt, chunk: u64) -> io::Result<Vec<u8>> {
        let length = chunks::chunk_len(self.body_len, chunk);
        let mut bytes = vec![0; length + chunks::SUM_BYTES];
        file.read_whole(&mut bytes, chunks::place(self.header_len, chunk))?;
        let (body, sum) = bytes.split_at(length);
        if chunks::sum(self.nonce, chunk, body) != *sum {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// What chunks are read from.
trait FileAt {
    fn read_whole(&self, room: &mut [u8], at: u64) -> io::Result<()>;
}

impl FileAt for File {
    fn read_whole(&self, room: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(room, at)
    }
}

impl FileAt for OpenFile {
    fn read_whole(&self, room: &mut [u8], at: u64) -> io::Result<()> {
        crate::spool::read_exactly(self, room, at)
    }
}

/// A body that is sent while it is read. No byte of it is given out before the checksum of its chunk holds.
struct DiskBody {
    file: OpenFile,
    place: Place,
    of: (Arc<DiskContent>, u64, Arc<DiskEntry>),
    /// The chunk that was read last: the next bytes may be in it, too.
    last: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Content for DiskBody {
    fn read_at(&self, room: &mut [u8], at: u64) -> io::Result<usize> {
        if at >= self.place.body_len {
            return Ok(0);
        }
        let (chunk, offset) = (at / CHUNK_BYTES as u64, (at % CHUNK_BYTES as u64) as usize);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(known, _)| *known != chunk) {
            *last = None;
            let read = self.place.read(&self.file, chunk).inspect_err(|_| {
                let (content, hash, entry) = &self.of;
                content.discard(*hash, entry, true);
            });
            *last = Some((chunk, read?));
        }
        let rest = last.as_ref().and_then(|(_, bytes)| bytes.get(offset..)).unwrap_or_default();
        let count = rest.len().min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        if count == rest.len() {
            // A slow client need not hold it while it takes these bytes.
            *last = None;
        }
        Ok(count)
    }
}
