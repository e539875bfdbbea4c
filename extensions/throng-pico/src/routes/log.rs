//! `/c/{eci}/log`: the events of a pico, a page at a time or live. Also live notices of changes.

use super::{
    answer::{problem, refused},
    channel,
};
use crate::{
    Picos,
    id::Eci,
    outside::{LogError, LogQuery, PAGE_ROOM_BYTES},
    pico::Use,
};
use axum::{
    Json,
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use throng_http::{LiveEvents, PageRoom, extract::Query};

/// Streams a notice each time the result of a query may have changed.
pub(super) async fn changes(picos: &Picos, eci: Eci, (rid, name): (&str, &str)) -> Result<Response, Response> {
    let query = Use::Query {
        rid: rid.into(),
        name: name.into(),
    };
    let seen = picos.may(eci, query).await;
    let seen = seen.map_err(refused)?;
    let live = picos.follow_changes(eci, seen).await;
    live.map(IntoResponse::into_response)
        .map_err(IntoResponse::into_response)
}

pub(super) async fn read(
    State(picos): State<Picos>,
    Path(eci): Path<String>,
    Query(mut query): Query<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let eci = channel(&eci)?;
    if LiveEvents::are_accepted(&headers) {
        let last = LiveEvents::last_seen(&headers).map_err(|problem| problem.into_response())?;
        query.after = last.unwrap_or(query.after);
        let seen = picos.may(eci, Use::ReadLog).await.map_err(refused)?;
        let live = picos.follow_log(eci, query, seen).await;
        return live
            .map(IntoResponse::into_response)
            .map_err(IntoResponse::into_response);
    }
    let room = PageRoom::take(picos.engine(), PAGE_ROOM_BYTES).await;
    let _room = room.map_err(IntoResponse::into_response)?;
    let page = picos.log(eci, &query).await.map_err(|error| match error {
        LogError::Refused(failure) => refused(failure),
        LogError::Lost(lost) => problem(&format!("Error: {lost}"), &lost.into()),
    })?;
    Ok(Json(page).into_response())
}
