//! The words of a report.

/// Returns the reason without positions in the JSON text, which would make one cause look like many.
pub(super) fn cause(reason: &str) -> String {
    const LINE: &str = " at line ";
    let mut cause = String::with_capacity(reason.len());
    let mut left = reason;
    while let Some((before, after)) = left.split_once(LINE) {
        cause.push_str(before);
        let behind = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let column = behind.strip_prefix(" column ").filter(|_| behind.len() < after.len());
        left = match column {
            Some(column) => column.trim_start_matches(|digit: char| digit.is_ascii_digit()),
            None => {
                cause.push_str(LINE);
                after
            }
        };
    }
    cause.push_str(left);
    cause
}

/// Writes a number of occurrences.
pub(super) fn times_text(count: u64) -> String {
    match count {
        1 => "once".into(),
        _ => format!("{count} times"),
    }
}

/// Writes how many entities met it.
pub(super) fn entities_text(count: u64) -> String {
    match count {
        1 => "1 entity".into(),
        _ => format!("{count} entities"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_loses_only_places_in_a_text() {
        let cases = [
            ("held: EOF at line 12 column 3, and more", "held: EOF, and more"),
            ("he stands at line one", "he stands at line one"),
            ("broken at line 7", "broken at line 7"),
        ];
        for (reason, expected) in cases {
            assert_eq!(cause(reason), expected);
        }
    }
}
