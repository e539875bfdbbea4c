//! Properties of all bytes that may come from outside. Each function takes any bytes, and panics if a property does not hold.
//!
//! The same functions are driven by property tests, in `./test extensions`, and by libFuzzer for any length of time:
//!
//! ```text
//! cargo install cargo-fuzz
//! cargo +nightly fuzz list
//! cargo +nightly fuzz run --fuzz-dir lab/fuzz http_head lab/fuzz/corpus/http_head lab/fuzz/seeds/http_head -- -max_total_time=600
//! ```

use std::io::BufRead;
use throng_journal::{Commit, Error, HEADER_BYTES, WriterId, commit::Buffer};
use throng_log::tools::{ImportOptions, ImportTarget, import_into};

/// The magic at the beginning of a commit.
const MAGIC: &[u8; 4] = b"THC1";
const CRC_AT: usize = 52;
const SEED: &[u8] = b"seed";

/// Checks the head of an HTTP/1 request, and the extent of the request.
pub fn http_head(bytes: &[u8]) {
    throng_http::fuzzing::head(bytes);
}

/// Checks a whole HTTP/1 request in both implementations: the fast path of plain requests, and the full one.
pub fn http_paths(bytes: &[u8]) {
    throng_http::fuzzing::exchange(bytes);
}

/// Checks the path of a generic route.
pub fn http_path(bytes: &[u8]) {
    if let Ok(path) = std::str::from_utf8(bytes) {
        throng_http::fuzzing::path(path);
    }
}

/// Checks the frames of a WebSocket, and their messages.
pub fn websocket_frames(bytes: &[u8]) {
    throng_http::fuzzing::frames(bytes);
}

/// Checks the messages of a frame.
pub fn websocket_messages(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        throng_http::fuzzing::messages(text);
    }
}

/// Checks a commit's bytes, unchanged and with a matching header and checksum. The second check reaches the code behind these two.
pub fn commit(bytes: &[u8]) {
    check(bytes.to_vec());
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let mut bytes = bytes.to_vec();
    bytes[..4].copy_from_slice(MAGIC);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(SEED), &bytes[..CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &bytes[HEADER_BYTES..]);
    bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    check(bytes);
}

fn check(bytes: Vec<u8>) {
    let Ok(commit) = Commit::parse(bytes.clone(), SEED) else {
        return;
    };
    let records = commit.records().filter(Result::is_ok).count();
    assert_eq!(records, commit.record_count(), "a commit that is taken can be read");
    assert_eq!(commit.into_bytes(), bytes);
}

/// Checks a segment of the log: its header and its commits.
pub fn segments(bytes: &[u8]) {
    throng_log::fuzzing::segment(bytes);
}

/// Checks the lines of an export in an import.
pub fn import_lines(bytes: &[u8]) {
    for unchecked in [false, true] {
        let mut taken = Taken::default();
        let mut lines: &mut dyn BufRead = &mut &bytes[..];
        let imported = import_into(&mut taken, &mut lines, ImportOptions { unchecked });
        if let Ok(imported) = imported {
            assert_eq!((imported.writers, imported.commits), (taken.writers, taken.commits));
        }
    }
}

/// Checks a ruleset's source: parses it, puts it into canonical form, compiles it, and runs it for the events it waits for.
pub fn krl(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let Ok(ruleset) = throng_krl::parse(source) else {
        assert!(
            throng_krl::format(source).is_err(),
            "what does not parse has no canonical form"
        );
        return;
    };
    let canonical = throng_krl::format(source).unwrap_or_default();
    assert_eq!(
        throng_krl::format(&canonical).ok().as_ref(),
        Some(&canonical),
        "the canonical form stays as it is"
    );
    let Ok(program) = throng_krl::compile(&ruleset) else {
        return;
    };
    let events = throng_krl::testing::events_of(&program);
    let mut pico = throng_krl::testing::Pico::new(throng_krl::Limits {
        steps: 20_000,
        memory_bytes: 4 << 20,
        value_bytes: 1 << 20,
        ..throng_krl::Limits::default()
    });
    pico.install(program);
    for (domain, name, attributes) in events.into_iter() {
        // The event may fail, but it must end and must not panic.
        drop(pico.event(&domain, &name, attributes));
    }
}

/// Counts what it receives.
#[derive(Default)]
struct Taken {
    writers: u64,
    commits: u64,
}

impl ImportTarget for Taken {
    fn begin(&mut self, _: WriterId, _: &str) -> Result<(), Error> {
        self.writers += 1;
        Ok(())
    }

    fn append(&mut self, commit: Commit) -> Result<Buffer, Error> {
        self.commits += 1;
        assert_eq!(commit.records().filter(Result::is_ok).count(), commit.record_count());
        Ok(commit.into_buffer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    /// Returns bytes made of pieces with and without a meaning.
    fn of(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            20 => (0..pieces.len()).prop_map(|at| pieces[at].as_bytes().to_vec()),
            1 => vec(any::<u8>(), 0..4),
        ];
        vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    const HTTP: &[&str] = &[
        "POST ",
        "GET ",
        "HEAD ",
        "/",
        "/api/a/b/c",
        "?x=[y]",
        "#",
        "%2f",
        "^",
        "http://a/",
        "*",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "\r\n",
        "\n",
        "Host: a\r\n",
        "host: a:80\r\n",
        "host: a b\r\n",
        "content-length: 5\r\n",
        "Content-Length: 0\r\n",
        "content-length: +5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "connection: close\r\n",
        "connection: keep-alive\r\n",
        "te: trailers\r\n",
        "expect: 100-continue\r\n",
        "upgrade: h2c\r\n",
        "accept: text/event-stream\r\n",
        " folded\r\n",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "hello",
        ";x=y",
    ];
    const JSON: &[&str] = &[
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "\"",
        "\\u00e9",
        "\"id\":",
        "1",
        "\"type\":\"command\"",
        "\"type\":\"credit\"",
        "\"kind\":\"a\"",
        "\"entity\":\"b\"",
        "\"body\":{}",
        "\"credit\":5",
        "null",
        " ",
        "-1e400",
    ];
    const KRL: &[&str] = &[
        "ruleset r { ",
        "global { f = function(a) { ",
        "rule r { select when a b ",
        "n re#(x*)# setting(x) ",
        "before a c ",
        "foreach [1, 2] setting(y) ",
        "pre { z = ",
        "f(1) ",
        "[1, {\"k\": 2}] ",
        ".map(function(x) { x + 1 }) ",
        "{[\"k\", 0]} ",
        "<<a #{",
        "} b>> ",
        "+ 1 ",
        "=> 1 | 2 ",
        "} ",
        ") ",
        "send_directive(\"d\", {}) ",
        "fired { ent:v := 1 ",
        "raise a event \"b\" ",
        "// c\n",
        "\n\n",
    ];
    const LINES: &[&str] = &[
        "{\"throng_export\":2",
        "{\"throng_export\":1}\n",
        "{\"writer\":1,\"node\":\"a\"}\n",
        "{\"commit\":1",
        "}\n",
        ",\"at_micros\":1",
        ",\"record\":\"event\",\"shard\":3,\"kind\":\"k\",\"id\":\"i\",\"seq\":1",
        ",\"name\":\"n\",\"version\":1,\"body\":{}",
        ",\"base64\":\"AA==\"",
        ",\"sum\":\"00000000\"",
        "{\"end\":{\"writers\":1,\"commits\":1,\"records\":1}}\n",
        "\n",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn heads_are_read_in_one_way(bytes in of(HTTP)) {
            http_head(&bytes);
            http_paths(&bytes);
        }

        #[test]
        fn whole_requests_are_the_same_in_both_paths(
            fields in vec(0..HTTP.len(), 0..4),
            chunks in any::<bool>(),
            behind in of(HTTP),
        ) {
            let fields: String = fields.into_iter().map(|at| HTTP[at]).filter(|piece| piece.contains(": ")).collect();
            let (length, body) = match chunks {
                true => ("transfer-encoding: chunked", "5;x=y\r\nhello\r\n0\r\n\r\n"),
                false => ("content-length: 5", "hello"),
            };
            let head = format!("POST /api/a/b/c?d HTTP/1.1\r\nhost: a\r\n{fields}{length}\r\n\r\n{body}");
            let bytes = [head.as_bytes(), &behind].concat();
            http_head(&bytes);
            http_paths(&bytes);
        }

        #[test]
        fn paths_are_their_parts(path in "(/api)?(/[a-z%/0-9é]{0,6}){0,5}") {
            http_path(path.as_bytes());
        }

        #[test]
        fn frames_and_messages_stay_within_their_limits(bytes in of(JSON), raw in vec(any::<u8>(), 0..64)) {
            websocket_messages(&bytes);
            websocket_frames(&raw);
            let frame = [&[0x81, 0x80 | bytes.len().min(125) as u8, 0, 0, 0, 0], &bytes[..bytes.len().min(125)]].concat();
            websocket_frames(&frame);
        }

        #[test]
        fn commits_that_are_taken_can_be_read(bytes in vec(prop_oneof![Just(0), 0..8u8, any::<u8>()], 0..256)) {
            commit(&bytes);
        }

        #[test]
        fn followed_commits_of_a_segment_can_be_read(
            raw in vec(any::<u8>(), 0..64),
            pieces in vec((vec(prop_oneof![6 => Just(0), 1 => any::<u8>()], 48..120), any::<bool>()), 0..6),
        ) {
            segments(&raw);
            let pieces = pieces.into_iter().map(|(mut piece, is_empty)| {
                if is_empty {
                    piece.fill(0);
                }
                [&[u8::try_from(piece.len()).unwrap()][..], &piece].concat()
            });
            segments(&pieces.collect::<Vec<_>>().concat());
        }

        #[test]
        fn rulesets_end_and_keep_their_canonical_form(bytes in of(KRL)) {
            krl(&bytes);
        }

        #[test]
        fn imported_commits_can_be_read(bytes in of(LINES)) {
            import_lines(&bytes);
        }
    }
}
