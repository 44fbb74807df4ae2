//! The file a person writes, turned into a [`model::Snapshot`] or into everything that is wrong with it.
//!
//! This crate knows no sockets and no running state: it reads files, and asks its caller for environment variables,
//! host names and the filters there are. It does not know what a filter does, nor how a snapshot is compiled.
//!
//! Text goes through these steps, each its own module: `yaml` (a tree in which everything has its place),
//! `interpolate` (`${NAME}`), `read` (`include`), `validate` (the tree against the schema that is generated from
//! [`file`](mod@file)), `resolve` (what is meant). Problems of all steps are collected and told together.
//!
//! A configuration comes from several sides, and is shown in several forms. Each has its module:
//!
//! | Module | What it holds |
//! |---|---|
//! | `provided` | texts of providers, joined with the files: whole objects, and lists of endpoints |
//! | `given` | the endpoints of one such list, without the detour through text |
//! | `changes` | what the API has set beside the files, object by object; it overrides all others |
//! | `change` | how one call of the API becomes such changes: an object, an endpoint, or the difference to a whole configuration |
//! | `whole` | all of these joined as it was written, as the history keeps it for a rollback |
//! | `effective` | all of these joined with every default filled in and secrets hidden, to be shown |
//!
//! `host` is what loading asks of the world, `load` the way in, and `loaded` what comes of it.
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
mod faulty;
pub mod file;
mod given;
mod history;
mod host;
mod inherited;
mod interpolate;
mod listener_filters;
mod load;
mod loaded;
pub mod mmdb;
mod nested;
mod part;
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
pub use host::{Loader, ResolveHost};
pub use load::{Beside, check_provided, check_text, fault_of_provided};
pub use loaded::{Loaded, ProvidedEndpoints, unsealed};
pub use provided::{Provided, ProvidedText, place_of as place_of_provided};
pub use read::{files_in, files_of, open_file, read_text, read_text_from};
pub use reference::reference;
pub use schema::schema;
pub use source::{Document, Documents, FileId, Span};
pub use whole::Whole;
