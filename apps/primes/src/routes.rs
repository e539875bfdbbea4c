//! The route `GET /primes/{n}`.

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
    routing::get,
};
use throng::Engine;
use throng_http::{Problem, extract::Path};

use crate::{MOST, json, workers::Workers};

/// The largest n that is computed on the connection's loop. It takes at most a tenth of a millisecond.
const IN_PLACE_MAX: usize = 1_000;

/// Returns the routes, to be mounted on a gateway. They do not use the engine.
pub fn routes(_: Engine) -> Router {
    Router::new()
        .route("/primes/{n}", get(primes))
        // A trailing slash is accepted, as in other apps here.
        .route("/primes/{n}/", get(primes))
        .with_state(Workers::new())
}

async fn primes(State(workers): State<Workers>, Path(n): Path<String>) -> Result<Response, Problem> {
    let n = count(&n).map_err(malformed)?;
    let text = if n <= IN_PLACE_MAX {
        json(n)
    } else {
        workers.run(move || json(n)).await?
    };
    let media_type = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, media_type)], text).into_response())
}

/// Parses the number of primes in a path, or returns the reason for a refusal.
fn count(text: &str) -> Result<usize, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{text:?} is no number. Ask for 0 to {MOST} primes."));
    }
    match text.parse::<usize>() {
        Ok(n) if n <= MOST => Ok(n),
        _ if text.starts_with('-') => Err(format!("There are no {text} primes. Ask for 0 to {MOST} primes.")),
        _ => Err(format!(
            "{text} primes are more than are computed. Ask for 0 to {MOST} primes."
        )),
    }
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::malformed(detail).at_field("n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_plain_number_within_the_limit() {
        assert_eq!(count("0").unwrap(), 0);
        assert_eq!(count("20").unwrap(), 20);
        assert_eq!(count("100000").unwrap(), MOST);
        for text in [
            "-1",
            "-0",
            "100001",
            "99999999999999999999999999",
            "",
            "-",
            "+5",
            "1.5",
            "0x10",
            "zwanzig",
            "２０",
        ] {
            assert!(count(text).is_err(), "{text}");
        }
    }
}
