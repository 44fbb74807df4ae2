//! Values in the body of a request, for conditions of routes.

pub mod json;
pub mod protobuf;

/// A text is not of the format that it is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;
