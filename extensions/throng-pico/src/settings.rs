//! The settings of an engine of picos.

use std::path::PathBuf;

/// The sources of rulesets, the hosts that they may reach, and the way clients are answered.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `file:` URLs below this directory may be loaded.
    pub files: Option<PathBuf>,
    /// Hosts that rulesets are loaded from and that they may ask, as `example.com` or `example.com:8080`; `*` is any that is not of this
    /// machine or a private network. Named ones may be.
    pub hosts: Vec<String>,
    /// Events and queries of clients are given the request's header fields as `_headers`, as pico-engine 1.x does.
    pub headers: bool,
    /// The address of this engine, as others see it: `meta:host`.
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
