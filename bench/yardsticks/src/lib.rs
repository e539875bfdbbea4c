//! What the machine can do without an engine.
