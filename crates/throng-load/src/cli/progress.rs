//! Live progress: a bar on a terminal, a line every few seconds in a pipe.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::common::note;
use crate::Progress;
use crate::report::{count, nanos};

const PIPE_LINE_EVERY: Duration = Duration::from_secs(5);

/// A terminal of fewer columns has no room for a bar.
const WIDE: usize = 90;

fn columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(WIDE, |size| size.ws_col.into())
}

/// What the end of a run is measured by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    Requests(u64),
    Time(Duration),
    Unknown,
}

/// Shows how a run goes, on standard error.
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
            // What the numbers leave.
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
        let second = progress.last_second;
        // A narrow terminal cuts off at the end: the total comes last.
        let message = format!(
            "{}/s · p99 {} · errors {} · p50 {} · {} done",
            count(second.map_or(0, |second| second.counters.successes)),
            nanos(second.map_or(0, |second| second.p99_nanos)),
            count(progress.counters.errors.values().sum()),
            nanos(second.map_or(0, |second| second.p50_nanos)),
            count(progress.counters.attempts()),
        );
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
