//! The service, shared by the handlers of the routes.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use std::{future::Future, sync::Arc, time::Instant};
use throng::Engine;

use super::answers::{Dialect, Failure};
use crate::{
    models::Models,
    recorder::Recorder,
    statistics::{Endpoint, Statistics},
};

/// The parts that all handlers use.
pub(super) struct Service {
    pub(super) engine: Engine,
    pub(super) recorder: Recorder,
    pub(super) models: Models,
    pub(super) statistics: Statistics,
}

/// The service below a prefix.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) service: Arc<Service>,
    pub(super) prefix: &'static str,
    pub(super) dialect: Dialect,
}

impl Site {
    /// Returns the rest of a path after the prefix and `/skiers/` or `/resorts/`.
    pub(super) fn below<'a>(&self, collection: &str, path: &'a str) -> &'a str {
        path.get(self.prefix.len() + collection.len()..).unwrap_or_default()
    }

    /// Answers a request, and measures the time.
    pub(super) async fn answer(
        &self,
        endpoint: Endpoint,
        answer: impl Future<Output = Result<Response, Failure>>,
    ) -> Response {
        let begun = Instant::now();
        let answered = answer.await;
        self.service.statistics.record(endpoint, begun.elapsed());
        answered.unwrap_or_else(|failure| self.dialect.failed(failure))
    }
}

pub(super) fn json(value: impl serde::Serialize) -> Result<Response, Failure> {
    Ok(Json(value).into_response())
}
