//! The service's program: `bank serve`, and the tools for its journal.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: throng_app::Allocator = throng_app::Allocator;

fn main() -> ExitCode {
    bank::app().run()
}
