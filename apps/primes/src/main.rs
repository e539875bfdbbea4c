//! The program of the service: `primes serve`, and the general tools.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: throng_app::Allocator = throng_app::Allocator;

fn main() -> ExitCode {
    primes::app().run()
}
