//! The bare HTTP echo as a program: `cargo run --release -p yardsticks --bin echo -- --port 9000`.

use clap::Parser;
use std::process::ExitCode;

/// A bare epoll HTTP/1.1 echo: what the machine can do without an engine.
#[derive(Parser)]
#[command(name = "echo")]
struct Arguments {
    #[command(flatten)]
    echo: yardsticks::echo::EchoArguments,
}

fn main() -> ExitCode {
    match Arguments::parse().echo.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}
