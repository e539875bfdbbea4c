//! The location of an error in JSON, parsed from the error's text.

/// The place named by a sentence.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorLocation {
    pub(super) field: Option<String>,
    pub(super) line: Option<u64>,
    pub(super) column: Option<u64>,
}

/// `path: … at line 1 column 2`, ``missing field `name` at line 1 column 2``.
pub(super) fn place(sentence: &str) -> ErrorLocation {
    let (rest, line, column) = position(sentence).unwrap_or((sentence, None, None));
    ErrorLocation {
        field: field(rest),
        line,
        column,
    }
}

fn position(sentence: &str) -> Option<(&str, Option<u64>, Option<u64>)> {
    let (rest, at) = sentence.rsplit_once(" at line ")?;
    let (line, column) = at.split_once(" column ")?;
    let digits = |text: &str| text.trim_end_matches('.').parse().ok();
    Some((rest, Some(digits(line)?), Some(digits(column)?)))
}

fn field(sentence: &str) -> Option<String> {
    let is_path = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-.[]".contains(&byte))
    };
    let (path, why) = match sentence.split_once(": ") {
        Some((path, why)) if is_path(path) => (Some(path), why),
        _ => (None, sentence),
    };
    // serde names a missing or unknown field between back quotes, right after these words.
    let named = ["missing field `", "unknown field `", "duplicate field `"];
    let named = named
        .iter()
        .find_map(|words| Some(why.split_once(words)?.1.split_once('`')?.0));
    match (path, named) {
        (Some(path), Some(named)) if path != named && !path.ends_with(&format!(".{named}")) => {
            Some(format!("{path}.{named}"))
        }
        (Some(path), _) => Some(path.to_owned()),
        (None, named) => named.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(field: Option<&str>, line: u64, column: u64) -> ErrorLocation {
        ErrorLocation {
            field: field.map(str::to_owned),
            line: Some(line),
            column: Some(column),
        }
    }

    #[test]
    fn a_sentence_of_serde_names_field_line_and_column() {
        assert_eq!(
            place("missing field `student` at line 1 column 2"),
            at(Some("student"), 1, 2)
        );
        assert_eq!(
            place("student: invalid type: integer `5`, expected a string at line 3 column 14"),
            at(Some("student"), 3, 14)
        );
        assert_eq!(
            place("seats[2].row: missing field `number` at line 1 column 9"),
            at(Some("seats[2].row.number"), 1, 9)
        );
        assert_eq!(
            place("name: unknown field `name`, expected `student` at line 1 column 7"),
            at(Some("name"), 1, 7)
        );
        assert_eq!(place("expected value at line 1 column 1"), at(None, 1, 1));
        assert_eq!(
            place("invalid type: integer `5`, expected a string at line 1 column 1"),
            at(None, 1, 1)
        );
    }

    #[test]
    fn a_sentence_without_a_place_has_none() {
        assert_eq!(place("the id is empty"), ErrorLocation::default());
        assert_eq!(place("the train leaves at line 5"), ErrorLocation::default());
    }
}
