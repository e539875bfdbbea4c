//! The engine: turns, open commit, router, admission, passivation, timers, outbox.
