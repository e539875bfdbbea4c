//! The load lab as a program of its own: `throng-load …` is `throng load …`.

use clap::Parser;

#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(flatten)]
    load: throng_load::cli::LoadArgs,
}

fn main() -> std::process::ExitCode {
    throng_load::cli::run(Arguments::parse().load)
}
