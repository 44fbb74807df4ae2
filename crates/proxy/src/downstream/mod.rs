//! Towards clients: one module per HTTP version, all of which end in `exchange`.

pub(crate) mod http1;
