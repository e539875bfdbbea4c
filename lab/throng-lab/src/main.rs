//! The binary `throng-lab`, which only calls the library.

use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: throng_app::Allocator = throng_app::Allocator;

fn main() -> ExitCode {
    throng_lab::run(&throng_lab::Arguments::parse())
}
