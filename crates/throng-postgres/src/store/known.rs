//! Every entity's kind and id, for the filter of known ids: a million of them at a cold start, so they come by `COPY`, which
//! costs both ends a fraction of a query's rows.

use crate::database::Database;
use bytes::{Buf as _, Bytes};
use futures_util::TryStreamExt as _;
use std::{pin::pin, sync::Arc};
use throng_journal::Error;
use tokio::sync::mpsc;

const DOING: &str = "reading the known entities";
const COPY: &str = "COPY entities (kind, id) TO STDOUT (FORMAT binary)";
/// Bytes handed over at once from the connection to whoever asked.
const CHUNK_BYTES: usize = 64 << 10;
const CHUNKS_WAITING: usize = 8;
/// Signature, flags and the length of an extension that there is none of.
const HEADER_BYTES: usize = 19;

/// The rows, as PostgreSQL sends them, many at once.
pub(super) fn rows(database: &Arc<Database>) -> mpsc::Receiver<Result<Vec<Bytes>, Error>> {
    let (give, take) = mpsc::channel(CHUNKS_WAITING);
    let task = Arc::clone(database);
    database.threads.spawn(async move {
        if let Err(error) = read(&task, &give).await {
            // Whoever asked may have gone.
            let _ = give.send(Err(error)).await;
        }
    });
    take
}

async fn read(database: &Database, give: &mpsc::Sender<Result<Vec<Bytes>, Error>>) -> Result<(), Error> {
    let client = database.client(DOING).await?;
    let stream = client.copy_out(COPY).await.map_err(database.failed(DOING))?;
    let mut stream = pin!(stream);
    let (mut rows, mut bytes, mut is_first) = (Vec::new(), 0, true);
    while let Some(mut row) = stream.try_next().await.map_err(database.failed(DOING))? {
        if std::mem::take(&mut is_first) {
            row.advance(HEADER_BYTES.min(row.len()));
        }
        bytes += row.len();
        rows.push(row);
        if bytes >= CHUNK_BYTES {
            bytes = 0;
            if give.send(Ok(std::mem::take(&mut rows))).await.is_err() {
                return Ok(());
            }
        }
    }
    // Whoever asked may have gone.
    let _ = give.send(Ok(rows)).await;
    Ok(())
}

/// Shows the rows of one message; there may be none, or the mark of the end.
pub(super) fn show(row: &[u8], visit: &mut (dyn FnMut(&str, &str) + Send)) -> Result<(), Error> {
    let mut rest = row;
    while let Some((columns, after)) = rest.split_first_chunk::<2>() {
        if i16::from_be_bytes(*columns) != 2 {
            return Ok(());
        }
        let (kind, after) = value(after).ok_or_else(unreadable)?;
        let (id, after) = value(after).ok_or_else(unreadable)?;
        visit(super::text(kind)?, super::text(id)?);
        rest = after;
    }
    Ok(())
}

fn value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(i32::from_be_bytes(*length)).ok()?)
}

fn unreadable() -> Error {
    Error::Backend {
        doing: DOING.into(),
        why: "the server's answer cannot be read".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_are_sent() {
        let row = |kind: &str, id: &str| {
            let mut bytes = 2i16.to_be_bytes().to_vec();
            for text in [kind, id] {
                bytes.extend_from_slice(&(text.len() as i32).to_be_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
            bytes
        };
        let mut seen = Vec::new();
        let two = [row("show", "1"), row("show", "zwö\u{0}lf"), vec![0xff, 0xff]].concat();
        show(&two, &mut |kind: &str, id: &str| seen.push(format!("{kind}/{id}"))).unwrap();
        assert_eq!(seen, ["show/1", "show/zwö\u{0}lf"]);
        assert!(
            show(&two[..9], &mut |_: &str, _: &str| {}).is_err(),
            "a row that was cut"
        );
    }
}
