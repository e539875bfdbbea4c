//! Runs one candidate, for a profiler: `cargo run --release -p queues --example one -- "throng adaptive" [once | TRADES A SECOND]`.

use queues::{Candidate, Level, Surge, Task};
use std::{env, process::ExitCode, time::Duration};

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let how = arguments.next().unwrap_or_default();
    let rate = how.parse().ok();
    let surge = Surge {
        at_once: how == "once",
        ..Surge::default()
    };
    let candidate = Candidate::all().into_iter().find(|one| one.to_string() == name);
    let task = match (candidate, rate) {
        (None, _) if name == "ceiling" => Task::Ceiling(surge),
        (Some(candidate), None) => Task::Surge(candidate, surge),
        (Some(candidate), Some(rate)) => Task::Level(
            candidate,
            Level {
                rate,
                threads: 6,
                lasts: Duration::from_secs(1),
            },
        ),
        (None, _) => {
            eprintln!("name one of these: ceiling");
            Candidate::all().iter().for_each(|one| eprintln!("  {one}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = task.run();
    if let queues::Outcome::Surge(figures) = &outcome {
        print!(
            "{:.0} M/s, {:.2} ns CPU each: ",
            figures.rate() / 1e6,
            figures.cpu_nanos()
        );
    }
    println!("{outcome:?}");
    ExitCode::SUCCESS
}
