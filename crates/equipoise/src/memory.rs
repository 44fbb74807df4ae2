//! The allocator of the program: mimalloc.
//!
//! What needs no more than the alignment of a word is asked for plainly. Asked for with an alignment, be it that of a byte, any
//! size that is no power of two takes the way of aligned memory there: four times the instructions, and at times a larger block.
//! Every cell of `lab cost` pays for it, those of HTTP/2 most.
//!
//! It takes memory in pages of 4 KiB. The kernel clears a huge page (2 MiB) at the first touch, up to 2 ms in which a core does
//! nothing else; each thread touches some when it begins. The twenty of a start made the requests of the process before wait
//! for 20 ms (study `elastic`), and in `lab cost` no difference was larger than the spread.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, Ordering};

use libmimalloc_sys::{mi_malloc, mi_zalloc};
use mimalloc::MiMalloc;

/// The alignment that every block has.
const WORD: usize = size_of::<usize>();

/// See the module.
pub(crate) struct Allocator;

/// Asks the kernel for no huge pages, on systems too that give them to anyone who did not ask (prctl(2), `PR_SET_THP_DISABLE`).
/// Where it refuses, all is as it was.
pub(crate) fn take_small_pages() {
    // SAFETY: the call takes numbers and touches no memory.
    let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Has the C library keep a few MiB that are free. Its allocator serves the encoders of brotli and zstd, whose tables are made for one
/// body and freed with it. By itself it gives such tables back to the kernel each time, which clears 180 pages for the next body of 100 kB:
/// a third of what it costs.
pub(crate) fn keep_freed_tables() {
    #[cfg(target_env = "gnu")]
    {
        /// Larger blocks go back when they are freed.
        const BLOCK_BYTES_MAX: c_int = 4 << 20;
        /// For each thread that uses it.
        const KEPT_BYTES_MAX: c_int = 8 << 20;
        // SAFETY: the calls take numbers, before there is another thread.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, BLOCK_BYTES_MAX);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX);
        }
    }
}

/// `mi_option_purge_delay` of mimalloc: for how many milliseconds free memory is kept.
const PURGE_DELAY: c_int = 15;
/// What it is by itself.
const PURGE_DELAY_MS: c_long = 1_000;

// The crate that mimalloc comes by reports these only together with types that nothing else here needs.
// SAFETY: they are as `mimalloc.h` declares them.
unsafe extern "C" {
    fn mi_collect(force: bool);
    fn mi_option_get(option: c_int) -> c_long;
    fn mi_option_set(option: c_int, value: c_long);
}

/// Gives memory back to the system that no one uses: all that is free in the program, and what the calling thread has kept for what
/// it may need next. Takes a part of a millisecond.
///
/// The allocator gives memory back when it has been free for a second, but looks for it only while it is busy: a program that has
/// nothing to do after a change would keep what that used for a moment, megabytes with a large configuration. And what is used again
/// before that comes dirty: blocks that stay are spread over memory that otherwise no one has touched.
pub(crate) fn give_back() {
    // SAFETY: it may be called at any time, by any thread.
    unsafe { mi_collect(true) };
}

/// Has memory given back at the moment at which it becomes free, or, as it is by itself, later. While the program starts it is worth
/// its time: that is when most is used for a moment.
pub(crate) fn give_back_at_once(is_wanted: bool) {
    static IS_SO: AtomicBool = AtomicBool::new(false);
    let (before, after) = if is_wanted { (PURGE_DELAY_MS, 0) } else { (0, PURGE_DELAY_MS) };
    // SAFETY: it may be asked at any time.
    let delay = unsafe { mi_option_get(PURGE_DELAY) };
    // Someone may have chosen another by the environment.
    if IS_SO.load(Ordering::Relaxed) != is_wanted && delay == before {
        // SAFETY: the number is that of an option, which is a word of its own: who reads it at the same time reads the one value or
        // the other, and both are right at any time.
        unsafe { mi_option_set(PURGE_DELAY, after) };
        IS_SO.store(is_wanted, Ordering::Relaxed);
    }
}

// SAFETY: all is as `MiMalloc` has it, but for blocks that are asked for plainly. Those are aligned to a word at least, which is
// enough where they are asked for, are null only when there is no memory, and are freed and resized by the same calls as others.
unsafe impl GlobalAlloc for Allocator {
    // SAFETY: the caller promises what the trait asks for.
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= WORD {
            // SAFETY: any size may be asked for.
            unsafe { mi_malloc(layout.size()) }.cast()
        } else {
            // SAFETY: the caller's promise.
            unsafe { MiMalloc.alloc(layout) }
        }
    }

    // SAFETY: the caller promises what the trait asks for.
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= WORD {
            // SAFETY: any size may be asked for.
            unsafe { mi_zalloc(layout.size()) }.cast()
        } else {
            // SAFETY: the caller's promise.
            unsafe { MiMalloc.alloc_zeroed(layout) }
        }
    }

    // SAFETY: the caller promises what the trait asks for.
    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; a block is mimalloc's, however it was asked for.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    // SAFETY: the caller promises what the trait asks for.
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; a block is mimalloc's, however it was asked for.
        unsafe { MiMalloc.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_fit(block: *mut u8, align: usize) -> bool {
        !block.is_null() && block.addr().is_multiple_of(align)
    }

    #[test]
    fn no_huge_pages_are_asked_for_from_then_on() {
        take_small_pages();
        // SAFETY: the call takes numbers and touches no memory.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) }, 1);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn tables_that_the_c_library_has_freed_are_used_again_without_the_kernel() {
        keep_freed_tables();
        let faults = || {
            // SAFETY: the kernel fills it in.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: it is there to be written.
            unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
            usage.ru_minflt
        };
        let use_tables = || {
            let begin = faults();
            // SAFETY: blocks are written within their sizes, and freed once.
            unsafe {
                let blocks = [512_usize << 10, 600 << 10, 300 << 10].map(|size| {
                    let block = libc::malloc(size);
                    block.cast::<u8>().write_bytes(1, size);
                    block
                });
                blocks.into_iter().for_each(|block| libc::free(block));
            }
            faults() - begin
        };
        let first = use_tables();
        assert!(first > 200 && use_tables() < 20, "{first}");
    }

    #[test]
    fn memory_is_given_back_at_once_or_later_as_is_wanted() {
        // SAFETY: it may be asked at any time.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), PURGE_DELAY_MS, "it is that option");
        give_back_at_once(true);
        assert_eq!(delay(), 0);
        give_back_at_once(false);
        assert_eq!(delay(), PURGE_DELAY_MS);
    }

    #[test]
    fn what_nobody_uses_any_more_goes_back_to_the_system() {
        let resident = || -> u64 {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        // Much more than what other tests take and leave meanwhile.
        const BYTES: usize = 256 << 20;
        let blocks: Vec<Vec<u8>> = (0..BYTES / 1000).map(|_| vec![1; 1000]).collect();
        let full = resident();
        drop(blocks);
        give_back();
        let left = resident();
        assert!(left + BYTES as u64 * 3 / 4 < full, "{full} bytes, then {left}");
    }

    #[test]
    fn blocks_of_any_size_are_aligned_as_asked_for_and_keep_what_is_in_them_when_they_grow() {
        for size in (1..=300).chain((301..=70_000).step_by(911)) {
            for align in [1, 2, 4, 8, 16, 64, 128] {
                let layout = Layout::from_size_align(size, align).unwrap();
                let grown = Layout::from_size_align(size * 2 + 1, align).unwrap();
                // SAFETY: sizes are not zero, and each block is written and read within its size and freed with its layout.
                unsafe {
                    let (plain, zeroed) = (Allocator.alloc(layout), Allocator.alloc_zeroed(layout));
                    assert!(is_fit(plain, align) && is_fit(zeroed, align), "{layout:?}");
                    assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|&byte| byte == 0), "{layout:?}");
                    plain.write_bytes(7, size);
                    let plain = Allocator.realloc(plain, layout, grown.size());
                    assert!(is_fit(plain, align), "{grown:?}");
                    assert!(std::slice::from_raw_parts(plain, size).iter().all(|&byte| byte == 7), "{layout:?}");
                    Allocator.dealloc(plain, grown);
                    Allocator.dealloc(zeroed, layout);
                }
            }
        }
    }
}
