//! The log on standard error.

use std::io::IsTerminal as _;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// True if the environment asks for no colours (<https://no-color.org>).
#[must_use]
pub fn is_colourless() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// The AMQP client's library. It logs a kilobyte for each returned message and for each lost connection; `throng-amqp`
/// reports both in a line.
const QUIET: &str = "lapin";

fn filter(asked: Option<&str>, level: &str) -> Targets {
    let asked = asked.and_then(|filter| filter.parse().ok());
    let usual = || {
        let filter: Targets = level.parse().expect("a level is a filter");
        filter.with_target(QUIET, LevelFilter::OFF)
    };
    asked.unwrap_or_else(usual)
}

/// Shows messages from `level` on; `RUST_LOG` overrides it.
pub fn start(level: &str) {
    let asked = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = filter(asked.as_deref(), level);
    let coloured = std::io::stderr().is_terminal() && !is_colourless();
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(coloured)
        .with_target(false);
    // Fails only if logging has been started already.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn client_library_is_heard_only_where_asked_for() {
        let target = "lapin::returned_messages";
        assert!(!filter(None, "info").would_enable(target, &Level::ERROR));
        assert!(filter(None, "info").would_enable("throng_amqp", &Level::INFO));
        assert!(filter(Some("warn"), "info").would_enable(target, &Level::WARN));
    }
}
