//! The syntax: a parser from text to a tree, and a formatter to the canonical form.

pub(crate) mod ast;
mod error;
mod format;
mod lexer;
mod parser;

pub use ast::Ruleset;
pub use error::{Location, ParseError};
pub use format::format;
pub use parser::parse;

/// The largest source that is accepted, in bytes.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;
/// The deepest nesting of expressions, and of event expressions. A chain of operators nests as deep as it is long.
pub const EXPRESSION_DEPTH_MAX: u16 = 200;
