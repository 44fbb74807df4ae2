//! `cache`.

mod cutting;
mod responses;
mod settings;
pub(super) mod slices;
mod steps;

#[cfg(test)]
mod tests;

pub(super) use settings::ENTRY;
