//! The bare write-and-sync loop as a program: `cargo run --release -p yardsticks --bin disk -- --dir .`.

use clap::Parser;
use std::process::ExitCode;

/// A bare pwrite + fdatasync loop: what the disk can do without a journal.
#[derive(Parser)]
#[command(name = "disk")]
struct Arguments {
    #[command(flatten)]
    disk: yardsticks::disk::DiskArguments,
}

fn main() -> ExitCode {
    match Arguments::parse().disk.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("disk: {error}");
            ExitCode::FAILURE
        }
    }
}
