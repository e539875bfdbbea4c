//! The lines of an export, and their sums.

use crate::{
    id::PicoId,
    pico::{Body, Change, Waiting},
    rulesets::Version,
};
use serde::{Deserialize, Serialize};

/// The version of the format. No other one is read.
pub(super) const FORM: u32 = 1;

/// A line without its sum.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum TransferLine {
    /// The first line: the format and the subject of the export.
    Begin {
        /// The version of the format. Another one is refused.
        throng_picos: u32,
        /// The pico above all others of the export.
        top: PicoId,
    },
    /// A ruleset. It stands before the first pico that has it.
    Ruleset { ruleset: Version },
    /// The next pico, without the contents of the lines that follow.
    Pico { pico: Box<Body> },
    /// A change that rebuilds a part of the pico.
    Change { change: Change },
    /// An event of the pico that waits for answers.
    Waiting { waiting: Waiting },
    /// The last line. Without it the file is truncated.
    End { end: End },
}

/// The counts of the file, for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// The number of picos, including the top one.
    pub(super) picos: u64,
    /// The number of lines before this one.
    pub(super) lines: u64,
}

/// The bytes before and after a sum.
const SUM: (&str, &str) = (",\"sum\":\"", "\"}");
const SUM_DIGITS: usize = 8;

/// The running sum of the lines.
#[derive(Debug, Default)]
pub(super) struct Sum(u32);

impl Sum {
    /// Appends the sum and the line end to the JSON line that starts at `begin`.
    pub(super) fn seal(&mut self, lines: &mut Vec<u8>, begin: usize) {
        lines.pop();
        self.0 = crc32c::crc32c_append(self.0, lines.get(begin..).unwrap_or_default());
        lines.extend_from_slice(format!("{}{:0SUM_DIGITS$x}{}\n", SUM.0, self.0, SUM.1).as_bytes());
    }

    /// Checks that a line is the next one of its export. Returns it without its sum.
    pub(super) fn check(&mut self, line: &str) -> Result<String, &'static str> {
        let found = line.strip_suffix(SUM.1).and_then(|line| {
            let (rest, digits) = line.split_at_checked(line.len().checked_sub(SUM_DIGITS)?)?;
            Some((rest.strip_suffix(SUM.0)?, u32::from_str_radix(digits, 16).ok()?))
        });
        let (rest, sum) = found.ok_or("it carries no sum")?;
        self.0 = crc32c::crc32c_append(self.0, rest.as_bytes());
        match self.0 == sum {
            true => Ok(format!("{rest}}}")),
            false => Err("its sum does not fit: it was altered, or lines before it are missing, doubled or moved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_altered_moved_or_cut_is_noticed() {
        let (mut sum, mut lines) = (Sum::default(), Vec::new());
        for text in ["{\"a\":1}", "{\"b\":2}"] {
            let begin = lines.len();
            lines.extend_from_slice(text.as_bytes());
            sum.seal(&mut lines, begin);
        }
        let text = String::from_utf8(lines).unwrap();
        let [a, b] = text.lines().collect::<Vec<_>>().try_into().unwrap();
        let mut check = Sum::default();
        assert_eq!(
            (check.check(a).unwrap(), check.check(b).unwrap()),
            ("{\"a\":1}".into(), "{\"b\":2}".into())
        );
        for wrong in [b, "", &a[1..], &a[..a.len() - 1], &a.replace('1', "2"), "{\"a\":1}"] {
            assert!(Sum::default().check(wrong).is_err(), "{wrong}");
        }
    }
}
