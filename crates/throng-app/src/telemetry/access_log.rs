//! The access log, as flags and environment variables.

use clap::Args;
use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};
use throng_http::{AccessLog, Gateway};

/// The requests that are logged, and the file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Access log")]
pub struct AccessLogArguments {
    /// A line of JSON for each request: off, all, or sample=N for one in N [default: off].
    #[arg(long, value_name = "WHAT", env = "THRONG_ACCESS_LOG", value_parser = sampling)]
    access_log: Option<Sampling>,
    /// The file of the access log; - is standard output. A file that was moved away is created again. With a file all requests are logged, unless
    /// --access-log says otherwise [default: -].
    #[arg(long, value_name = "FILE", env = "THRONG_ACCESS_LOG_FILE")]
    access_log_file: Option<PathBuf>,
}

/// The sampling rate: one request in this many; `None` logs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sampling(Option<NonZeroU32>);

fn sampling(text: &str) -> Result<Sampling, String> {
    let one_in = match text {
        "off" => return Ok(Sampling(None)),
        "all" => Some(NonZeroU32::MIN),
        _ => text.strip_prefix("sample=").and_then(|count| count.parse().ok()),
    };
    one_in
        .map(|one_in| Sampling(Some(one_in)))
        .ok_or_else(|| "write off, all, or for example sample=100".into())
}

impl AccessLogArguments {
    /// Returns the sampling rate: all requests if a file is named and no rate.
    fn one_in(&self) -> Option<NonZeroU32> {
        match self.access_log {
            Some(Sampling(one_in)) => one_in,
            None => self.access_log_file.as_ref().map(|_| NonZeroU32::MIN),
        }
    }

    pub(crate) fn set(&self, gateway: Gateway) -> Gateway {
        let Some(one_in) = self.one_in() else { return gateway };
        let file = self.access_log_file.clone().filter(|file| file != Path::new("-"));
        gateway.access_log(AccessLog { one_in, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_alone_asks_for_all_requests() {
        let arguments = |access_log, file: Option<&str>| AccessLogArguments {
            access_log,
            access_log_file: file.map(PathBuf::from),
        };
        assert_eq!(arguments(None, Some("f")).one_in(), Some(NonZeroU32::MIN));
        assert_eq!(arguments(Some(Sampling(None)), Some("f")).one_in(), None);
        assert_eq!(arguments(None, None).one_in(), None);
    }

    #[test]
    fn requests_are_logged_all_or_one_in_so_many_or_not() {
        let one_in = |text| sampling(text).map(|Sampling(one_in)| one_in.map(NonZeroU32::get));
        assert_eq!(
            [one_in("off"), one_in("all"), one_in("sample=50")],
            [Ok(None), Ok(Some(1)), Ok(Some(50))]
        );
        for wrong in ["", "on", "sample=0", "sample=", "50", "sample=-1"] {
            assert!(one_in(wrong).is_err(), "{wrong}");
        }
    }
}
