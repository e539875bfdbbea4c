//! The binary `throng`. Its code is in the library.

use std::process::ExitCode;
use throng_app::clap::Parser;

#[global_allocator]
static ALLOCATOR: throng_app::Allocator = throng_app::Allocator;

fn main() -> ExitCode {
    throng_cli::run(throng_cli::Arguments::parse())
}
