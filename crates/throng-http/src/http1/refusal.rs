//! Prepared refusals, because a refusal may cost next to nothing.

use super::response::{self, Framing};
use crate::{access::cors, admission::Reason, problem::Problem};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::{borrow::Cow, time::Duration};

pub(super) struct Refusal {
    /// The pause suggested to the client.
    seconds: u64,
    pub(super) status: StatusCode,
    pub(super) problem: Problem,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// The refusals of a loop.
#[derive(Default)]
pub(super) struct Refusals {
    overload: Option<Refusal>,
    share: Option<Refusal>,
}

impl Refusals {
    /// Returns the refusal for this reason; `wait` is the present wait of other requests.
    pub(super) fn find(&mut self, reason: Reason, wait: Duration) -> &Refusal {
        let known = match reason {
            Reason::Overload => &mut self.overload,
            Reason::Share => &mut self.share,
        };
        if known.as_ref().is_some_and(|known| known.seconds != wait.as_secs()) {
            *known = None;
        }
        known.get_or_insert_with(|| Refusal::new(reason, wait))
    }
}

impl Refusal {
    fn new(reason: Reason, wait: Duration) -> Self {
        let problem = Problem::refused(reason, wait);
        let (parts, _) = problem.response().into_parts();
        Self {
            seconds: wait.as_secs(),
            status: parts.status,
            headers: parts.headers,
            body: serde_json::to_vec(&problem).unwrap_or_default(),
            problem,
        }
    }

    /// Writes it, with the origin of a page that may read it.
    pub(super) fn write(&self, output: &mut Vec<u8>, origin: Option<HeaderValue>, date: &[u8], closes: bool) {
        let framing = Framing::Length(self.body.len());
        let headers = match origin {
            None => Cow::Borrowed(&self.headers),
            Some(origin) => {
                let mut headers = self.headers.clone();
                headers.extend(cors::fields(origin));
                Cow::Owned(headers)
            }
        };
        response::head(output, self.status, &headers, framing, date, closes);
        output.extend_from_slice(&self.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn written(refusals: &mut Refusals, reason: Reason, wait: Duration) -> String {
        let mut output = Vec::new();
        refusals.find(reason, wait).write(&mut output, None, DATE, false);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn refusal_is_for_an_allowed_page_to_read() {
        let (mut refusals, mut output) = (Refusals::default(), Vec::new());
        let refusal = refusals.find(Reason::Overload, Duration::ZERO);
        let origin = HeaderValue::from_static("https://app.example");
        refusal.write(&mut output, Some(origin), DATE, false);
        let said = String::from_utf8(output).unwrap();
        assert!(
            said.contains("access-control-allow-origin: https://app.example\r\n"),
            "{said}"
        );
        let other = written(&mut refusals, Reason::Overload, Duration::ZERO);
        assert!(!other.contains("access-control"), "{other}");
    }

    #[test]
    fn a_refusal_says_why_and_when_to_come_back() {
        let mut refusals = Refusals::default();
        let said = written(&mut refusals, Reason::Overload, Duration::from_millis(480));
        assert!(said.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{said}");
        assert!(said.contains("retry-after: 1\r\n"), "{said}");
        assert!(said.contains("/problems/overloaded") && said.ends_with('}'), "{said}");
        let later = written(&mut refusals, Reason::Overload, Duration::from_millis(2_300));
        assert!(later.contains("retry-after: 3\r\n"), "{later}");
        let share = written(&mut refusals, Reason::Share, Duration::ZERO);
        assert!(share.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{share}");
    }
}
