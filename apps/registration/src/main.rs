//! The program of the service: `registration serve`, and the tools for its data.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: throng_app::Allocator = throng_app::Allocator;

fn main() -> ExitCode {
    registration::app().run()
}
