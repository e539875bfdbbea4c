//! The request for a URL on the command line.

use anyhow::{Context as _, bail};
use clap::Args;

use super::values;
use crate::{Request, Target};

/// The arguments of the request, for a URL.
#[derive(Debug, Args)]
pub(super) struct RequestArgs {
    /// Method [default: GET, or POST with a body].
    #[arg(long, short = 'm')]
    method: Option<String>,
    /// A header, `Name: value`; repeatable. `Content-Type: application/json` is added if the body begins with { or [.
    #[arg(long, short = 'H', value_parser = values::header)]
    header: Vec<(String, String)>,
    /// The request's body; `@FILE` reads it from a file.
    #[arg(long, short = 'b')]
    body: Option<String>,
}

impl RequestArgs {
    /// Returns true if any of these arguments was given.
    pub(super) fn is_given(&self) -> bool {
        self.method.is_some() || !self.header.is_empty() || self.body.is_some()
    }

    pub(super) fn build(&self, target: &Target, keep_alive: bool) -> anyhow::Result<Request> {
        let body = match self.body.as_deref() {
            Some(body) => match body.strip_prefix('@') {
                Some(file) => Some(std::fs::read(file).with_context(|| format!("cannot read the body from {file}"))?),
                None => Some(body.as_bytes().to_vec()),
            },
            None => None,
        };
        let method = self
            .method
            .clone()
            .unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_string());
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-') {
            bail!("`{method}` is no HTTP method");
        }
        let mut builder = Request::build(&method.to_ascii_uppercase(), &target.authority, &target.path);
        if !keep_alive {
            builder = builder.header("Connection", "close");
        }
        for (name, value) in &self.header {
            builder = builder.header(name, value);
        }
        if let Some(body) = body {
            let is_typed = self.header.iter().any(|(name, _)| values::is_content_type(name));
            if !is_typed && values::is_json(&body) {
                builder = builder.header("Content-Type", "application/json");
            }
            builder = builder.body(body);
        }
        Ok(builder.finish())
    }
}
