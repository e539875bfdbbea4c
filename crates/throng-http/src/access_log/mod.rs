//! The access log: a line of JSON for each request, or for one in so many.
//!
//! A loop passes a note about each request and its answer to a thread that writes the lines. Notes that the thread cannot keep up with are
//! dropped and counted, so no request waits for its line. While the log is off, it costs a request one check.
//!
//! A line has no query, no header field and no body, since any of them may hold a secret.

mod entry;
mod writer;

pub(crate) use entry::Entry;

use entry::LoggedFields;
use prometheus_client::metrics::counter::Counter;
use std::{
    cell::Cell,
    io,
    num::NonZeroU32,
    path::PathBuf,
    sync::mpsc::{SyncSender, TrySendError, sync_channel},
    thread,
    time::{Duration, Instant},
};
use writer::{Sink, Writer};

/// The most lines that wait to be written.
const WAITING_MAX: usize = 4_096;
/// The method or path of a request whose head cannot be read.
pub(crate) const UNKNOWN: &str = "-";

/// Which requests are logged, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The sampling rate: one request in this many is logged.
    pub one_in: NonZeroU32,
    /// The file that lines are added to, created for its owner only, and created again after it was moved or deleted; `None`: standard
    /// output.
    pub file: Option<PathBuf>,
}

/// The way to the thread that writes.
pub(crate) struct Log {
    one_in: NonZeroU32,
    given: SyncSender<LoggedFields>,
    dropped: Counter,
}

impl Log {
    /// Opens the file and starts the thread, which ends once nothing can send it lines any more.
    pub(crate) fn start(what: &AccessLog, dropped: Counter) -> io::Result<Self> {
        Self::start_with(what.one_in, Sink::open(what.file.clone())?, dropped)
    }

    fn start_with(one_in: NonZeroU32, sink: Sink, dropped: Counter) -> io::Result<Self> {
        let (given, taken) = sync_channel(WAITING_MAX);
        let mut writer = Writer::new(sink, dropped.clone());
        let thread = thread::Builder::new().name("throng-access-log".into());
        thread.spawn(move || writer.run(&taken))?;
        Ok(Self { one_in, given, dropped })
    }

    pub(crate) fn write(&self, entry: Box<Entry>) {
        if self.given.try_send(LoggedFields::Entry(entry)).is_err() {
            self.dropped.inc();
        }
    }

    /// Waits until everything given before is written, but not longer than this.
    pub(crate) fn flush(&self, longest: Duration) {
        let until = Instant::now() + longest;
        let (done, is_done) = sync_channel(1);
        let mut flush = LoggedFields::Flush(done);
        while let Err(TrySendError::Full(back)) = self.given.try_send(flush) {
            if Instant::now() >= until {
                return;
            }
            flush = back;
            thread::sleep(Duration::from_millis(1));
        }
        let _ = is_done.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Chooses a loop's requests that are logged.
#[derive(Debug, Default)]
pub(crate) struct Sampler(Cell<u64>);

impl Sampler {
    /// Returns true if the next request is logged. Multiples of the golden ratio spread evenly,
    /// so the choice does not fall into step with requests that repeat in a cycle.
    pub(crate) fn takes_next(&self, log: Option<&Log>) -> bool {
        const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
        let Some(log) = log else { return false };
        let count = self.0.get();
        self.0.set(count.wrapping_add(1));
        count.wrapping_mul(GOLDEN_RATIO) <= u64::MAX / u64::from(log.one_in.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::mpsc::{Receiver, channel},
        time::UNIX_EPOCH,
    };

    fn entry(path: &str) -> Box<Entry> {
        Box::new(Entry {
            at: UNIX_EPOCH + Duration::from_micros(1_500_000),
            client: [192, 0, 2, 1].into(),
            protocol: "HTTP/1.1",
            method: "GET".into(),
            path: path.into(),
            caller: None,
            status: 200,
            problem: None,
            micros: None,
        })
    }

    /// A writer that accepts one line per permission.
    struct Slow(Receiver<()>);

    impl io::Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(one_in: u32, sink: Sink) -> (Log, Counter) {
        let dropped = Counter::default();
        let one_in = NonZeroU32::new(one_in).unwrap();
        (Log::start_with(one_in, sink, dropped.clone()).unwrap(), dropped)
    }

    #[test]
    fn lines_beyond_the_queue_are_dropped_and_counted() {
        let (permission, permissions) = channel();
        let (log, dropped) = log(1, Sink::Other(Box::new(Slow(permissions))));
        let most = WAITING_MAX * 3;
        (0..most).for_each(|_| log.write(entry("/")));
        let lost = dropped.get();
        assert!(lost > 0 && lost < most as u64, "{lost}");
        log.flush(Duration::ZERO);
        drop(permission);
        log.flush(Duration::from_secs(60));
        assert_eq!(dropped.get(), most as u64, "those that wait are lost with their place");
    }

    #[test]
    fn one_in_so_many_is_logged_whatever_comes_in_turns() {
        let (nothing, _) = log(3, Sink::Other(Box::new(io::sink())));
        for pattern in [1, 2, 3, 5] {
            let sampler = Sampler::default();
            let taken = (0..3_000).filter(|_| sampler.takes_next(Some(&nothing)));
            let of_pattern = taken.clone().filter(|request| request % pattern == 0).count();
            let expected = 1_000 / pattern;
            assert!(of_pattern.abs_diff(expected) <= 5, "{pattern}: {of_pattern}");
        }
        let (all, _) = log(1, Sink::Other(Box::new(io::sink())));
        let sampler = Sampler::default();
        assert_eq!((0..100).filter(|_| sampler.takes_next(Some(&all))).count(), 100);
        assert!(!sampler.takes_next(None));
    }

    #[test]
    fn a_line_is_json_of_the_known_fields() {
        let line = serde_json::to_string(&entry("/a\"\n")).unwrap();
        let expected = r#"{"at":"1970-01-01T00:00:01.5Z","client":"192.0.2.1","protocol":"HTTP/1.1","method":"GET","path":"/a\"\n","status":200}"#;
        assert_eq!(line, expected);
    }
}
