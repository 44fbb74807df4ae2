//! The data plane
