//! `cache`.

mod responses;
mod settings;
mod steps;

#[cfg(test)]
mod tests;

pub(super) use settings::ENTRY;
