//! Starts the workers, follows them second by second, and adds up their results.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::options::Options;
use super::resolver::Resolver;
use super::worker::{Ended, Orders, Worker};
use crate::Source;
use crate::error::{Doing as _, Error, Result};
use crate::measure::examples;
use crate::measure::recorder::Mailbox;
use crate::measure::{
    Counters, GeneratorUsage, Latencies, Recorder, RequestLog, Sample, Second, Series, ThreadUsage, latencies,
};
use crate::report::{ClassReport, Report};

const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The progress of a run, reported ten times a second.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The time since the start.
    pub elapsed: Duration,
    /// The sums up to the last finished second.
    pub counters: &'a Counters,
    /// The last finished second, if any.
    pub last_second: Option<&'a Second>,
}

/// A finished run: its report, and the sources with the data they gathered.
#[derive(Debug)]
pub struct Run<S> {
    /// The report of all workers together.
    pub report: Report,
    /// The sources, in the given order.
    pub sources: Vec<S>,
}

/// The results of a worker.
struct Finished<S> {
    source: S,
    recorder: Recorder,
    ended: Ended,
    unsent: u64,
    elapsed_nanos: u64,
    usage: ThreadUsage,
}

/// Drives `sources` against the target, with a worker thread for each. It ends when they are done, the time is up, or the run is stopped.
pub fn run<S: Source>(options: &Options, sources: Vec<S>) -> Result<Run<S>> {
    run_watched(options, sources, |_| {})
}

/// Does the same as [`run`], and passes the progress to `watch` ten times a second.
pub fn run_watched<S: Source>(
    options: &Options,
    sources: Vec<S>,
    mut watch: impl FnMut(&Progress<'_>),
) -> Result<Run<S>> {
    let resolver = Resolver::of(&options.target);
    run_resolving(options, resolver, sources, &mut watch)
}

fn run_resolving<S: Source>(
    options: &Options,
    resolver: Option<Arc<Resolver>>,
    sources: Vec<S>,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Result<Run<S>> {
    let count = sources.len();
    if count == 0 {
        return Err(Error::Option("a run needs at least one source".into()));
    }
    options.check(count)?;
    let log = options
        .log
        .as_ref()
        .map(|path| RequestLog::create(path, &options.classes))
        .transpose()?;
    let mailboxes: Vec<Arc<Mailbox>> = (0..count).map(|_| Arc::default()).collect();
    let mut workers = Vec::with_capacity(count);
    for (index, source) in sources.into_iter().enumerate() {
        let log = log.as_ref().map(RequestLog::another);
        let recorder = Recorder::new(options.classes.len(), mailboxes[index].clone(), log);
        workers.push((Orders::new(options, resolver.clone(), index, count)?, source, recorder));
    }
    let started_at = std::time::SystemTime::now();
    let mut series = Series::default();
    let finished = thread::scope(|scope| -> Result<Vec<Finished<S>>> {
        let (ready_sender, ready) = mpsc::sync_channel::<()>(count);
        let mut threads = Vec::with_capacity(count);
        for (index, (orders, source, recorder)) in workers.into_iter().enumerate() {
            let (go, wait_for_go) = mpsc::sync_channel::<Instant>(1);
            let ready = ready_sender.clone();
            let thread = thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn_scoped(scope, move || work(orders, source, recorder, ready, &wait_for_go))
                .doing(|| "start a worker thread".into())?;
            threads.push((thread, go));
        }
        drop(ready_sender);
        for _ in 0..count {
            if ready.recv().is_err() {
                break; // a worker could not start; its result says why
            }
        }
        let start = Instant::now();
        for (_, go) in &threads {
            let _ = go.send(start);
        }
        let mut counters = Counters::default();
        // Every worker holds a sender until it ends.
        while ready.recv_timeout(PROGRESS_EVERY) != Err(RecvTimeoutError::Disconnected) {
            let done = series.seconds.len();
            collect(&mailboxes, &mut series);
            for second in &series.seconds[done..] {
                counters.add(&second.counters);
            }
            watch(&Progress {
                elapsed: start.elapsed(),
                counters: &counters,
                last_second: series.seconds.last(),
            });
        }
        threads
            .into_iter()
            .map(|(thread, _)| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<Finished<S>>>>()
    })?;
    collect(&mailboxes, &mut series);
    Ok(add_up(options, started_at, finished, series))
}

fn work<S: Source>(
    orders: Orders,
    source: S,
    recorder: Recorder,
    alive: mpsc::SyncSender<()>,
    wait_for_go: &mpsc::Receiver<Instant>,
) -> Result<Finished<S>> {
    // Timers that fire up to 50 µs late would distort an open model.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut worker = Worker::new(orders, source, recorder)?;
    worker.connect_ahead()?;
    let _ = alive.send(());
    let start = wait_for_go
        .recv()
        .map_err(|_| Error::Option("the run was given up before its start".into()))?;
    let before = ThreadUsage::now();
    let (ended, unsent) = worker.drive(start)?;
    let elapsed_nanos = start.elapsed().as_nanos() as u64;
    let usage = ThreadUsage::now().since(before);
    let (source, recorder) = worker.into_parts();
    drop(alive);
    Ok(Finished {
        source,
        recorder,
        ended,
        unsent,
        elapsed_nanos,
        usage,
    })
}

/// Takes the workers' finished seconds, and completes the seconds that all workers have finished.
fn collect(mailboxes: &[Arc<Mailbox>], series: &mut Series) {
    let mut finished_before = u64::MAX;
    for mailbox in mailboxes {
        let (current, slices) = mailbox.take();
        finished_before = finished_before.min(current);
        for slice in &slices {
            series.add(slice);
        }
    }
    series.finish_before(finished_before);
}

fn add_up<S>(
    options: &Options,
    started_at: std::time::SystemTime,
    mut finished: Vec<Finished<S>>,
    series: Series,
) -> Run<S> {
    let elapsed_nanos = finished.iter().map(|worker| worker.elapsed_nanos).max().unwrap_or(0);
    let mut classes: Vec<ClassReport> = options.classes.iter().map(|name| ClassReport::new(name)).collect();
    let (mut lateness, mut own_delay) = (latencies(), latencies());
    let mut generator = GeneratorUsage::default();
    let (mut opened, mut unsent, mut ended) = (0, 0, Ended::SourceDone);
    for worker in &finished {
        for (class, part) in classes.iter_mut().zip(&worker.recorder.classes) {
            class.counters.add(&part.counters.counters());
            examples::add(&mut class.examples, &part.examples);
            merge(&mut class.service, &part.service);
            merge(&mut class.response, &part.response);
        }
        merge(&mut lateness, &worker.recorder.lateness);
        merge(&mut own_delay, &worker.recorder.own_delay);
        generator.threads += 1;
        generator.cpu_nanos += worker.usage.cpu_nanos;
        generator.run_delay_nanos += worker.usage.run_delay_nanos;
        let share = worker.usage.cpu_nanos as f64 / worker.elapsed_nanos.max(1) as f64;
        generator.busiest_share = generator.busiest_share.max(share.min(1.0));
        opened += worker.recorder.opened;
        unsent += worker.unsent;
        if worker.ended != Ended::SourceDone {
            ended = worker.ended;
        }
    }
    let ended = match ended {
        Ended::SourceDone => "all requests done",
        Ended::TimeUp => "time up",
        Ended::Stopped => "stopped",
        Ended::NoAddress => "the target's name has no address (DNS)",
        Ended::NobodyThere => "nobody answered at the target's address",
        Ended::NoHttp2 => "the target speaks no HTTP/2",
    };
    let mut report = Report::new(options, started_at, elapsed_nanos, ended, classes, series)
        .with_generator(generator, lateness, own_delay, opened, unsent);
    report.requests = Sample::merged(
        finished
            .iter_mut()
            .map(|worker| std::mem::take(&mut worker.recorder.sample)),
    );
    if let Some(reason) = finished.iter().find_map(|worker| worker.recorder.tls_failure.as_ref()) {
        report.warnings.push(format!(
            "TLS failed first with: {reason}; --tls-roots FILE trusts further certificates, --insecure any"
        ));
    }
    Run {
        report,
        sources: finished.into_iter().map(|worker| worker.source).collect(),
    }
}

fn merge(into: &mut Latencies, other: &Latencies) {
    into.add(other).expect("all our histograms have one shape");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Closed, ErrorKind, Request, Target};
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// Starts a server that answers one request on each connection and closes it.
    fn one_answer_a_connection() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            }
        });
        address
    }

    fn requests(options: &Options, resolver: Arc<Resolver>, count: u64) -> Report {
        let source = Closed::new(Request::get("name", "/"), count);
        let run = run_resolving(options, Some(resolver), vec![source], &mut |_| {});
        run.unwrap().report
    }

    fn options() -> Options {
        let mut options = Options::new(Target::parse("http://name.invalid", false).unwrap());
        options.connections = 1;
        options
    }

    #[test]
    fn a_name_that_moves_during_a_run_is_followed_on_reconnect() {
        let (old, new) = (one_answer_a_connection(), one_answer_a_connection());
        let asked = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let noted = asked.clone();
        let resolver = Resolver::new(vec![old], Duration::ZERO, move || {
            noted.store(true, std::sync::atomic::Ordering::SeqCst);
            Ok(vec![new])
        });
        let mut options = options();
        options.target.addresses = vec![old];
        let report = requests(&options, resolver.clone(), 200);
        assert_eq!((report.counters.successes, report.counters.failures), (200, 0));
        assert!(asked.load(std::sync::atomic::Ordering::SeqCst));
        let mut version = 0;
        while version == 0 {
            // The last lookup may still be in progress.
            if let Some(addresses) = resolver.changed_since(&mut version) {
                assert_eq!(addresses, [new]);
            }
        }
    }

    #[test]
    fn a_name_that_vanishes_during_a_run_is_counted_as_dns() {
        let address = one_answer_a_connection();
        let resolver = Resolver::new(vec![address], Duration::ZERO, || Err(std::io::Error::other("gone")));
        let mut options = options();
        options.target.addresses = vec![address];
        options.duration = Some(Duration::from_secs(60));
        let stop = options.stop.clone();
        let mut watch = |progress: &Progress<'_>| {
            if progress.counters.errors.contains_key(&ErrorKind::Dns) {
                stop.now();
            }
        };
        let source = Closed::new(Request::get("name", "/"), u64::MAX);
        let report = run_resolving(&options, Some(resolver), vec![source], &mut watch)
            .unwrap()
            .report;
        assert_eq!(report.ended, "stopped");
        assert!(report.counters.successes > 0);
        assert_eq!(report.counters.failures, report.counters.errors[&ErrorKind::Dns]);
    }
}
