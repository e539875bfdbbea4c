//! `GET /api/ws`: commands, queries and subscriptions over one WebSocket, many at a time.
//!
//! The protocol, `throng.v1`, is described in `docs/websocket.md`. Its parts are here:
//!
//! - [`message`]: the messages of a client, [`outbox`]: the messages to it, both without I/O;
//! - [`session`]: the loop of one socket. It reads all frames that have arrived, and executes their messages one after the other. Answers
//!   leave once they are durable, all answers of a batch in one frame;
//! - a socket that sends only commands which wait for nothing but their commit has no loop of its own. The [fast path](crate::http1) serves
//!   it with [`frame`], [`message`], [`request`] and [`outbox`], until something else arrives;
//! - [`subscription`]: events, as far as the client has granted credit for them;
//! - [`wire`]: the socket, which reports moved bytes to its connection.

pub(crate) mod console;
pub(crate) mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod message;
mod opened;
mod outbox;
pub(crate) mod request;
mod session;
mod shared;
mod subscription;
mod wire;

pub(crate) use opened::{Left, Opened, Staged};
pub(crate) use outbox::Outbox;
pub(crate) use session::run;

/// The number of commands that wait for nothing after which a socket returns to the fast path.
pub(crate) const PLAIN_MIN: u32 = 16;
/// Events a subscription may be granted at most.
const CREDIT_MAX: u32 = 10_000;
/// The bytes of one frame of answers. A larger frame has a single message.
const FRAME_BYTES: usize = 256 << 10;
/// The bytes of answers waiting for a client above which nothing more is read from it.
const OUTBOX_BYTES_MAX: usize = 1 << 20;
/// The bytes of answers waiting for a client above which its subscriptions wait, too.
const EVENTS_BYTES_MAX: usize = 64 << 10;

/// The reason why a socket is closed: the code and reason of its close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Close {
    Stopping,
    Protocol,
    Binary,
    NotText,
    TooLarge,
    Expired,
    Silent,
    Late,
    Full,
}

impl Close {
    fn code(self) -> u16 {
        match self {
            Self::Stopping => 1001,
            Self::Protocol => 1002,
            Self::Binary => 1003,
            Self::NotText => 1007,
            Self::TooLarge => 1009,
            Self::Full => 1013,
            Self::Expired => 4401,
            Self::Silent | Self::Late => 4408,
        }
    }

    /// At most 123 bytes.
    fn reason(self) -> &'static str {
        match self {
            Self::Stopping => "the service is stopping: connect again",
            Self::Protocol => "these frames are not well formed (RFC 6455)",
            Self::Binary => "frames are JSON text, not binary",
            Self::NotText => "a text frame is not UTF-8",
            Self::TooLarge => "a frame is larger than frame_bytes_max of the hello",
            Self::Expired => "the token is not taken any more: connect again with one that is",
            Self::Silent => "nothing came, not even a pong",
            Self::Late => "a message did not come in its time",
            Self::Full => "the messages that come take all the memory they may: try again later",
        }
    }
}
