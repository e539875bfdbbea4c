//! Texts with `${name}` in them, which are parsed once and filled in for every request.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(Vec<u8>),
    Slot { slot: usize, filter: Filter },
}

/// The change of a value before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// No change, for bodies.
    Plain,
    /// Percent-encoding for a path or a query string (`${name|url}`).
    Url,
    /// Escapes for a JSON string (`${name|json}`).
    Json,
    /// Percent-encoding of control characters and blanks, which would break the request line.
    Path,
    /// Blanks instead of control characters, which would break the header line.
    Header,
}

/// A template whose names are replaced by slots.
#[derive(Debug, Clone, Default)]
pub(crate) struct Template(pub(crate) Vec<Piece>);

/// The meaning of a name.
pub(crate) enum Meaning {
    Constant(String),
    Slot(usize),
}

impl Template {
    /// Parses `text`. `default` is the filter of names without a filter.
    pub(crate) fn parse(
        text: &str,
        default: Filter,
        mut meaning: impl FnMut(&str) -> Result<Meaning, String>,
    ) -> Result<Self, String> {
        let mut template = Template::default();
        let mut rest = text;
        while let Some(begin) = rest.find("${") {
            template.text(&rest[..begin], default);
            let after = &rest[begin + 2..];
            let end = after
                .find('}')
                .ok_or_else(|| format!("in `{text}`: a `}}` is missing"))?;
            let (name, filter) = match after[..end].split_once('|') {
                None => (&after[..end], default),
                Some((name, "url")) => (name, Filter::Url),
                Some((name, "json")) => (name, Filter::Json),
                Some((_, other)) => return Err(format!("in `{text}`: no filter `{other}`; there are url and json")),
            };
            match meaning(name.trim())? {
                Meaning::Constant(value) => {
                    let mut bytes = Vec::new();
                    filter.apply(&value, &mut bytes);
                    template.push_text(&bytes);
                }
                Meaning::Slot(slot) => template.0.push(Piece::Slot { slot, filter }),
            }
            rest = &after[end + 1..];
        }
        template.text(rest, default);
        Ok(template)
    }

    fn text(&mut self, text: &str, filter: Filter) {
        let mut bytes = Vec::new();
        filter.apply(text, &mut bytes);
        self.push_text(&bytes);
    }

    /// Appends constant bytes.
    pub(crate) fn push_text(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            _ if bytes.is_empty() => {}
            Some(Piece::Text(text)) => text.extend_from_slice(bytes),
            _ => self.0.push(Piece::Text(bytes.to_vec())),
        }
    }

    /// Appends another template.
    pub(crate) fn push(&mut self, other: Template) {
        for piece in other.0 {
            match piece {
                Piece::Text(text) => self.push_text(&text),
                slot => self.0.push(slot),
            }
        }
    }

    /// Returns the slots of the template.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Slot { slot, .. } => Some(*slot),
            Piece::Text(_) => None,
        })
    }

    /// Appends the filled-in template to `out`.
    pub(crate) fn fill(&self, values: &[String], out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Slot { slot, filter } => filter.apply(&values[*slot], out),
            }
        }
    }
}

impl Filter {
    fn apply(self, value: &str, out: &mut Vec<u8>) {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let percent = |byte: u8, out: &mut Vec<u8>| {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        };
        match self {
            Filter::Plain => out.extend_from_slice(value.as_bytes()),
            Filter::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
            }
            Filter::Url => {
                for byte in value.bytes() {
                    match byte {
                        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
                        byte => percent(byte, out),
                    }
                }
            }
            Filter::Path => {
                for byte in value.bytes() {
                    if byte <= b' ' || byte >= 0x7f {
                        percent(byte, out)
                    } else {
                        out.push(byte)
                    }
                }
            }
            Filter::Header => out.extend(
                value
                    .bytes()
                    .map(|byte| if byte < b' ' || byte == 0x7f { b' ' } else { byte }),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, default: Filter, value: &str) -> Result<String, String> {
        let template = Template::parse(text, default, |name| match name {
            "a" => Ok(Meaning::Slot(0)),
            "three" => Ok(Meaning::Constant("3".into())),
            other => Err(format!("no `{other}`")),
        })?;
        let mut out = Vec::new();
        template.fill(&[value.to_string()], &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn names_are_filled_in() {
        assert_eq!(filled("x${a}y${three}${a}", Filter::Plain, "1").unwrap(), "x1y31");
        assert_eq!(filled("$a {a}", Filter::Plain, "1").unwrap(), "$a {a}");
    }

    #[test]
    fn values_cannot_break_out() {
        assert_eq!(
            filled("/s/${a|url}", Filter::Path, "A HTG/1").unwrap(),
            "/s/A%20HTG%2F1"
        );
        assert_eq!(filled("/s/${a}", Filter::Path, "a b\r\n").unwrap(), "/s/a%20b%0D%0A");
        assert_eq!(filled("${a}", Filter::Header, "a\r\nB: c").unwrap(), "a  B: c");
        assert_eq!(filled("\"${a|json}\"", Filter::Plain, "\"\n").unwrap(), "\"\\\"\\n\"");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(filled("${a", Filter::Plain, "").unwrap_err().contains("`}` is missing"));
        assert!(filled("${b}", Filter::Plain, "").unwrap_err().contains("no `b`"));
        assert!(
            filled("${a|upper}", Filter::Plain, "")
                .unwrap_err()
                .contains("no filter")
        );
    }
}
