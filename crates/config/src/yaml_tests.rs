//! Hostile and odd texts.
