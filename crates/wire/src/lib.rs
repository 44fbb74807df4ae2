//! Protocol code without I/O
