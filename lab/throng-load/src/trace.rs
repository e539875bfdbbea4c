//! Recorded requests as JSON lines, and their replay.
//!
//! There is one object on each line, in time order:
//!
//! ```json
//! {"at": 0.25, "key": "C S 142-1", "method": "POST", "path": "/api/section/C%20S%20142-1/add", "body": {"student": "s1"}, "expect": [200, 422]}
//! ```
//!
//! - `at`: seconds since the start.
//! - `key`: lines with the same key keep their order; by default it is the path.
//! - `body`: a text, or any other JSON value, which is sent as JSON.
//! - `headers`: an object.
//! - `expect`: a status or several, by default 2xx.
//! - `class`: a name for the report.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::{Request, Target, Trace};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at: Option<f64>,
    key: Option<String>,
    #[serde(default)]
    method: Option<String>,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    expect: Option<Expect>,
    class: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`expect` must be a status, or a list of them")]
enum Expect {
    One(u16),
    Several(Vec<u16>),
}

/// A trace with the expected statuses.
#[derive(Debug, Default)]
pub struct Recording {
    /// The requests of the recording.
    pub trace: Trace,
    /// The allowed statuses of each request. Empty means 2xx or 304.
    pub expected: Vec<Vec<u16>>,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// The time of the last request.
    pub length: Duration,
}

/// Reads a recording for a target. `name` is the file's, for errors.
pub fn read(text: &str, name: &str, target: &Target) -> Result<Recording> {
    let mut recording = Recording::default();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = |reason: String| Error::Plan {
            file: format!("{name}, line {}", number + 1),
            reason,
        };
        let line: Line = serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
        recording.add(line, target).map_err(at)?;
    }
    if recording.trace.is_empty() {
        return Err(Error::Plan {
            file: name.to_string(),
            reason: "it holds no request".into(),
        });
    }
    Ok(recording)
}

impl Recording {
    fn add(&mut self, line: Line, target: &Target) -> std::result::Result<(), String> {
        if !line.path.starts_with('/') || line.path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(format!(
                "the path `{}` must begin with `/` and have its blanks percent-encoded",
                line.path
            ));
        }
        let offset = match line.at {
            Some(seconds) => Some(
                Duration::try_from_secs_f64(seconds).map_err(|_| format!("`at` {seconds} is no time in seconds"))?,
            ),
            None => None,
        };
        if offset.is_some_and(|offset| offset < self.length) {
            return Err("it lies before the line above: a trace is in time order".into());
        }
        self.length = offset.unwrap_or(self.length);
        let method = line
            .method
            .unwrap_or_else(|| if line.body.is_some() { "POST" } else { "GET" }.into());
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(format!("`{method}` is no HTTP method"));
        }
        let mut request = Request::build(
            &method,
            &target.authority,
            &format!("{}{}", target.path.trim_end_matches('/'), line.path),
        );
        for (header, value) in &line.headers {
            crate::cli::values::header(&format!("{header}: {value}"))?;
            request = request.header(header, value);
        }
        request = match line.body {
            None => request,
            Some(Value::String(body)) => request.body(body),
            Some(body)
                if line
                    .headers
                    .keys()
                    .any(|header| header.eq_ignore_ascii_case("content-type")) =>
            {
                request.body(body.to_string())
            }
            Some(body) => request.json(&body.to_string()),
        };
        let name = line.class.unwrap_or_else(|| "request".into());
        let class = match self.classes.iter().position(|known| *known == name) {
            Some(class) => class,
            None if self.classes.len() >= 256 => return Err("more than 256 classes".into()),
            None => {
                self.classes.push(name);
                self.classes.len() - 1
            }
        };
        let key = line.key.unwrap_or(line.path);
        self.trace.push(key, offset, class as u16, &request.into_bytes());
        self.expected.push(match line.expect {
            None => Vec::new(),
            Some(Expect::One(status)) => vec![status],
            Some(Expect::Several(statuses)) => statuses,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target::resolve("http://127.0.0.1:9/base/", false).unwrap()
    }

    #[test]
    fn lines_become_requests() {
        let text = r#"{"at":0,"key":"a","path":"/x","body":{"n":1}}

{"at":1.5,"key":"b","method":"DELETE","path":"/y","expect":[204,404],"class":"drop"}"#;
        let recording = read(text, "t", &target()).unwrap();
        let first = std::str::from_utf8(recording.trace.bytes(0)).unwrap();
        assert!(
            first.starts_with("POST /base/x HTTP/1.1\r\n") && first.ends_with("\r\n\r\n{\"n\":1}"),
            "{first}"
        );
        assert_eq!(recording.trace.item(1).offset, Some(Duration::from_millis(1500)));
        assert_eq!(recording.expected, [vec![], vec![204, 404]]);
        assert_eq!(recording.classes, ["request", "drop"]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for text in [
            "{}",
            "{\"path\":\"x\"}",
            "{\"path\":\"/a b\"}",
            "{\"path\":\"/\",\"method\":\"get it\"}",
            "{\"path\":\"/\",\"at\":-1}",
            "not json",
            "",
        ] {
            let error = read(text, "t", &target()).unwrap_err().to_string();
            assert!(text.is_empty() || error.contains("line 1"), "{error}");
        }
        let unordered = "{\"path\":\"/\",\"at\":2}\n{\"path\":\"/\",\"at\":1}";
        assert!(
            read(unordered, "t", &target())
                .unwrap_err()
                .to_string()
                .contains("time order")
        );
    }
}
