//! Files: `openat2`, which opens what lies below a directory and nothing else; `preadv2` and `statx`, which do not wait for a disk; `sendfile`;
//! and the bound on descriptors.

use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::MetadataExt;

/// Opens a path below a directory to be read. `resolve` is made of the flags `RESOLVE_…`. A FIFO or a device does not block.
///
/// # Errors
/// Those of the system call. EAGAIN: a rename elsewhere has disturbed it.
pub(crate) fn open_below(directory: BorrowedFd<'_>, path: &CStr, resolve: u64) -> io::Result<File> {
    open(directory.as_raw_fd(), path, (libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, resolve))
}

/// Opens a directory to look below it, if the kernel knows the way there without a disk.
///
/// # Errors
/// Those of the system call. EAGAIN: a disk is needed.
pub(crate) fn open_directory_now(path: &CStr) -> io::Result<File> {
    open(libc::AT_FDCWD, path, (libc::O_PATH | libc::O_DIRECTORY, libc::RESOLVE_CACHED))
}

fn open(directory: libc::c_int, path: &CStr, (flags, resolve): (libc::c_int, u64)) -> io::Result<File> {
    // SAFETY: it is a structure of numbers, which may be all zero.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).unsigned_abs());
    how.resolve = resolve;
    let number = {
        let size = size_of::<libc::open_how>();
        // SAFETY: the path ends with a NUL; it and the structure live through the call, and the size is that of the structure.
        unsafe { libc::syscall(libc::SYS_openat2, directory, path.as_ptr(), &raw const how, size) }
    };
    match libc::c_int::try_from(number) {
        // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
        Ok(number @ 0..) => Ok(unsafe { File::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether the process may make files in a folder.
///
/// # Errors
/// Why it may not.
pub(crate) fn may_write(folder: &CStr) -> io::Result<()> {
    // SAFETY: the path ends with a NUL and lives through the call.
    let told = unsafe {
        libc::faccessat(libc::AT_FDCWD, folder.as_ptr(), libc::R_OK | libc::W_OK | libc::X_OK, libc::AT_EACCESS)
    };
    if told == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the user as whom the process acts.
pub(crate) fn user() -> u32 {
    // SAFETY: it takes nothing and always succeeds.
    unsafe { libc::geteuid() }
}

/// Returns how many descriptors the process may have.
pub(crate) fn descriptors_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value that lives through the call, and is of the type that it fills.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if told == 0 { limit.rlim_cur } else { 1_024 }
}

/// Returns whether a file is on a file system of this machine's own disks that can say what is in memory: to open or send a file that the
/// kernel has there never waits for another machine or process. What lies below an overlay may be anything, and tmpfs cannot say.
pub(crate) fn is_local(file: BorrowedFd<'_>) -> bool {
    /// Numbers that the library does not have.
    const ZFS: i64 = 0x2fc1_2fc1;
    const EROFS: i64 = 0xe0f5_e1e2;
    const SQUASHFS: i64 = 0x7371_7368;
    // SAFETY: it is a structure of numbers, which may be all zero.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a value that lives through the call, and is of the type that it fills.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut told) };
    let kind = told.f_type & 0xffff_ffff;
    let known = [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC, libc::F2FS_SUPER_MAGIC];
    result == 0 && (known.contains(&kind) || [ZFS, EROFS, SQUASHFS].contains(&kind))
}

/// Reads the bytes at this place, if they are in memory.
///
/// # Errors
/// Those of the system call. EAGAIN: they are not in memory; EOPNOTSUPP: the file system cannot tell.
pub(crate) fn read_now(file: BorrowedFd<'_>, room: &mut [u8], at: u64) -> io::Result<usize> {
    let place = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    let piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: the one piece is the room, which lives through the call.
    let count = unsafe { libc::preadv2(file.as_raw_fd(), &raw const piece, 1, place, libc::RWF_NOWAIT) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Has the kernel begin to read this part of a file.
pub(crate) fn will_read(file: BorrowedFd<'_>, part: Range<u64>) {
    let place = |at: u64| libc::off_t::try_from(at).unwrap_or(libc::off_t::MAX);
    // SAFETY: it takes integers, and touches no memory of ours.
    let _ = unsafe {
        libc::posix_fadvise(
            file.as_raw_fd(),
            place(part.start),
            place(part.end - part.start),
            libc::POSIX_FADV_WILLNEED,
        )
    };
}

/// Sends bytes of a file to a socket, without a copy. It waits for a disk where they are not in memory.
///
/// # Errors
/// Those of the system call. EAGAIN: the socket takes no more.
pub(crate) fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, (at, count): (u64, usize)) -> io::Result<usize> {
    let mut place = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the pointer is to a value that lives through the call.
    let sent = unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut place, count) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// What tells whether a path still leads to the same file, unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileIdentity {
    pub(crate) fn of(told: &Metadata) -> Self {
        Self {
            device: told.dev(),
            inode: told.ino(),
            length: told.len(),
            modified: (told.mtime(), told.mtime_nsec()),
            changed: (told.ctime(), told.ctime_nsec()),
        }
    }
}

/// Returns the identity of the file that a path leads to, as this machine knows it.
///
/// # Errors
/// Those of the system call.
pub(crate) fn identity_now(path: &CStr) -> io::Result<FileIdentity> {
    // SAFETY: it is a structure of numbers, which may be all zero.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the path ends with a NUL; it and the structure, which is of the type that is filled, live through the call.
    let result = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_BASIC_STATS, &raw mut told) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let time = |time: libc::statx_timestamp| (time.tv_sec, i64::from(time.tv_nsec));
    Ok(FileIdentity {
        device: libc::makedev(told.stx_dev_major, told.stx_dev_minor),
        inode: told.stx_ino,
        length: told.stx_size,
        modified: time(told.stx_mtime),
        changed: time(told.stx_ctime),
    })
}
