//! The settings of an engine with picos.

use std::path::PathBuf;

/// The sources of rulesets, the hosts that they may reach, and options of the answers to clients.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The directory whose `file:` URLs may be loaded.
    pub files: Option<PathBuf>,
    /// The hosts that rulesets may be loaded from and may send requests to, such as `example.com` or `example.com:8080`. `*` allows every host
    /// outside this machine and private networks. A named host may be inside.
    pub hosts: Vec<String>,
    /// True if clients' events and queries get the request's header fields as `_headers`, as in pico-engine 1.x.
    pub headers: bool,
    /// The public address of this engine, for `meta:host`.
    pub host: String,
}

impl Settings {
    /// Reads the settings from the environment.
    #[must_use]
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Self {
        let list = |text: String| {
            text.split(',')
                .map(|part| part.trim().to_owned())
                .filter(|part| !part.is_empty())
                .collect()
        };
        let is = |name: &str| get(name).is_some_and(|text| matches!(text.trim(), "1" | "true" | "yes"));
        Self {
            headers: is("THRONG_PICOS_HEADERS"),
            files: get("THRONG_PICOS_FILES").map(PathBuf::from),
            hosts: get("THRONG_PICOS_HOSTS").map(list).unwrap_or_default(),
            host: get("THRONG_PICOS_HOST").unwrap_or_else(|| "http://localhost:8080".into()),
        }
    }
}
