use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::examples;
use super::series::Outlier;
use super::{Counters, Examples, Latencies, Point, RequestLog, Sample, latencies, record};
use crate::{ErrorKind, Outcome, Verdict};

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// The number of slowest requests that are kept of each second.
const OUTLIERS_MAX: usize = 6;

/// Counts and times the requests of one worker.
///
/// The inner loop records into memory of its own. Once a second these results are handed over as a whole.
pub(crate) struct Recorder {
    pub(crate) classes: Vec<ClassRecord>,
    /// The time from the intended start to sending, by which the load was late.
    pub(crate) lateness: Latencies,
    /// The part of the lateness while a connection was free, which is the generator's own delay.
    pub(crate) own_delay: Latencies,
    pub(crate) opened: u64,
    /// The reason of the first TLS failure.
    pub(crate) tls_failure: Option<String>,
    pub(crate) sample: Sample,
    second: SecondSlice,
    mailbox: Arc<Mailbox>,
    log: Option<RequestLog>,
}

/// The totals of one class of requests.
#[derive(Debug, Clone)]
pub(crate) struct ClassRecord {
    pub(crate) counters: Counts,
    pub(crate) examples: Examples,
    pub(crate) service: Latencies,
    pub(crate) response: Latencies,
}

impl ClassRecord {
    fn new() -> Self {
        ClassRecord {
            counters: Counts::new(),
            examples: Examples::new(),
            service: latencies(),
            response: latencies(),
        }
    }
}

/// Counters in arrays, for the inner loop.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    successes: u64,
    failures: u64,
    retried: u64,
    bytes_out: u64,
    bytes_in: u64,
    errors: [u64; ErrorKind::ALL.len()],
    statuses: Box<[u32; 1000]>,
}

/// The results of a worker within a second.
#[derive(Debug, Clone)]
pub(crate) struct SecondSlice {
    pub(crate) second: u64,
    pub(crate) counts: Counts,
    pub(crate) response: Latencies,
    pub(crate) outliers: Vec<Outlier>,
    pub(crate) connections: u64,
}

/// The box for a worker's finished seconds. The worker adds seconds; the coordinator takes them ten times a second.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    finished: Mutex<Vec<SecondSlice>>,
    /// The second before which all seconds are in the box or taken. The worker raises it while it holds the lock of `finished`.
    current: AtomicU64,
}

impl Mailbox {
    pub(crate) fn take(&self) -> (u64, Vec<SecondSlice>) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        (self.current.load(Ordering::Acquire), std::mem::take(&mut *finished))
    }

    fn leave(&self, slice: SecondSlice, next: u64) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        finished.push(slice);
        self.current.store(next, Ordering::Release);
    }
}

impl Counts {
    pub(crate) fn new() -> Self {
        Counts {
            successes: 0,
            failures: 0,
            retried: 0,
            bytes_out: 0,
            bytes_in: 0,
            errors: [0; ErrorKind::ALL.len()],
            statuses: Box::new([0; 1000]),
        }
    }

    fn count(&mut self, judged: Judged, status: u16, bytes_out: u64, bytes_in: u64) {
        match judged {
            Judged::Success => self.successes += 1,
            Judged::Failure(kind) => {
                self.failures += 1;
                self.errors[kind as usize] += 1;
            }
            Judged::Retried(kind) => {
                self.retried += 1;
                self.errors[kind as usize] += 1;
            }
        }
        self.bytes_out += bytes_out;
        self.bytes_in += bytes_in;
        if let Some(answers) = self.statuses.get_mut(status as usize).filter(|_| status != 0) {
            *answers += 1;
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            successes: self.successes,
            failures: self.failures,
            retried: self.retried,
            bytes_out: self.bytes_out,
            bytes_in: self.bytes_in,
            errors: ErrorKind::ALL
                .into_iter()
                .filter_map(|kind| Some((kind, nonzero(self.errors[kind as usize])?)))
                .collect(),
            statuses: (0u16..1000)
                .filter_map(|code| Some((code, nonzero(self.statuses[code as usize].into())?)))
                .collect(),
        }
    }
}

fn nonzero(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

#[derive(Debug, Clone, Copy)]
enum Judged {
    Success,
    Failure(ErrorKind),
    Retried(ErrorKind),
}

impl Judged {
    fn error(self) -> Option<ErrorKind> {
        match self {
            Judged::Success => None,
            Judged::Failure(kind) | Judged::Retried(kind) => Some(kind),
        }
    }
}

/// The verdict of a source together with what happened; a transport error is never a success.
fn judge(verdict: Verdict, result: &Result<crate::ResponseParts<'_>, ErrorKind>) -> Judged {
    let by_status = match result {
        Ok(answer) => ErrorKind::of_status(answer.status),
        Err(kind) => Some(*kind),
    };
    match (verdict, by_status) {
        (Verdict::Retried, kind) => Judged::Retried(kind.unwrap_or(ErrorKind::Check)),
        (_, Some(kind)) if result.is_err() => Judged::Failure(kind),
        (Verdict::Success, _) | (Verdict::ByStatus, None) => Judged::Success,
        (Verdict::CheckFailed, kind) => Judged::Failure(kind.unwrap_or(ErrorKind::Check)),
        (Verdict::ByStatus, Some(kind)) => Judged::Failure(kind),
    }
}

impl SecondSlice {
    fn new(second: u64) -> Self {
        SecondSlice {
            second,
            counts: Counts::new(),
            response: latencies(),
            outliers: Vec::new(),
            connections: 0,
        }
    }
}

impl Recorder {
    pub(crate) fn new(classes: usize, mailbox: Arc<Mailbox>, log: Option<RequestLog>) -> Self {
        Recorder {
            classes: (0..classes.max(1)).map(|_| ClassRecord::new()).collect(),
            lateness: latencies(),
            own_delay: latencies(),
            opened: 0,
            tls_failure: None,
            sample: Sample::default(),
            second: SecondSlice::new(0),
            mailbox,
            log,
        }
    }

    /// Records the lateness of a request with an intended start.
    pub(crate) fn sent_late(&mut self, lateness_nanos: u64, own_delay_nanos: u64) {
        record(&mut self.lateness, lateness_nanos);
        record(&mut self.own_delay, own_delay_nanos);
    }

    /// Counts and times an ended request.
    pub(crate) fn ended(&mut self, class: u16, verdict: Verdict, outcome: &Outcome<'_>, bytes_out: u64, bytes_in: u64) {
        self.advance(outcome.done_nanos);
        let judged = judge(verdict, &outcome.result);
        let status = outcome.status();
        let index = (class as usize).min(self.classes.len() - 1);
        let class_record = &mut self.classes[index];
        class_record.counters.count(judged, status, bytes_out, bytes_in);
        if let (Some(_), Ok(answer)) = (judged.error(), &outcome.result) {
            examples::keep(&mut class_record.examples, answer);
        }
        self.second.counts.count(judged, status, bytes_out, bytes_in);
        self.sample.add(|| Point {
            at_nanos: outcome.done_nanos,
            latency_nanos: outcome.response_nanos(),
            status,
        });
        // A request without an answer took at least that long. Leaving it out would hide the stall.
        if matches!(outcome.result, Ok(_) | Err(ErrorKind::Timeout | ErrorKind::Unanswered)) {
            let (service, response) = (outcome.service_nanos(), outcome.response_nanos());
            record(&mut class_record.service, service);
            record(&mut class_record.response, response);
            record(&mut self.second.response, response);
            let outliers = &mut self.second.outliers;
            if outliers.len() < OUTLIERS_MAX || outliers.last().is_some_and(|last| last.latency_nanos < response) {
                let outlier = Outlier {
                    at_nanos: outcome.done_nanos,
                    latency_nanos: response,
                    class: index as u16,
                    status,
                };
                let place = outliers.partition_point(|other| other.latency_nanos >= response);
                outliers.insert(place, outlier);
                outliers.truncate(OUTLIERS_MAX);
            }
        }
        if let Some(log) = &mut self.log {
            log.write(index, outcome, judged.error());
        }
    }

    /// Hands over the finished seconds. It must be called at least ten times a second.
    pub(crate) fn advance(&mut self, now_nanos: u64) {
        let now_second = now_nanos / NANOS_PER_SECOND;
        if now_second > self.second.second {
            self.hand_over(now_second);
        }
    }

    pub(crate) fn set_connections(&mut self, open: usize) {
        self.second.connections = open as u64;
    }

    fn hand_over(&mut self, next: u64) {
        let connections = self.second.connections;
        let slice = std::mem::replace(&mut self.second, SecondSlice::new(next));
        self.second.connections = connections;
        self.mailbox.leave(slice, next);
    }

    /// Hands over the rest.
    pub(crate) fn finish(&mut self) {
        self.hand_over(u64::MAX);
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}
