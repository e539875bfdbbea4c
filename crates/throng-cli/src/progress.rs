//! Progress of long work: a bar on a terminal, an occasional line in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use crate::{demo::pace::DayClock, units::count};
use throng_app::cli::is_colourless;

const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows progress on standard error.
pub struct Progress {
    bar: Option<ProgressBar>,
    label: &'static str,
    total: u64,
    last_line: Instant,
    /// The clock of a day that is replayed in time.
    clock: Option<DayClock>,
}

impl Progress {
    /// Starts at 0 of `total`.
    #[must_use]
    pub fn new(label: &'static str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = if is_colourless() {
                "  {prefix} {bar:30} {percent:>3} % {human_pos} of {human_len}, {per_sec} {msg}"
            } else {
                "  {prefix} {bar:30.cyan/dim} {percent:>3} % {human_pos} of {human_len}, {per_sec} {msg}"
            };
            let style = ProgressStyle::with_template(template).expect("the template is a constant");
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            bar.set_style(style.progress_chars("━╸─"));
            bar.set_prefix(format!("{label:<10}"));
            bar
        });
        Self {
            bar,
            label,
            total,
            last_line: Instant::now(),
            clock: None,
        }
    }

    /// Shows the time of the day, too, and how long it still takes.
    #[must_use]
    pub fn with_clock(mut self, clock: Option<DayClock>) -> Self {
        self.clock = clock;
        self
    }

    /// Shows this number as done.
    pub fn show(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            if let Some(clock) = &self.clock {
                bar.set_message(format!("· {}", clock.shown()));
            }
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let clock = self.clock.as_ref().map(|clock| format!(" · {}", clock.shown()));
            let clock = clock.unwrap_or_default();
            eprintln!("  {:<10} {} of {}{clock}", self.label, count(done), count(self.total));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
