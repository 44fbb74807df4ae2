//! Reports: what a study found, drawn so that anybody can read it without the lab.

pub(crate) mod page;
