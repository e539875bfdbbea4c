//! Frames as bytes (RFC 6455 §5.2), as far as the fast path itself reads and writes them.

use std::ops::Range;

const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const TEXT: u8 = 0x1;
/// The first opcode of control frames.
const CONTROL: u8 = 0x8;
const MASKED: u8 = 0x80;
/// Length values that mean that the length follows.
const IN_TWO_BYTES: u8 = 126;
const IN_EIGHT_BYTES: u8 = 127;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    first: u8,
    mask: Option<[u8; 4]>,
    /// The length of the head itself.
    pub(super) bytes: usize,
    /// The length of the payload behind it.
    pub(super) length: u64,
}

impl Head {
    /// Reads a head; `None` if it is incomplete.
    pub(super) fn parse(input: &[u8]) -> Option<Self> {
        let (&[first, second], rest) = input.split_first_chunk()?;
        let (length, rest) = match second & !MASKED {
            IN_TWO_BYTES => {
                let (length, rest) = rest.split_first_chunk()?;
                (u16::from_be_bytes(*length).into(), rest)
            }
            IN_EIGHT_BYTES => {
                let (length, rest) = rest.split_first_chunk()?;
                (u64::from_be_bytes(*length), rest)
            }
            length => (length.into(), rest),
        };
        let (mask, rest) = match second & MASKED {
            0 => (None, rest),
            _ => rest.split_first_chunk().map(|(mask, rest)| (Some(*mask), rest))?,
        };
        Some(Self {
            first,
            mask,
            bytes: input.len() - rest.len(),
            length,
        })
    }

    pub(super) fn is_control(&self) -> bool {
        self.first & OPCODE >= CONTROL
    }

    /// True if a message continues after this frame. `before`: whether it continued before, which a control frame does not change.
    pub(super) fn goes_on(&self, before: bool) -> bool {
        match self.first & OPCODE {
            CONTROL.. => before,
            _ => self.first & FINAL == 0,
        }
    }
}

/// The frame at the beginning of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A part of a frame.
    Partial,
    /// A client's text message: the range of its payload, and the key that it is [masked](mask) with.
    Text(Range<usize>, [u8; 4]),
    /// Anything else.
    Odd,
}

/// Examines the received bytes. A text message with more bytes than `most` is odd.
pub(crate) fn look(input: &[u8], most: usize) -> Frame {
    let Some(head) = Head::parse(input) else {
        return Frame::Partial;
    };
    let is_text = head.first & (FINAL | RESERVED | OPCODE) == FINAL | TEXT;
    let length = usize::try_from(head.length).ok().filter(|length| *length <= most);
    let (true, Some(mask), Some(length)) = (is_text, head.mask, length) else {
        return Frame::Odd;
    };
    let end = head.bytes + length;
    if input.len() < end {
        Frame::Partial
    } else {
        Frame::Text(head.bytes..end, mask)
    }
}

/// Masks a payload, or takes the mask off (§5.3).
pub(crate) fn mask(payload: &mut [u8], mask: [u8; 4]) {
    let mut fours = payload.chunks_exact_mut(4);
    for four in &mut fours {
        for (byte, mask) in four.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    for (byte, mask) in fours.into_remainder().iter_mut().zip(mask) {
        *byte ^= mask;
    }
}

/// Writes the head of the service's own text message of this length.
pub(super) fn head(output: &mut Vec<u8>, length: usize) {
    output.push(FINAL | TEXT);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length), _) if length < IN_TWO_BYTES => output.push(length),
        (_, Ok(length)) => {
            output.push(IN_TWO_BYTES);
            output.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            output.push(IN_EIGHT_BYTES);
            output.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_tungstenite::tungstenite::{
        Message, WebSocket,
        protocol::{
            Role,
            frame::{
                Frame as Written,
                coding::{Data, OpCode},
            },
        },
    };

    /// Returns the bytes of a message as a library writes them.
    fn written(message: Message, role: Role) -> Vec<u8> {
        let mut socket = WebSocket::from_raw_socket(std::io::Cursor::new(Vec::new()), role, None);
        socket.send(message).unwrap();
        socket.get_ref().get_ref().clone()
    }

    fn texts() -> impl Iterator<Item = String> {
        [0, 1, 3, 4, 125, 126, 127, 65_535, 65_536, 70_001]
            .into_iter()
            .map(|length| "ü".repeat(length / 2) + &"x".repeat(length % 2))
    }

    #[test]
    fn a_masked_text_equals_the_librarys_and_masks_back() {
        for text in texts() {
            let came = written(Message::text(&*text), Role::Client);
            let mut input = came.clone();
            input.extend_from_slice(b"\x81");
            let Frame::Text(payload, key) = look(&input, 70_001) else {
                panic!("{} bytes", text.len())
            };
            assert_eq!(payload.end, came.len());
            mask(&mut input[payload.clone()], key);
            assert_eq!(&input[payload.clone()], text.as_bytes());
            mask(&mut input[payload], key);
            assert_eq!(input[..came.len()], came);
            for length in (0..came.len()).step_by(1 + came.len() / 50) {
                assert_eq!(look(&came[..length], 70_001), Frame::Partial);
            }
        }
    }

    #[test]
    fn frames_other_than_short_client_texts_are_left_to_others() {
        let fragment = Message::Frame(Written::message("half", OpCode::Data(Data::Text), false));
        for (message, role) in [
            (Message::binary("x"), Role::Client),
            (Message::Ping("x".into()), Role::Client),
            (Message::Close(None), Role::Client),
            (fragment, Role::Client),
            (Message::text("not masked"), Role::Server),
        ] {
            assert_eq!(look(&written(message, role), 100), Frame::Odd);
        }
        let mut compressed = written(Message::text("x"), Role::Client);
        compressed[0] |= 0x40;
        assert_eq!(look(&compressed, 100), Frame::Odd);
        assert_eq!(
            look(&written(Message::text("x".repeat(101)), Role::Client)[..10], 100),
            Frame::Odd
        );
    }

    #[test]
    fn a_services_head_is_a_librarys() {
        for text in texts() {
            let mut own = Vec::new();
            head(&mut own, text.len());
            own.extend_from_slice(text.as_bytes());
            assert_eq!(own, written(Message::text(text), Role::Server));
        }
    }

    #[test]
    fn a_message_spans_control_frames_to_its_last_frame() {
        let goes_on = |first: u8, before| Head::parse(&[first, 0]).unwrap().goes_on(before);
        assert!(goes_on(TEXT, false) && goes_on(0, true) && goes_on(FINAL | 0x9, true));
        assert!(!goes_on(FINAL | TEXT, false) && !goes_on(FINAL, true) && !goes_on(FINAL | 0x9, false));
    }
}
