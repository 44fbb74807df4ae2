//! Providers, publishing and probes
