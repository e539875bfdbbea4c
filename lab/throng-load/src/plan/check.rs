//! Checks answers and captures parts of them.

use super::compile::CompiledRequest;
use super::model::Capture;
use crate::{ErrorKind, ResponseParts};

/// True for an answer that the plan expects; without checks: 2xx or 304.
pub(crate) fn passes(request: &CompiledRequest, answer: &ResponseParts<'_>) -> bool {
    let status = if request.statuses.is_empty() {
        ErrorKind::of_status(answer.status).is_none()
    } else {
        request.statuses.contains(&answer.status)
    };
    status
        && request
            .contains
            .as_ref()
            .is_none_or(|wanted| find(answer.body, wanted).is_some())
        && (request.json.is_empty() || json_passes(request, answer.body))
}

fn json_passes(request: &CompiledRequest, body: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else {
        return false;
    };
    request
        .json
        .iter()
        .all(|(pointer, wanted)| value.pointer(pointer) == Some(wanted))
}

/// Puts the captured text into `slot`; leaves it as it was where the answer has none.
pub(crate) fn capture(capture: &Capture, answer: &ResponseParts<'_>, slot: &mut String) {
    let found = match capture {
        Capture::Json(pointer) => serde_json::from_slice::<serde_json::Value>(answer.body)
            .ok()
            .and_then(|value| {
                value
                    .pointer(pointer)
                    .map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_string))
            }),
        Capture::Header(name) => answer.header(name).map(str::to_string),
        Capture::Between([before, after]) => between(answer.body, before.as_bytes(), after.as_bytes()),
    };
    if let Some(found) = found {
        *slot = found;
    }
}

fn between(body: &[u8], before: &[u8], after: &[u8]) -> Option<String> {
    let rest = &body[find(body, before)? + before.len()..];
    Some(String::from_utf8_lossy(&rest[..find(rest, after)?]).into_owned())
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: ResponseParts<'_> = ResponseParts {
        status: 201,
        head: b"HTTP/1.1 201 Created\r\nlocation: /x/7\r\n\r\n",
        body: br#"{"eci":"abc","n":[1,2],"html":"<b>42</b>"}"#,
    };

    fn captured(kind: Capture) -> String {
        let mut slot = "before".to_string();
        capture(&kind, &ANSWER, &mut slot);
        slot
    }

    #[test]
    fn parts_of_an_answer_are_kept() {
        assert_eq!(captured(Capture::Json("/eci".into())), "abc");
        assert_eq!(captured(Capture::Json("/n/1".into())), "2");
        assert_eq!(captured(Capture::Header("Location".into())), "/x/7");
        assert_eq!(captured(Capture::Between(["<b>".into(), "</b>".into()])), "42");
        assert_eq!(captured(Capture::Json("/none".into())), "before");
    }
}
