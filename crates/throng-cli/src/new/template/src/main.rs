//! The program: `{{name}} --help` says what it can do.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: throng_app::Allocator = throng_app::Allocator;

fn main() -> ExitCode {
    {{crate}}::app().run()
}
