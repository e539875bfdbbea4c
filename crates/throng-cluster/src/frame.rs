//! The frames that two nodes exchange, and the proofs that both know the cluster's secret.
//!
//! ```text
//! offset  size  header (16 bytes, little-endian)
//!      0     4  magic "THF1"
//!      4     4  length of the payload, at most 8 MiB
//!      8     4  CRC32C of the payload
//!     12     4  reserved, 0
//!     16     …  payload: a `Frame` as postcard
//! ```
//!
//! The node that connects sends `Hello`, with a random number. The other node answers `Welcome`, with its own random number and a proof:
//! HMAC-SHA256 over both numbers and both nodes, with the cluster's secret as its key. The first node checks it and sends its own `Proof`.
//! Only then are requests read. A frame of requests is a micro-batch: all requests that were waiting when the frame before it had been
//! written.

use ring::hmac;
use serde::{Deserialize, Serialize};
use throng::driver::peers::{Reply, Request};

/// The version of the frames. Two nodes without a common version do not communicate.
pub const PROTOCOL: u16 = 1;
/// Most bytes of a frame's payload.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// The most bytes of a frame from a peer that has not proved yet that it knows the secret.
pub const HELLO_BYTES_MAX: usize = 4 << 10;
/// Bytes before a frame's payload.
pub const HEADER_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"THF1";

/// A number that is drawn for each connection.
pub type Nonce = [u8; 32];

/// Everything that one side has for the other when it writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// The first frame, from the node that connects.
    Hello(Hello),
    /// The answer to it.
    Welcome {
        /// The node that accepted the connection.
        hello: Hello,
        /// The proof that it knows the secret.
        proof: [u8; 32],
    },
    /// The connecting node's proof that it knows the secret, too.
    Proof([u8; 32]),
    /// The reason why the other node is refused. The connection ends.
    Refused(String),
    /// Requests, in the order in which their shards are to begin them.
    Asks(Vec<Ask>),
    /// Replies by the ids of their requests, in any order.
    Answers(Vec<(u32, Reply)>),
    /// Asks which database server the other node uses. For nodes that report which others they [reach](throng_journal::features::REACHES).
    AsksServer,
    /// The answer to it; empty if unknown.
    UsesServer(String),
    /// Asks for the other node's report. For nodes that [have one](throng_journal::features::TELLS).
    AsksReport,
    /// The answer to it, as JSON; empty if unknown.
    Reports(String),
}

/// The introduction of a node on a connection, before anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the frames.
    pub protocol: u16,
    /// The cluster's id, from its directory.
    pub cluster: String,
    /// The node's number in it.
    pub node: u64,
    /// The number of shards of its service.
    pub shards: u16,
    /// Drawn for this connection.
    pub nonce: Nonce,
}

/// A request, with the data that its connection needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Names the request on its connection.
    pub id: u32,
    /// The shard it is for.
    pub shard: u16,
    /// The time that the asker waits for the answer.
    pub within_micros: u32,
    /// The request for the engine that owns the shard.
    pub request: Request,
}

/// The reason why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes begin with something else.
    #[error("what came is no frame of a node; is this another service's port?")]
    Magic,
    /// The length in the header.
    #[error("a frame of {0} bytes came, at most {1} are read")]
    TooLong(usize, usize),
    /// The payload has changed on the way.
    #[error("a frame was altered on the way: its checksum does not match")]
    Checksum,
    /// The payload is intact, but cannot be read.
    #[error("a frame cannot be read: {0}; do the two nodes run programs of versions too far apart?")]
    Payload(String),
}

/// Appends a frame's bytes.
///
/// # Errors
/// [`FrameError::TooLong`]: nothing was appended.
pub fn encode(frame: &Frame, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let begin = out.len();
    out.resize(begin + HEADER_BYTES, 0);
    let written = postcard::to_extend(frame, std::mem::take(out));
    *out = written.map_err(|why| FrameError::Payload(why.to_string()))?;
    let (header, payload) = out[begin..].split_at_mut(HEADER_BYTES);
    if payload.len() > FRAME_BYTES_MAX {
        let found = payload.len();
        out.truncate(begin);
        return Err(FrameError::TooLong(found, FRAME_BYTES_MAX));
    }
    header[..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[8..12].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    Ok(())
}

/// Reads the first frame, and returns it with its length in bytes; `None` if it is incomplete. If the payload is longer than `most`, only
/// the header is read.
///
/// # Errors
/// [`FrameError`]: the bytes are no frame.
pub fn decode(bytes: &[u8], most: usize) -> Result<Option<(Frame, usize)>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        let known = bytes.len().min(MAGIC.len());
        return if bytes[..known] == MAGIC[..known] {
            Ok(None)
        } else {
            Err(FrameError::Magic)
        };
    };
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[..4] != MAGIC {
        return Err(FrameError::Magic);
    }
    let length = word(4) as usize;
    if length > most {
        return Err(FrameError::TooLong(length, most));
    }
    let Some(payload) = rest.get(..length) else {
        return Ok(None);
    };
    if crc32c::crc32c(payload) != word(8) {
        return Err(FrameError::Checksum);
    }
    match postcard::from_bytes(payload) {
        Ok(frame) => Ok(Some((frame, HEADER_BYTES + length))),
        Err(why) => Err(FrameError::Payload(why.to_string())),
    }
}

/// The secret that all nodes of a cluster share.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Makes a secret of these bytes. An empty one proves nothing, and is for nodes on one machine.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Returns the proof that this side knows the secret. The two sides' proofs differ, so that neither can return the one it has received.
    #[must_use]
    pub fn proof(&self, role: Role, client: &Hello, server: &Hello) -> [u8; 32] {
        let tag = hmac::sign(&self.0, &proved(role, client, server));
        let mut proof = [0; 32];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// True if this proof shows that the other node knows the secret.
    #[must_use]
    pub fn is_proved(&self, proof: &[u8; 32], role: Role, client: &Hello, server: &Hello) -> bool {
        hmac::verify(&self.0, &proved(role, client, server), proof).is_ok()
    }
}

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The node that has connected.
    Client,
    /// The node that accepted the connection.
    Server,
}

fn proved(role: Role, client: &Hello, server: &Hello) -> Vec<u8> {
    let role: &[u8] = match role {
        Role::Client => b"client",
        Role::Server => b"server",
    };
    let mut bytes = role.to_vec();
    for hello in [client, server] {
        bytes.extend_from_slice(&hello.nonce);
        bytes.extend_from_slice(&hello.node.to_le_bytes());
        bytes.extend_from_slice(&hello.shards.to_le_bytes());
        bytes.extend_from_slice(&hello.protocol.to_le_bytes());
        bytes.extend_from_slice(&(hello.cluster.len() as u64).to_le_bytes());
        bytes.extend_from_slice(hello.cluster.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use throng::driver::peers::{Ask as EntityAsk, Asked};

    fn ask(id: u32, body: Vec<u8>) -> Ask {
        Ask {
            id,
            shard: 7,
            within_micros: 5_000_000,
            request: Request::Ask(EntityAsk {
                kind: "show".into(),
                id: "a/b".into(),
                what: Asked::Command {
                    name: "Reserve".into(),
                    body,
                    key: Some("k".into()),
                    life: throng::driver::KeyLife::default(),
                    forwarded: None,
                },
                caller: None,
            }),
        }
    }

    proptest! {
        #[test]
        fn frames_come_as_they_were_sent_whole_and_in_order(bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8)) {
            let mut bytes = Vec::new();
            let frames: Vec<Frame> = bodies.into_iter().enumerate().map(|(id, body)| Frame::Asks(vec![ask(id as u32, body)])).collect();
            for frame in &frames {
                encode(frame, &mut bytes).unwrap();
            }
            let mut rest = &bytes[..];
            for frame in &frames {
                for cut in 0..HEADER_BYTES.min(rest.len()) {
                    prop_assert_eq!(decode(&rest[..cut], FRAME_BYTES_MAX).unwrap(), None);
                }
                let (found, used) = decode(rest, FRAME_BYTES_MAX).unwrap().unwrap();
                prop_assert_eq!(&found, frame);
                rest = &rest[used..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn whatever_comes_is_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300), flip in any::<(usize, u8)>()) {
            let _ = decode(&bytes, FRAME_BYTES_MAX);
            let mut sent = Vec::new();
            encode(&Frame::Asks(vec![ask(1, bytes)]), &mut sent).unwrap();
            let at = flip.0 % sent.len();
            sent[at] ^= flip.1 | 1;
            // The four reserved bytes are ignored.
            prop_assert!((12..16).contains(&at) || !matches!(decode(&sent, FRAME_BYTES_MAX), Ok(Some(_))));
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_sent_and_not_read() {
        let mut out = b"before".to_vec();
        let refused = encode(&Frame::Asks(vec![ask(1, vec![7; FRAME_BYTES_MAX])]), &mut out);
        assert!(matches!(refused, Err(FrameError::TooLong(..))) && out == b"before");
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&u32::MAX.to_le_bytes());
        header.resize(HEADER_BYTES, 0);
        let most = HELLO_BYTES_MAX;
        assert_eq!(decode(&header, most), Err(FrameError::TooLong(u32::MAX as usize, most)));
    }

    #[test]
    fn a_proof_holds_for_one_side_one_secret_and_one_connection() {
        let hello = |node: u64| Hello {
            node,
            nonce: [node as u8; 32],
            ..Hello::default()
        };
        let (client, server, secret) = (hello(1), hello(2), Secret::new(b"known"));
        let proof = secret.proof(Role::Client, &client, &server);
        assert!(secret.is_proved(&proof, Role::Client, &client, &server));
        assert!(!secret.is_proved(&proof, Role::Server, &client, &server));
        assert!(!secret.is_proved(&proof, Role::Client, &client, &hello(3)));
        assert!(!Secret::new(b"other").is_proved(&proof, Role::Client, &client, &server));
    }
}
