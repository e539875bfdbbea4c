//! A line of the access log.

use crate::{caller::Caller, connection::Connection};
use http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, Serializer};
use std::{
    net::IpAddr,
    sync::mpsc::SyncSender,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Bytes of a path that are shown.
const PATH_BYTES_MAX: usize = 1_024;
/// Bytes of a method that are shown.
const METHOD_BYTES_MAX: usize = 32;
/// The characters that are encoded in a part of a path: all but letters, digits, `-`, `.`, `_` and `~`.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request, and once it is answered how.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    #[serde(serialize_with = "instant")]
    pub(super) at: SystemTime,
    pub(super) client: IpAddr,
    pub(super) protocol: &'static str,
    pub(super) method: Box<str>,
    pub(super) path: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<String>,
    pub(super) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<Box<str>>,
    /// The time from the request's arrival to its answer; `None` if it was refused on arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) micros: Option<u64>,
}

/// RFC 3339, UTC, to the microsecond.
fn instant<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let micros = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let at = i64::try_from(micros).ok();
    let at = at.and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    serializer.collect_str(&at.unwrap_or_default())
}

impl Entry {
    pub(crate) fn new(connection: &Connection, method: &str, path: &str) -> Box<Self> {
        let cut = |text: &str, most: usize| text[..text.floor_char_boundary(most)].into();
        Box::new(Self {
            at: UNIX_EPOCH,
            client: connection.address(),
            protocol: connection.protocol(),
            method: cut(method, METHOD_BYTES_MAX),
            path: cut(path, PATH_BYTES_MAX),
            caller: None,
            status: 0,
            problem: None,
            micros: None,
        })
    }

    /// Returns the entry for a message of a WebSocket, with the path of the equivalent HTTP request.
    pub(crate) fn message(connection: &Connection, message: &str, parts: &[&str]) -> Box<Self> {
        let mut path = String::from("/api");
        for part in parts {
            path.push('/');
            path.extend(utf8_percent_encode(part, KEPT));
        }
        let mut entry = Self::new(connection, message, &path);
        entry.protocol = "websocket";
        entry.by(connection.caller().as_ref());
        entry
    }

    /// Sets the client's address, as a trusted proxy names it.
    pub(crate) fn from(mut self: Box<Self>, client: IpAddr) -> Box<Self> {
        self.client = client;
        self
    }

    pub(crate) fn by(&mut self, caller: Option<&Caller>) {
        self.caller = caller.map(|caller| caller.name().to_owned());
    }

    /// Completes the entry when the answer is sent. `shown` hides the secrets of the path.
    pub(crate) fn ends(
        &mut self,
        status: StatusCode,
        took: Option<Duration>,
        shown: impl FnOnce(Box<str>) -> Box<str>,
    ) {
        self.at = SystemTime::now();
        self.status = status.as_u16();
        self.micros = took.and_then(|took| u64::try_from(took.as_micros()).ok());
        self.path = shown(std::mem::take(&mut self.path));
    }

    /// Sets the type of the problem that is the answer.
    pub(crate) fn has_problem(&mut self, slug: &str) {
        self.problem = Some(slug.into());
    }
}

pub(super) enum LoggedFields {
    Entry(Box<Entry>),
    /// Asks for everything given before to be written, and for a signal then.
    Flush(SyncSender<()>),
}
