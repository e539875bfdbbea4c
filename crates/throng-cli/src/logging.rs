//! What the program's parts say of themselves, on standard error.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Shows messages from `level` on; `RUST_LOG` overrides it.
pub(crate) fn start(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let coloured = std::io::stderr().is_terminal() && !crate::progress::is_colourless();
    // Fails only when logging has begun already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(coloured)
        .with_target(false)
        .try_init();
}
