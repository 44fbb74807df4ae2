//! The HTTP API of the administrator
