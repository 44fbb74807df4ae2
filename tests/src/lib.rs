//! Black-box tests live in this crate; the library part is the harness.
