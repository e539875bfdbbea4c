//! Finds the end of a body in chunks (RFC 9112 §7.1). The code that answers the request reads the content.

/// Hexadecimal digits of a chunk's size at most.
const DIGITS_MAX: u8 = 15;

/// The next part of a body in chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    /// The first digit of a chunk's size.
    #[default]
    Size,
    /// More of its digits, an extension, or the end of the line.
    SizeOrEnd(u64, u8),
    /// The rest of the extension.
    Extension(u64),
    /// The line feed after the size.
    SizeFeed(u64),
    /// The number of bytes left in this chunk.
    Data(u64),
    DataReturn,
    DataFeed,
    /// The beginning of a trailer line; an empty one ends the body.
    Trailer,
    TrailerRest,
    TrailerFeed,
    LastFeed,
    Over,
}

/// The progress through a body in chunks.
#[derive(Debug, Default)]
pub(crate) struct Chunks(Next);

impl Chunks {
    pub(super) fn is_over(&self) -> bool {
        self.0 == Next::Over
    }

    /// Returns how many of these bytes belong to the body; `None` if they are malformed.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() && !self.is_over() {
            if let Next::Data(left) = self.0 {
                let taken = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                at += taken;
                self.0 = match left - taken as u64 {
                    0 => Next::DataReturn,
                    left => Next::Data(left),
                };
                continue;
            }
            self.0 = step(self.0, bytes[at])?;
            at += 1;
        }
        Some(at)
    }
}

fn step(next: Next, byte: u8) -> Option<Next> {
    let digit = char::from(byte).to_digit(16).map(u64::from);
    Some(match (next, byte) {
        (Next::Size, _) => Next::SizeOrEnd(digit?, 1),
        (Next::SizeOrEnd(size, _), b'\r') => Next::SizeFeed(size),
        (Next::SizeOrEnd(size, _), b';' | b' ' | b'\t') => Next::Extension(size),
        (Next::SizeOrEnd(size, digits), _) if digits < DIGITS_MAX => Next::SizeOrEnd(size * 16 + digit?, digits + 1),
        (Next::Extension(size), b'\r') => Next::SizeFeed(size),
        (Next::Extension(_), b'\n') => return None,
        (Next::Extension(size), _) => Next::Extension(size),
        (Next::SizeFeed(0), b'\n') => Next::Trailer,
        (Next::SizeFeed(size), b'\n') => Next::Data(size),
        (Next::DataReturn, b'\r') => Next::DataFeed,
        (Next::DataFeed, b'\n') => Next::Size,
        (Next::Trailer, b'\r') => Next::LastFeed,
        (Next::TrailerRest, b'\r') => Next::TrailerFeed,
        (Next::Trailer | Next::TrailerRest, b'\n') => return None,
        (Next::Trailer | Next::TrailerRest, _) => Next::TrailerRest,
        (Next::TrailerFeed, b'\n') => Next::Trailer,
        (Next::LastFeed, b'\n') => Next::Over,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_are_not_well_formed_have_no_end() {
        for body in [
            "g\r\n",
            "-1\r\n",
            "\r\n",
            "1\n1\r\n",
            "1\r\n12\r\n",
            "1\r\n1\n",
            "1;a\nb\r\n",
            "0\r\nx: y\n",
            "1000000000000000\r\n",
            "0x1\r\n",
            " 1\r\n",
        ] {
            assert_eq!(Chunks::default().take(body.as_bytes()), None, "{body:?}");
        }
    }

    #[test]
    fn bytes_after_the_last_chunk_belong_to_the_next_request() {
        let mut chunks = Chunks::default();
        assert_eq!(chunks.take(b"3\r\nabc\r\n0\r\n\r\n3\r\n"), Some(13));
        assert!(chunks.is_over());
        assert_eq!(chunks.take(b"more"), Some(0));
    }
}
