//! Rows for `COPY … FROM STDIN (FORMAT binary)`, in PostgreSQL's binary format: no parameters, no text to parse.

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::SinkExt as _;
use std::pin::pin;
use tokio_postgres::CopyInSink;

/// Bytes handed to the connection at once.
const CHUNK_BYTES: usize = 128 << 10;
/// Microseconds from 1970-01-01 to PostgreSQL's own beginning, 2000-01-01.
const BEGINNING_MICROS: i64 = 946_684_800_000_000;

/// Rows that wait to be sent.
pub(crate) struct CopyRows {
    bytes: BytesMut,
    columns: i16,
    rows: u64,
}

impl CopyRows {
    /// Returns an empty set of rows with this many columns.
    pub(crate) fn new(columns: i16) -> Self {
        let mut bytes = BytesMut::new();
        bytes.put_slice(b"PGCOPY\n\xff\r\n\0");
        bytes.put_i32(0);
        bytes.put_i32(0);
        Self {
            bytes,
            columns,
            rows: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Begins a row; its columns follow.
    pub(crate) fn row(&mut self) -> &mut Self {
        self.bytes.put_i16(self.columns);
        self.rows += 1;
        self
    }

    pub(crate) fn bigint(&mut self, value: u64) -> &mut Self {
        self.bytes.put_i32(8);
        self.bytes.put_i64(value.cast_signed());
        self
    }

    pub(crate) fn integer(&mut self, value: i32) -> &mut Self {
        self.bytes.put_i32(4);
        self.bytes.put_i32(value);
        self
    }

    pub(crate) fn value(&mut self, value: &[u8]) -> &mut Self {
        // The limits of a commit have refused a larger value long before.
        self.bytes.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.bytes.put_slice(value);
        self
    }

    /// Text; PostgreSQL's cannot hold the character 0, which is shown as ␀.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        if text.as_bytes().contains(&0) {
            return self.value(text.replace('\0', "\u{2400}").as_bytes());
        }
        self.value(text.as_bytes())
    }

    pub(crate) fn jsonb(&mut self, json: Option<&[u8]>) -> &mut Self {
        let Some(json) = json else {
            self.bytes.put_i32(-1);
            return self;
        };
        self.bytes.put_i32(i32::try_from(json.len() + 1).unwrap_or(i32::MAX));
        self.bytes.put_u8(1);
        self.bytes.put_slice(json);
        self
    }

    pub(crate) fn time(&mut self, micros: i64) -> &mut Self {
        self.bytes.put_i32(8);
        self.bytes.put_i64(micros.saturating_sub(BEGINNING_MICROS));
        self
    }

    /// Everything gathered, as it is sent.
    pub(crate) fn finish(mut self) -> Bytes {
        self.bytes.put_i16(-1);
        self.bytes.freeze()
    }
}

/// Sends all rows of one statement.
pub(crate) async fn send(sink: CopyInSink<Bytes>, mut rows: Bytes) -> Result<(), tokio_postgres::Error> {
    let mut sink = pin!(sink);
    while !rows.is_empty() {
        let chunk = rows.split_to(rows.len().min(CHUNK_BYTES));
        sink.feed(chunk).await?;
    }
    sink.finish().await.map(drop)
}
