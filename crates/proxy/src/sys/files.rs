//! `openat2`, which opens what lies below a directory and nothing else, and the bound on descriptors.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};

/// Opens a path below a directory to be read. `resolve` is made of the flags `RESOLVE_…`. A FIFO or a device does not block.
///
/// # Errors
/// Those of the system call. EAGAIN: a rename elsewhere has disturbed it.
pub(crate) fn open_below(directory: BorrowedFd<'_>, path: &CStr, resolve: u64) -> io::Result<File> {
    // SAFETY: it is a structure of numbers, which may be all zero.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC).unsigned_abs());
    how.resolve = resolve;
    let number = {
        let (directory, size) = (directory.as_raw_fd(), size_of::<libc::open_how>());
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

/// Returns how many descriptors the process may have.
pub(crate) fn descriptors_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value that lives through the call, and is of the type that it fills.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if told == 0 { limit.rlim_cur } else { 1_024 }
}
