//! Parses CSV according to RFC 4180: quoted fields may hold commas, line ends and doubled quotes.

/// Returns all rows except empty lines.
pub(crate) fn parse(text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut letters = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' if quoted || field.is_empty() => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => end_row(&mut rows, &mut row, &mut field),
            letter => field.push(letter),
        }
    }
    end_row(&mut rows, &mut row, &mut field);
    rows
}

fn end_row(rows: &mut Vec<Vec<String>>, row: &mut Vec<String>, field: &mut String) {
    if !row.is_empty() || !field.is_empty() {
        row.push(std::mem::take(field));
        rows.push(std::mem::take(row));
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn quotes_hold_commas_lines_and_quotes() {
        let rows = parse("a,b\r\n\"1,\n\"\"2\"\"\",x\n\n,y");
        assert_eq!(rows, [vec!["a", "b"], vec!["1,\n\"2\"", "x"], vec!["", "y"]]);
    }
}
