//! The service's program: `tickets serve`, and the tools for its journal.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: throng_app::Allocator = throng_app::Allocator;

fn main() -> ExitCode {
    tickets::app().run()
}
