//! The canonical form of a source. Tokens, comments and line breaks stay; blanks and indentation follow one style.

use super::ParseError;
use super::lexer::{Token, TokenKind, Tokens, tokenize};
use super::parser::{Role, roles};

const INDENT: usize = 2;

/// Returns the source in canonical form. Each bracket indents by two blanks. Tokens on a line are separated by one blank or none, and at most one
/// empty line stays between two lines. Comments and line breaks stay in place.
///
/// # Errors
///
/// [`ParseError`]: the source does not parse.
pub fn format(source: &str) -> Result<String, ParseError> {
    let tokens = tokenize(source)?;
    let roles = roles(&tokens)?;
    let mut pieces: Vec<Piece> = Vec::new();
    let mut comments = tokens.comments.iter().copied().peekable();
    for (token, role) in tokens.tokens.iter().zip(roles) {
        while let Some((start, end)) = comments.next_if(|(start, _)| *start < token.start) {
            pieces.push(Piece {
                start,
                end,
                kind: PieceKind::Comment,
                role: Role::Plain,
            });
        }
        if token.kind == TokenKind::End {
            break;
        }
        pieces.push(Piece {
            start: token.start,
            end: token.end,
            kind: PieceKind::of(*token),
            role,
        });
    }
    Ok(Writer::new(&tokens).write(&pieces))
}

/// A token or a comment.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: usize,
    end: usize,
    kind: PieceKind,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceKind {
    Word,
    Raw,
    /// Text within a chevron, where every blank counts.
    Chevron,
    /// Opens an expression within a chevron.
    BeestingOpen,
    BeestingClose,
    Comment,
}

impl PieceKind {
    fn of(token: Token) -> PieceKind {
        match token.kind {
            TokenKind::Raw => PieceKind::Raw,
            TokenKind::ChevronText | TokenKind::ChevronClose => PieceKind::Chevron,
            TokenKind::BeestingOpen => PieceKind::BeestingOpen,
            TokenKind::BeestingClose => PieceKind::BeestingClose,
            _ => PieceKind::Word,
        }
    }
}

struct Writer<'a> {
    source: &'a str,
    output: String,
    /// The brackets that are open now, outermost first.
    brackets: Vec<Bracket>,
    line: usize,
}

#[derive(Clone, Copy, Debug)]
struct Bracket {
    /// True if the contents are indented one level more. If a tight bracket opens another bracket on the same line, only the other one indents.
    indents: bool,
    line: usize,
    /// True if no blank separates the bracket from its contents. False for blocks.
    is_tight: bool,
}

impl<'a> Writer<'a> {
    fn new(tokens: &Tokens<'a>) -> Writer<'a> {
        Writer {
            source: tokens.source,
            output: String::with_capacity(tokens.source.len()),
            brackets: Vec::new(),
            line: 0,
        }
    }

    fn write(mut self, pieces: &[Piece]) -> String {
        let mut before: Option<Piece> = None;
        for piece in pieces {
            let text = &self.source[piece.start..piece.end];
            let closes = matches!(text, "}" | ")" | "]") && piece.kind == PieceKind::Raw;
            let closed = if closes { self.brackets.pop() } else { None };
            if let Some(before) = before {
                self.separate(before, *piece, closed);
            }
            self.output.push_str(if piece.kind == PieceKind::Comment {
                text.trim_end()
            } else {
                text
            });
            if matches!(text, "{" | "(" | "[") && piece.kind == PieceKind::Raw {
                if let Some(outer) = self
                    .brackets
                    .last_mut()
                    .filter(|outer| outer.line == self.line && outer.is_tight)
                {
                    outer.indents = false;
                }
                self.brackets.push(Bracket {
                    indents: true,
                    line: self.line,
                    is_tight: text != "{" || piece.role != Role::Plain,
                });
            }
            before = Some(*piece);
        }
        while self.output.ends_with(['\n', ' ']) {
            self.output.pop();
        }
        self.output.push('\n');
        self.output
    }

    /// Writes the space between two pieces.
    fn separate(&mut self, before: Piece, piece: Piece, closed: Option<Bracket>) {
        if matches!(piece.kind, PieceKind::Chevron | PieceKind::BeestingOpen) {
            return;
        }
        let between = &self.source[before.end..piece.start];
        let breaks = between.bytes().filter(|byte| *byte == b'\n').count();
        let is_line_comment = before.kind == PieceKind::Comment && self.source[before.start..].starts_with("//");
        if breaks == 0 && !is_line_comment {
            if self.is_spaced(before, piece, closed) {
                self.output.push(' ');
            }
            return;
        }
        let opened = matches!(&self.source[before.start..before.end], "{" | "(" | "[") && before.kind == PieceKind::Raw;
        self.output.push('\n');
        self.line += 1;
        if breaks > 1 && !opened && closed.is_none() {
            self.output.push('\n');
        }
        let depth = self.brackets.iter().filter(|bracket| bracket.indents).count();
        let continues = closed.is_none() && self.continues(before, piece);
        let blanks = INDENT * depth + if continues { INDENT } else { 0 };
        self.output.extend(std::iter::repeat_n(' ', blanks));
    }

    /// True if a line that begins with this piece continues the line above.
    fn continues(&self, before: Piece, piece: Piece) -> bool {
        let ends = &self.source[before.start..before.end];
        let begins = &self.source[piece.start..piece.end];
        let is_operator = |text: &str, piece: Piece| {
            piece.kind == PieceKind::Raw
                && piece.role == Role::Plain
                && !matches!(text, "{" | "}" | "(" | ")" | "[" | "]" | "," | ";")
        };
        let is_dot = begins == "." && piece.kind == PieceKind::Raw;
        is_operator(ends, before) || is_operator(begins, piece) || is_dot
    }

    /// True if a blank belongs between two pieces on one line.
    fn is_spaced(&self, before: Piece, piece: Piece, closed: Option<Bracket>) -> bool {
        let left = &self.source[before.start..before.end];
        let right = &self.source[piece.start..piece.end];
        if before.kind == PieceKind::Comment || piece.kind == PieceKind::Comment {
            return true;
        }
        // Chevron text and embedded expressions touch, since blanks count there.
        let in_chevron = |kind: PieceKind| matches!(kind, PieceKind::Chevron | PieceKind::BeestingOpen);
        if before.kind == PieceKind::BeestingOpen || piece.kind == PieceKind::BeestingClose {
            return false;
        }
        if in_chevron(before.kind) && left != ">>" {
            return false;
        }
        if before.role == Role::Joint || piece.role == Role::Joint || before.role == Role::Prefix {
            return false;
        }
        let is_opened = before.kind == PieceKind::Raw && matches!(left, "(" | "[" | "{");
        if let Some(bracket) = closed {
            return !bracket.is_tight && !is_opened;
        }
        if piece.kind == PieceKind::Raw {
            match right {
                "," | ";" | ":" => return false,
                "." | "{" | "[" | "(" if piece.role == Role::Suffix => return false,
                _ => {}
            }
        }
        if before.kind == PieceKind::Raw && left == "." {
            return false;
        }
        !is_opened || self.brackets.last().is_some_and(|bracket| !bracket.is_tight)
    }
}
