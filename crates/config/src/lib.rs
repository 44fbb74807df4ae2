//! The file a person writes, turned into a [`model::Snapshot`] or into everything that is wrong with it.
//!
//! This crate knows no sockets and no running state: it reads files, and asks its caller for environment variables,
//! host names and the filters there are. It does not know what a filter does, nor how a snapshot is compiled.
//!
//! Text goes through these steps, each its own module: `yaml` (a tree in which everything has its place),
//! `interpolate` (`${NAME}`), `read` (`include`), `validate` (the tree against the schema that is generated from
//! [`file`](mod@file)), `resolve` (what is meant). Problems of all steps are collected and told together.
//!
//! Start reading at [`Loader`], then [`file`](mod@file).

mod broken;
mod change;
mod changes;
mod defaults;
mod diagnostic;
mod effective;
mod elsewhere;
mod expectation;
pub mod file;
mod given;
mod history;
mod interpolate;
mod load;
mod paths;
mod provided;
mod read;
mod reference;
mod resolve;
mod schema;
mod source;
mod tree;
pub mod units;
mod validate;
mod whole;
mod wording;
mod yaml;

pub use change::{EndpointEdit, check_change};
pub use changes::Changes;
pub use diagnostic::{Bond, DIAGNOSTICS_MAX, Diagnostic, Diagnostics, Severity, did_you_mean};
pub use history::{KeptDifference, KeptGeneration, read_history, write_history};
pub use load::{Beside, Loaded, Loader, ResolveHost, check_provided, check_text, fault_of_provided, unsealed};
pub use provided::{Provided, ProvidedEndpoints, ProvidedText, place_of as place_of_provided};
pub use read::{files_in, files_of, open_file, read_text, read_text_from};
pub use reference::reference;
pub use schema::schema;
pub use source::{Document, Documents, FileId, Span};
pub use whole::Whole;
