//! The lexer. It splits a source into tokens.

use super::{Location, ParseError, SOURCE_BYTES_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Symbol,
    Number,
    String,
    Regex,
    /// An operator or a bracket.
    Raw,
    ChevronOpen,
    ChevronText,
    BeestingOpen,
    BeestingClose,
    ChevronClose,
    /// An invalid character or an unclosed token, with the fault. The parser refuses it when it reaches it. So an earlier error is reported first.
    Illegal(&'static str),
    End,
}

/// A token and its place in the source, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The tokens of a source. The last one marks the end.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    pub(super) source: &'a str,
    pub(super) tokens: Vec<Token>,
    /// The places of the comments, in order.
    pub(super) comments: Vec<(usize, usize)>,
    line_starts: Vec<usize>,
}

impl<'a> Tokens<'a> {
    pub(super) fn text(&self, token: Token) -> &'a str {
        &self.source[token.start..token.end]
    }

    pub(super) fn location(&self, offset: usize) -> Location {
        locate(self.source, &self.line_starts, offset)
    }
}

fn locate(source: &str, line_starts: &[usize], offset: usize) -> Location {
    let line = line_starts.partition_point(|start| *start <= offset).max(1);
    let start = line_starts.get(line - 1).copied().unwrap_or(0);
    // Characters are counted only within the first thousand bytes of a line, then bytes. Else an endless line would be counted again and again.
    let before = &source.as_bytes()[start..offset];
    let column = match before.len() {
        0..1000 => before.iter().filter(|byte| **byte & 0xC0 != 0x80).count(),
        long => long,
    };
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Location {
        line: number(line),
        column: number(column + 1),
    }
}

/// Operators and brackets. If one is a prefix of another, the longer one stands first.
const RAW: [&str; 29] = [
    "<=>", "<=", "<", "||", "|", "==", "=>", "=", ":=", ":", ">=", "><", ">", "&&", "!=", "(", ")", "{", "}", "[", "]",
    ",", "/", ".", "-", "%", "+", ";", "*",
];

/// Splits a source into tokens. Refuses only a source that is too long.
pub(super) fn tokenize(source: &str) -> Result<Tokens<'_>, ParseError> {
    let line_starts = std::iter::once(0)
        .chain(source.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let mut lexer = Lexer {
        source,
        bytes: source.as_bytes(),
        at: 0,
        beestings: Vec::new(),
        output: Tokens {
            source,
            tokens: Vec::new(),
            comments: Vec::new(),
            line_starts,
        },
    };
    if source.len() > SOURCE_BYTES_MAX {
        let wrong = format!(
            "the source is {} bytes long, more than {SOURCE_BYTES_MAX}",
            source.len()
        );
        return Err(ParseError {
            location: lexer.output.location(0),
            found: String::new(),
            expected: wrong,
        });
    }
    while lexer.at < source.len() {
        lexer.next();
    }
    lexer.push(TokenKind::End, source.len());
    Ok(lexer.output)
}

struct Lexer<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The number of open braces in each open expression within a chevron, outermost first.
    beestings: Vec<u32>,
    output: Tokens<'a>,
}

impl Lexer<'_> {
    fn next(&mut self) {
        let start = self.at;
        let byte = self.bytes[start];
        let rest = &self.source[start..];
        match byte {
            _ if rest.starts_with("//") => {
                let length = rest.find(['\n', '\r']).unwrap_or(rest.len());
                self.comment(length);
            }
            _ if rest.starts_with("/*") => match rest[2..].find("*/") {
                Some(length) => self.comment(length + 4),
                None => self.unclosed("the comment is never closed with `*/`"),
            },
            b'0'..=b'9' => self.number(),
            b'.' if self.bytes.get(start + 1).is_some_and(u8::is_ascii_digit) => self.number(),
            b'"' => match self.close_of(start + 1, b'"') {
                Some(end) => self.push(TokenKind::String, end),
                None => self.unclosed("the string is never closed with `\"`"),
            },
            _ if rest.starts_with("re#") => {
                let Some(end) = self.close_of(start + 3, b'#') else {
                    return self.unclosed("the regular expression is never closed with `#`");
                };
                let flags = self.bytes[end..]
                    .iter()
                    .take_while(|flag| matches!(flag, b'g' | b'i' | b'm'));
                let end = end + flags.count();
                self.push(TokenKind::Regex, end);
            }
            _ if rest.starts_with("<<") => {
                self.push(TokenKind::ChevronOpen, start + 2);
                self.chevron();
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => {
                let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
                let length = self.bytes[start..].iter().take_while(is_part).count();
                self.push(TokenKind::Symbol, start + length);
            }
            _ => self.raw(rest),
        }
    }

    fn raw(&mut self, rest: &str) {
        let start = self.at;
        if let Some(blank) = rest
            .chars()
            .next()
            .filter(|character| character.is_whitespace() || *character == '\u{feff}')
        {
            self.at += blank.len_utf8();
            return;
        }
        match (self.bytes[start], self.beestings.last_mut()) {
            (b'{', Some(braces)) => *braces += 1,
            (b'}', Some(0)) => {
                self.beestings.pop();
                self.push(TokenKind::BeestingClose, start + 1);
                return self.chevron();
            }
            (b'}', Some(braces)) => *braces -= 1,
            _ => {}
        }
        match RAW.iter().find(|raw| rest.starts_with(**raw)) {
            Some(raw) => self.push(TokenKind::Raw, start + raw.len()),
            None => {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                self.push(TokenKind::Illegal("this character means nothing here"), start + length);
            }
        }
    }

    fn comment(&mut self, length: usize) {
        self.output.comments.push((self.at, self.at + length));
        self.at += length;
    }

    fn number(&mut self) {
        let digits = |from: usize| {
            self.bytes[from..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count()
        };
        let whole = self.at + digits(self.at);
        let fraction = if self.bytes.get(whole) == Some(&b'.') {
            digits(whole + 1)
        } else {
            0
        };
        self.push(
            TokenKind::Number,
            if fraction > 0 { whole + 1 + fraction } else { whole },
        );
    }

    /// Returns the end of a token closed by this byte. A backslash escapes the byte.
    fn close_of(&self, from: usize, close: u8) -> Option<usize> {
        let mut at = from;
        while let Some(byte) = self.bytes.get(at) {
            match byte {
                b'\\' => at += 2,
                byte if *byte == close => return Some(at + 1),
                _ => at += 1,
            }
        }
        None
    }

    /// Reads the text of a chevron, up to its end or to the next expression in it.
    fn chevron(&mut self) {
        let mut at = self.at;
        while let Some(byte) = self.bytes.get(at) {
            let rest = &self.bytes[at..];
            let ends = rest.starts_with(b">>");
            if ends || rest.starts_with(b"#{") {
                if at > self.at {
                    self.push(TokenKind::ChevronText, at);
                }
                if ends {
                    self.push(TokenKind::ChevronClose, at + 2);
                } else {
                    self.push(TokenKind::BeestingOpen, at + 2);
                    self.beestings.push(0);
                }
                return;
            }
            at += if *byte == b'\\' { 2 } else { 1 };
        }
        self.unclosed("the chevron is never closed with `>>`");
    }

    fn unclosed(&mut self, wrong: &'static str) {
        self.push(TokenKind::Illegal(wrong), self.source.len());
    }

    fn push(&mut self, kind: TokenKind, end: usize) {
        let start = self.at;
        self.output.tokens.push(Token { kind, start, end });
        self.at = end;
    }
}
