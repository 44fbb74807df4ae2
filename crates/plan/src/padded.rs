//! Room around a value that many cores write.

use std::ops::Deref;

/// A value alone on its cache lines (two of 64 bytes, which x86 fetches in pairs), so that cores that write it do not
/// slow those that read its neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
