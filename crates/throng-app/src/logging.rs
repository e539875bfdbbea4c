//! What the program's parts say of themselves, on standard error.

use std::io::IsTerminal as _;
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// Whether the person asked for no colours (<https://no-color.org>).
#[must_use]
pub fn is_colourless() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Shows messages from `level` on; `RUST_LOG` overrides it.
pub fn start(level: &str) {
    let asked = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let asked: Option<Targets> = asked.and_then(|filter| filter.parse().ok());
    let filter = asked.unwrap_or_else(|| level.parse().expect("a level is a filter"));
    let coloured = std::io::stderr().is_terminal() && !is_colourless();
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(coloured)
        .with_target(false);
    // Fails only when logging has begun already.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
}
