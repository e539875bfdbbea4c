//! Extractors for an app's own routes: those of axum, with refusals as problem details like the gateway's.

use crate::{problem::Problem, request::headers};
use axum::{
    body::Bytes,
    extract::{
        FromRequest, FromRequestParts, Request,
        path::ErrorKind,
        rejection::{PathRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, request::Parts};
use serde::{Serialize, de::DeserializeOwned};
use throng::journal::byte_order_mark;

/// A JSON body, in a request or an answer, as [`axum::Json`].
///
/// A request whose `Content-Type` is not JSON is refused with 415, a malformed body with 400 and the field, line and column.
///
/// ```
/// # use throng_http::{Problem, extract::{Json, Path, Query}};
/// # #[derive(serde::Deserialize)] struct Opening { capacity: u32 }
/// # #[derive(serde::Deserialize)] struct Page { limit: Option<usize> }
/// async fn open(Path(section): Path<String>, Query(page): Query<Page>, Json(opening): Json<Opening>) -> Result<Json<u32>, Problem> {
///     Ok(Json(opening.capacity))
/// }
/// # let _: axum::Router = axum::Router::new().route("/{section}", axum::routing::post(open));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

/// The variable parts of a route's path, as [`axum::extract::Path`]. A malformed one is refused with 400 and its name.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

/// A request's query string, as [`axum::extract::Query`]. A malformed one is refused with 400 and the field.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// Checks, for a handler that reads a body itself, that the header fields say UTF-8 and no compression.
///
/// # Errors
/// A problem with status 415 that names the charset or the coding.
pub fn check_encoding(headers: &HeaderMap) -> Result<(), Box<Problem>> {
    headers::is_utf8(headers).and_then(|()| headers::uncoded(headers))
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        headers::json_content(request.headers()).map_err(|problem| *problem)?;
        // The length was checked earlier.
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|rejection| Problem::malformed(rejection.body_text()))?;
        match axum::Json::from_bytes(&body) {
            Ok(axum::Json(content)) => Ok(Self(content)),
            Err(rejection) => {
                let text = rejection.body_text();
                let why = byte_order_mark(&body).unwrap_or(without_prefix(&text));
                Err(Problem::unreadable("The body", why))
            }
        }
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(content)) => Ok(Self(content)),
            Err(rejection) => Err(of_path(&rejection)),
        }
    }
}

fn of_path(rejection: &PathRejection) -> Problem {
    let text = rejection.body_text();
    if rejection.status() != StatusCode::BAD_REQUEST {
        // The route lacks what its handler takes.
        return Problem::crashed(&text);
    }
    let field = match rejection {
        PathRejection::FailedToDeserializePathParams(why) => match why.kind() {
            ErrorKind::ParseErrorAtKey { key, .. }
            | ErrorKind::InvalidUtf8InPathParam { key }
            | ErrorKind::DeserializeError { key, .. } => Some(key.as_str()),
            _ => None,
        },
        _ => None,
    };
    Problem::unreadable("The path", without_prefix(&text)).at_field(field.unwrap_or("path"))
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(content)) => Ok(Self(content)),
            Err(rejection) => Err(of_query(&rejection)),
        }
    }
}

fn of_query(rejection: &QueryRejection) -> Problem {
    Problem::unreadable("The query string", without_prefix(&rejection.body_text()))
}

/// Returns axum's sentence without its uninformative beginning.
fn without_prefix(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;
    use serde::Deserialize;
    use serde_json::{Value, json};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Opening {
        seats: Vec<Seat>,
    }

    #[derive(Debug, Deserialize)]
    struct Seat {
        number: u32,
    }

    #[derive(Debug, Deserialize)]
    struct Page {
        limit: u32,
    }

    #[derive(Debug, Deserialize)]
    struct Asked {
        show: String,
        seat: u32,
    }

    fn read<T>(refused: Result<T, Problem>) -> Value {
        serde_json::to_value(refused.err().unwrap()).unwrap()
    }

    async fn body(media_type: &str, body: &'static str) -> Result<u32, Problem> {
        coded("identity", media_type, body).await
    }

    async fn coded(coding: &str, media_type: &str, body: &'static str) -> Result<u32, Problem> {
        let request = http::Request::post("/").header(header::CONTENT_TYPE, media_type);
        let request = request.header(header::CONTENT_ENCODING, coding);
        let request = request.body(axum::body::Body::from(body)).unwrap();
        let Json(opening) = Json::<Opening>::from_request(request, &()).await?;
        Ok(opening.seats.iter().map(|seat| seat.number).sum())
    }

    #[tokio::test]
    async fn a_body_that_cannot_be_read_is_told_where() {
        assert_eq!(
            body("application/json", r#"{"seats":[{"number":7}]}"#).await.ok(),
            Some(7)
        );
        let typed = read(body("text/plain", "{}").await);
        assert_eq!(
            (&typed["status"], &typed["field"]),
            (&json!(415), &json!("Content-Type"))
        );
        let compressed = read(coded("gzip", "application/json", "{}").await);
        assert_eq!(
            (&compressed["status"], &compressed["field"]),
            (&json!(415), &json!("Content-Encoding"))
        );
        let latin = read(body("application/json; charset=latin1", "{}").await);
        assert_eq!(latin["status"], 415, "{latin}");
        let marked = read(body("application/json", "\u{feff}{}").await);
        let detail = marked["detail"].as_str().unwrap();
        assert!(
            marked["status"] == 400 && detail.contains("byte order mark"),
            "{marked}"
        );
        for (text, field, column) in [
            (r#"{"seats":[{"number":"x"}]}"#, json!("seats[0].number"), 23),
            (r#"{"seats":[{}]}"#, json!("seats[0].number"), 12),
            (r#"{"seat":[]}"#, json!("seat"), 7),
            ("{", Value::Null, 1),
        ] {
            let problem = read(body("application/json", text).await);
            assert_eq!(
                (&problem["status"], &problem["type"]),
                (&json!(400), &json!("/problems/malformed"))
            );
            assert_eq!(
                (&problem["field"], &problem["column"]),
                (&field, &json!(column)),
                "{problem}"
            );
        }
    }

    #[tokio::test]
    async fn a_query_or_a_path_that_cannot_be_read_names_its_field() {
        let (mut parts, ()) = http::Request::get("/?limit=x").body(()).unwrap().into_parts();
        let problem = read(
            Query::<Page>::from_request_parts(&mut parts, &())
                .await
                .map(|Query(page)| page.limit),
        );
        assert_eq!(
            (&problem["status"], &problem["field"]),
            (&json!(400), &json!("limit")),
            "{problem}"
        );
        let handler = async |Path(asked): Path<Asked>| format!("{} {}", asked.show, asked.seat);
        let mut router = axum::Router::new().route("/{show}/{seat}", axum::routing::get(handler));
        for (path, field) in [("/a/x", "seat"), ("/%ff/1", "show")] {
            let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
            let response = tower::Service::call(&mut router, request).await.unwrap();
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
            let bytes = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
            let problem: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(
                (&problem["status"], &problem["field"]),
                (&json!(400), &json!(field)),
                "{problem}"
            );
        }
    }
}
