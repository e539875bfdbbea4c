//! `/c/{eci}/log`: what has happened to a pico.

use super::{answer::refused, channel};
use crate::{Picos, outside::LogQuery};
use axum::{
    Json,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use throng_http::extract::Query;

pub(super) async fn page(
    State(picos): State<Picos>,
    Path(eci): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Response, Response> {
    let eci = channel(&picos, &eci)?;
    let page = picos
        .log(eci, &query)
        .await
        .map_err(|failure| refused(&picos, failure))?;
    Ok(Json(page).into_response())
}
