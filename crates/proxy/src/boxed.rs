//! Large futures, made where they stay.

use std::pin::Pin;

/// Boxes the future that `make` returns. The box comes first, so that the compiler can build the future in it. `Box::pin` would build
/// it on the stack and copy the whole of it, of an exchange 3 KB that are nearly all empty still (256 instructions).
#[inline(always)]
pub(crate) fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
