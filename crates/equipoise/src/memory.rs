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

use libmimalloc_sys::{mi_malloc, mi_zalloc};
use mimalloc::MiMalloc;

/// The alignment that every block has.
const WORD: usize = size_of::<usize>();

/// See the module.
pub(crate) struct Allocator;

/// Asks the kernel for no huge pages, on systems too that give them to whoever did not ask (prctl(2), `PR_SET_THP_DISABLE`).
/// Where it refuses, all is as it was.
pub(crate) fn take_small_pages() {
    // SAFETY: the call takes numbers and touches no memory.
    let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
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
