//! Live progress: a bar on a terminal, a line every few seconds in a pipe.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::common::note;
use crate::Progress;
use crate::measure::{Counters, Second};
use crate::report::{count, nanos};

const PIPE_LINE_EVERY: Duration = Duration::from_secs(5);

/// The least columns of a terminal with room for a bar.
const WIDE: usize = 90;
/// The least columns of a terminal with room for words.
const NARROW: usize = 70;

fn columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(WIDE, |size| size.ws_col.into())
}

/// Returns the last second as one line. A narrow terminal cuts off the end, so the total comes last.
fn message(second: Option<&Second>, counters: &Counters, columns: usize) -> String {
    let rate = count(second.map_or(0, |second| second.counters.successes));
    let p50 = nanos(second.map_or(0, |second| second.p50_nanos));
    let p99 = nanos(second.map_or(0, |second| second.p99_nanos));
    let errors = count(counters.errors.values().sum());
    if columns < NARROW {
        return format!("{rate}/s p99 {p99} err {errors}");
    }
    let done = count(counters.attempts());
    format!("{rate}/s · p99 {p99} · errors {errors} · p50 {p50} · {done} done")
}

/// The goal that determines the progress of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    Requests(u64),
    Time(Duration),
    Unknown,
}

/// Shows the progress of a run on standard error.
pub(crate) struct Display {
    bar: Option<ProgressBar>,
    goal: Goal,
    quiet: bool,
    last_line: Duration,
}

impl Display {
    pub(crate) fn new(label: &str, goal: Goal, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !quiet;
        let bar = terminal.then(|| {
            let length = match goal {
                Goal::Requests(total) => Some(total),
                Goal::Time(time) => Some(time.as_millis() as u64),
                Goal::Unknown => None,
            };
            let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let columns = columns();
            let template = match (length.is_some(), colour) {
                (true, _) if columns < WIDE => "{prefix} {percent:>3} % {wide_msg}",
                (true, true) => "{prefix} {bar:20.cyan/dim} {percent:>3} % {wide_msg}",
                (true, false) => "{prefix} {bar:20} {percent:>3} % {wide_msg}",
                (false, _) => "{prefix} {spinner} {elapsed} {wide_msg}",
            };
            // The label gets the columns that the numbers leave.
            let prefix: String = label.chars().take((columns / 4).max(8)).collect();
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
            bar.set_style(
                ProgressStyle::with_template(template)
                    .expect("the template is a constant")
                    .progress_chars("━╸─"),
            );
            bar.set_prefix(prefix);
            bar
        });
        Display {
            bar,
            goal,
            quiet,
            last_line: Duration::ZERO,
        }
    }

    pub(crate) fn update(&mut self, progress: &Progress<'_>) {
        if self.quiet {
            return;
        }
        let message = message(progress.last_second, progress.counters, columns());
        if let Some(bar) = &self.bar {
            bar.set_position(match self.goal {
                Goal::Requests(_) | Goal::Unknown => progress.counters.attempts(),
                Goal::Time(_) => progress.elapsed.as_millis() as u64,
            });
            bar.set_message(message);
        } else if progress.elapsed >= self.last_line + PIPE_LINE_EVERY {
            self.last_line = progress.elapsed;
            note(&format!("{:>4} s  {message}", progress.elapsed.as_secs()));
        }
    }

    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_shows_rate_latency_and_errors_whole() {
        let mut second = Second {
            p99_nanos: 3_060_000,
            ..Second::default()
        };
        second.counters.successes = 237_930;
        let counters = Counters::default();
        // The text "closed 100 % " stands before it.
        assert!(message(Some(&second), &counters, 40).chars().count() <= 40 - 13);
        assert!(message(Some(&second), &counters, 120).contains("p50"));
        assert!(message(None, &counters, 40).contains("err 0"));
    }
}
