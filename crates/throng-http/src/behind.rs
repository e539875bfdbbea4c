//! A response header with the lag of a list from a read model.

use axum::response::{IntoResponseParts, ResponseParts};
use http::{HeaderName, HeaderValue};
use std::convert::Infallible;
use throng::projection::{Progress, Projection, ReadModel};

/// The seconds for which the rows have lacked durable events.
const HEADER: HeaderName = HeaderName::from_static("read-model-behind");

/// The header `Read-Model-Behind` of a response, in seconds. It is set if the projection has stopped, is rebuilt and incomplete, or lags
/// more than normal. Without it the rows lag a moment.
///
/// ```
/// # use throng::{Engine, projection::Projection};
/// # use throng_http::Behind;
/// async fn list<P: Projection>(engine: Engine) -> (Behind, axum::Json<Vec<String>>) {
///     let rows = engine.read_model::<P>();
///     // … what the rows say …
///     (Behind::of(&rows), axum::Json(Vec::new()))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Behind(Option<f64>);

impl Behind {
    /// Returns the header for a read model's present state.
    #[must_use]
    pub fn of<P: Projection>(rows: &ReadModel<P>) -> Self {
        Self(rows.progress().and_then(|progress| seconds_behind(&progress)))
    }
}

fn seconds_behind(progress: &Progress) -> Option<f64> {
    progress.trouble().map(|_| progress.behind_seconds)
}

impl IntoResponseParts for Behind {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        if let Some(seconds) = self.0 {
            let value = HeaderValue::from(seconds.ceil() as u64);
            parts.headers_mut().insert(HEADER, value);
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;
    use throng::projection::ProjectionState;

    fn shown(behind_seconds: f64, state: ProjectionState, is_rebuilding: bool) -> Option<String> {
        let progress = Progress {
            name: "rows",
            kind: "show",
            is_sink: false,
            state,
            is_rebuilding,
            reached: None,
            missed_upto: None,
            lag_commits: 7,
            lag_seconds: 0.0,
            behind_seconds,
            events: 0,
            skipped: Vec::new(),
        };
        let response = (Behind(seconds_behind(&progress)), "rows").into_response();
        let header = response.headers().get(HEADER)?;
        Some(header.to_str().ok()?.to_owned())
    }

    #[test]
    fn rows_that_are_behind_say_for_how_long_and_others_say_nothing() {
        assert_eq!(shown(0.3, ProjectionState::Running, false), None);
        assert_eq!(shown(71.2, ProjectionState::Running, false).as_deref(), Some("72"));
        assert_eq!(
            shown(0.3, ProjectionState::Running, true).as_deref(),
            Some("1"),
            "not complete"
        );
        let reason = String::new();
        assert_eq!(
            shown(2.0, ProjectionState::Stopped { reason, at: None }, false).as_deref(),
            Some("2")
        );
    }
}
