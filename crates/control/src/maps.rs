//! Maps of the active plan, for the administrator.

pub use plan::map::{EDITS_MAX, Edit, MapPlan};
