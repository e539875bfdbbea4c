//! `GET /admin/audit/export`: the whole audit, one event a line.

use super::dead::JSON_LINES;
use crate::{
    answer::{self, Pages, ResponseBody},
    audit,
    follow::{self, Shown},
    problem::{Answered, Problem},
    server::Server,
};
use http::{HeaderValue, Response, header};
use serde_json::json;
use std::sync::Arc;
use throng::{Engine, FeedError, History, model::Error};
use tokio::sync::mpsc;

const PAGE: usize = 500;

/// Writes all stored events, and at the end their number. Without that line, some are missing.
pub(super) async fn export(server: &Server) -> Answered<Response<ResponseBody>> {
    let engine = server.shared().engine.clone();
    let Some(kind) = engine.kind(audit::KIND) else {
        return Err(Problem::unknown_route("/admin/audit/export").boxed());
    };
    // An export that cannot begin is answered with a problem.
    let first = match engine.history(kind, audit::ID, 0, PAGE).await {
        Err(FeedError::Engine(Error::Unknown { .. })) => History::default(),
        first => first.map_err(follow::problem)?,
    };
    let (lines, receiver) = mpsc::channel(1);
    let share = server.shared().held.pages.clone();
    tokio::task::spawn_local(async move {
        let (mut page, mut exported) = (first, 0);
        loop {
            let mut some = Vec::new();
            for event in &page.events {
                some.extend(serde_json::to_vec(&Shown::new(event)).unwrap_or_default());
                some.push(b'\n');
                exported += 1;
            }
            let after = page.events.last().map(|event| event.seq).filter(|_| page.more);
            if after.is_none() {
                some.extend(format!("{}\n", json!({ "exported": exported })).into_bytes());
            }
            let charge = share.room(some.len()).await;
            let sent = lines
                .send(answer::Page {
                    charge,
                    bytes: some.into(),
                })
                .await;
            let (Some(after), Ok(())) = (after, sent) else { return };
            page = match next(&engine, kind, after).await {
                Ok(page) => page,
                Err(why) => return tracing::warn!("an export of the audit ends after {exported} events: {why}"),
            };
        }
    });
    let mut response = Response::new(ResponseBody::Live(Pages::new(receiver, Arc::default())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON_LINES);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn next(engine: &Engine, kind: usize, after: u64) -> Result<History, FeedError> {
    engine.history(kind, audit::ID, after, PAGE).await
}
