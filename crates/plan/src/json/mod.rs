//! JSON texts of others, in bounds: the words of a text, and where all of its values lie.

mod index;
mod lexer;

pub use index::{Index, Item, Path};
pub use lexer::DEPTH_MAX;
pub(crate) use lexer::{Lexer, place, unescaped};
