//! What the program's parts say of themselves, on standard error.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Whether the person asked for no colours (<https://no-color.org>).
#[must_use]
pub fn is_colourless() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Shows messages from `level` on; `RUST_LOG` overrides it.
pub fn start(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let coloured = std::io::stderr().is_terminal() && !is_colourless();
    // Fails only when logging has begun already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(coloured)
        .with_target(false)
        .try_init();
}
