//! The loader of `config`, with what this program gives it: the filters there are, the environment, and host names.

use std::io;

use config::{Loader, ResolveHost};
use model::provider::NameLookup;

/// Calls `use_it` with a loader that looks no name up.
pub(crate) fn without_names<T>(use_it: impl FnOnce(&Loader<'_>) -> T) -> T {
    let no_names = |_: &NameLookup, _: &str, _: u16| Err(io::ErrorKind::Unsupported.into());
    with_loader(&no_names, use_it)
}

/// Calls `use_it` with a loader that looks names up with `resolve_host`.
pub(crate) fn with_loader<T>(resolve_host: &ResolveHost<'_>, use_it: impl FnOnce(&Loader<'_>) -> T) -> T {
    let environment = |name: &str| std::env::var(name).ok();
    use_it(&Loader {
        filters: &plan::filter::specs(),
        environment: &environment,
        resolve_host,
        within: None,
        is_offline: false,
    })
}
