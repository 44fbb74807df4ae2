//! The file a person writes, turned into a snapshot or into diagnostics
