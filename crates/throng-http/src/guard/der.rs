//! Elements of certificates.

/// The first element of some DER (X.690).
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    pub(super) rest: &'a [u8],
}

pub(super) fn element(der: &[u8]) -> Option<Element<'_>> {
    let (&tag, der) = der.split_first()?;
    let (&first, mut der) = der.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x83 => {
            let (bytes, rest) = der.split_at_checked(usize::from(first & 0x7f))?;
            der = rest;
            bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
        _ => return None,
    };
    let (content, rest) = der.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}
