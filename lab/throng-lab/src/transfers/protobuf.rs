//! The parts of protobuf and gRPC that UmaDB's interface needs: numbers, bytes, and one frame for each message.

/// The bytes before a message of gRPC: a flag for compression, and its length.
const PREFIX_BYTES: usize = 5;

const NUMBER: u64 = 0;
const BYTES: u64 = 2;

/// Appends a number as a field.
pub(super) fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3 | NUMBER);
    varint(out, value);
}

/// Appends bytes, a text or a message as a field.
pub(super) fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a message in a frame of gRPC.
pub(super) fn frame(out: &mut Vec<u8>, message: &[u8]) {
    out.push(0);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
}

/// Returns the messages of a body, without one that is cut off.
pub(super) fn frames(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (prefix, rest) = body.split_at_checked(PREFIX_BYTES)?;
        let length = u32::from_be_bytes(prefix[1..].try_into().ok()?);
        let (message, rest) = rest.split_at_checked(length as usize)?;
        body = rest;
        Some(message)
    })
}

/// A value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message, up to the first that is neither a number nor bytes.
pub(super) fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let key = read_varint(&mut message)?;
        let value = read_varint(&mut message)?;
        match key & 7 {
            NUMBER => Some((key >> 3, Value::Number(value))),
            BYTES => {
                let (bytes, rest) = message.split_at_checked(usize::try_from(value).ok()?)?;
                message = rest;
                Some((key >> 3, Value::Bytes(bytes)))
            }
            _ => None,
        }
    })
}

fn read_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_the_format_says_and_read_back() {
        let mut message = Vec::new();
        number(&mut message, 1, 300);
        bytes(&mut message, 2, b"testing");
        // The examples come from protobuf's own page on its encoding.
        assert_eq!(message, b"\x08\xac\x02\x12\x07testing");
        let read: Vec<_> = fields(&message).collect();
        assert_eq!(read, [(1, Value::Number(300)), (2, Value::Bytes(b"testing"))]);
        let mut body = Vec::new();
        frame(&mut body, &message);
        frame(&mut body, b"");
        assert_eq!(frames(&body).collect::<Vec<_>>(), [&message[..], b""]);
        assert_eq!(frames(&body[..9]).count(), 0, "cut short");
    }
}
