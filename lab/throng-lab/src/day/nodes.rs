//! `throng-lab day --nodes N`: the day on several nodes, of which one is killed, begins again, and one is drained.

use anyhow::Context as _;
use registration::{
    reference::{Expected, Outcome},
    trace::Trace,
};
use servers::{Postgres, PostgresOptions};
use std::{
    collections::HashMap,
    fs,
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use throng_load::Answer;

use crate::{
    http_client::{self, ANSWER_WAIT, Connection},
    service::{Launch, Service},
    units::count,
};
use throng_cli::{
    client::Client,
    demo::{DemoArguments, answers, rosters, steps},
    percent,
    progress::Progress,
};

/// The time for which a request is tried.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// The state that the clients share.
struct Day<'a> {
    trace: &'a Trace,
    expected: &'a Expected,
    /// The requests of each section, in order.
    sections: Vec<Vec<usize>>,
    next: AtomicUsize,
    done: AtomicU64,
    again: AtomicU64,
    /// The addresses of the nodes that run.
    addresses: Mutex<Vec<SocketAddr>>,
    wrong: Mutex<Vec<String>>,
    /// The longest that a request waited, in microseconds, since this was last set to zero.
    longest: AtomicU64,
}

/// Runs it; the exit code says whether every roster is what it must be.
pub(super) fn run(
    arguments: &DemoArguments,
    nodes: u16,
    trace: &Trace,
    expected: &Expected,
) -> anyhow::Result<ExitCode> {
    let say = |text: &str| arguments.say(text);
    fs::create_dir_all(&arguments.data).with_context(|| format!("cannot create {}", arguments.data.display()))?;
    let log = arguments.data.join("day-nodes.log");
    let server = match &arguments.journal {
        Some(_) => None,
        None => {
            Some(Postgres::start(PostgresOptions::default()).context("several nodes share a journal on PostgreSQL")?)
        }
    };
    let place = match (&server, &arguments.journal) {
        (Some(server), _) => server.url("postgres"),
        (None, Some(journal)) => {
            arguments.place(None)?;
            journal.clone()
        }
        (None, None) => String::new(),
    };
    let launch = |node: u16| Launch {
        app: "registration",
        place: place.clone(),
        arguments: ["--cluster", "--name", &format!("node-{node}")]
            .map(str::to_owned)
            .to_vec(),
        environment: Vec::new(),
        log: log.clone(),
        within: None,
    };
    let launches: Vec<Launch> = (1..=nodes).map(launch).collect();
    let mut services: Vec<Option<Service>> = launches
        .iter()
        .map(|launch| launch.start().map(Some))
        .collect::<anyhow::Result<_>>()?;
    for (service, number) in services.iter().flatten().zip(1..) {
        say(&format!("  node-{number}     http://{}", service.address));
    }
    let address = services[0].as_ref().context("the first node runs")?.address;
    let client = Client::new(address, usize::from(arguments.clients))?;
    let opened = steps::open(&client, trace)?;
    say(&format!(
        "  opened     {} sections in {:.2} s",
        count(trace.sections.len() as u64),
        opened.as_secs_f64()
    ));
    let day = Day::new(trace, expected);
    day.set_addresses(&services);
    let begun = Instant::now();
    let total = trace.requests.len() as u64;
    let mut progress = Progress::new("replaying", total);
    let mut told = Vec::new();
    thread::scope(|scope| -> anyhow::Result<()> {
        let clients: Vec<_> = (0..arguments.clients)
            .map(|number| {
                let day = &day;
                scope.spawn(move || day.replay(u64::from(number)))
            })
            .collect();
        let mut steps = Vec::from([
            (total / 5, Step::Kill),
            (total * 2 / 5, Step::Start),
            (total * 3 / 5, Step::Drain),
            (total * 4 / 5, Step::Undrain),
        ]);
        // What a short day leaves no time for befalls the nodes after it: the rosters are right all the same.
        while !steps.is_empty() || clients.iter().any(|client| !client.is_finished()) {
            let done = day.done.load(Ordering::Relaxed);
            progress.show(done);
            if steps.first().is_some_and(|(at, _)| done >= *at) {
                let (_, step) = steps.remove(0);
                day.longest.store(0, Ordering::Relaxed);
                told.push((step, day.make(step, &mut services, &launches)?));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    })?;
    drop(progress);
    for (step, what) in told {
        say(&format!("  {:<10} {what}", step.word()));
    }
    let elapsed = begun.elapsed();
    say(&format!(
        "  replayed   {} requests at {nodes} nodes in {:.2} s: {}/s; {} asked again under their keys",
        count(total),
        elapsed.as_secs_f64(),
        count((total as f64 / elapsed.as_secs_f64()) as u64),
        count(day.again.load(Ordering::Relaxed)),
    ));
    let found = rosters::read(&client, trace)?;
    let differences = expected.rosters.differences(&found);
    let wrong = day.wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    wrong.iter().take(5).for_each(|wrong| say(&format!("  ! {wrong}")));
    let is_right = differences.is_empty() && wrong.is_empty();
    say(&format!(
        "  compared   {} rosters, each asked of node-1: {} students, {}",
        count(trace.sections.len() as u64),
        count(found.enrolled() as u64),
        if is_right {
            "every one right".to_owned()
        } else {
            format!("{} differ", differences.len())
        }
    ));
    arguments.write_rosters(&found)?;
    let urls: Vec<String> = services
        .iter()
        .flatten()
        .map(|service| format!("http://{}", service.address))
        .collect();
    arguments.stay(&format!(
        "\n  The nodes stay up: {}\n  and share {place}",
        urls.join(", ")
    ))?;
    for service in services.into_iter().flatten() {
        service.end()?;
    }
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A blow to the nodes.
#[derive(Clone, Copy)]
enum Step {
    Kill,
    Start,
    Drain,
    Undrain,
}

impl Step {
    fn word(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Start => "started",
            Self::Drain => "drained",
            Self::Undrain => "undrained",
        }
    }
}

impl<'a> Day<'a> {
    fn new(trace: &'a Trace, expected: &'a Expected) -> Self {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut sections: Vec<Vec<usize>> = Vec::new();
        for (index, request) in trace.requests.iter().enumerate() {
            let place = *places.entry(&request.section).or_insert_with(|| {
                sections.push(Vec::new());
                sections.len() - 1
            });
            sections[place].push(index);
        }
        // The longest first: no client is left with a long one at the end.
        sections.sort_by_key(|section| std::cmp::Reverse(section.len()));
        Self {
            trace,
            expected,
            sections,
            next: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            again: AtomicU64::new(0),
            addresses: Mutex::default(),
            wrong: Mutex::default(),
            longest: AtomicU64::new(0),
        }
    }

    fn set_addresses(&self, services: &[Option<Service>]) {
        let addresses = services.iter().flatten().map(|service| service.address).collect();
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Has it befall a node while the clients go on; what came of it.
    fn make(&self, step: Step, services: &mut [Option<Service>], launches: &[Launch]) -> anyhow::Result<String> {
        let (second, last) = (1, services.len() - 1);
        let begun = Instant::now();
        match step {
            Step::Kill => {
                if let Some(service) = services[second].take() {
                    service.kill();
                }
                self.set_addresses(services);
            }
            Step::Start => {
                services[second] = Some(launches[second].start()?);
                self.set_addresses(services);
            }
            Step::Drain => launches[last].ask_cluster(&["drain", &format!("node-{}", last + 1)])?,
            Step::Undrain => launches[last].ask_cluster(&["undrain", &format!("node-{}", last + 1)])?,
        }
        // What it cost is seen once what waited is answered.
        thread::sleep(Duration::from_millis(700).saturating_sub(begun.elapsed()));
        let longest = Duration::from_micros(self.longest.load(Ordering::Relaxed));
        let node = match step {
            Step::Kill | Step::Start => second + 1,
            Step::Drain | Step::Undrain => last + 1,
        };
        Ok(format!(
            "node-{node}: no request waited longer than {:.0} ms",
            longest.as_secs_f64() * 1e3
        ))
    }

    /// A client: one section after the other, each request at a node chosen at random.
    fn replay(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut connections: HashMap<SocketAddr, Connection> = HashMap::new();
        while let Some(section) = self.sections.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            for index in section {
                self.one(*index, &mut random, &mut connections);
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn one(&self, index: usize, random: &mut fastrand::Rng, connections: &mut HashMap<SocketAddr, Connection>) {
        let request = &self.trace.requests[index];
        let command = if request.operation.is_drop() { "drop" } else { "add" };
        let path = format!("/api/section/{}/{command}", percent::segment(&request.section));
        let body = serde_json::json!({ "student": &*request.student }).to_string();
        let bytes = http_client::post(&path, Some(&format!("day-{index}")), &body);
        let begun = Instant::now();
        let found = loop {
            match self.ask_once(random, connections, &bytes) {
                Ok(answer) if !matches!(answer.status, 503 | 504) => {
                    let answer = Answer {
                        status: answer.status,
                        head: b"",
                        body: &answer.body,
                    };
                    break answers::outcome(request.operation, &answer);
                }
                _ if begun.elapsed() > PATIENCE => break Err("no answer".to_owned()),
                _ => {
                    self.again.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
            }
        };
        let waited = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.longest.fetch_max(waited, Ordering::Relaxed);
        let expected: Outcome = self.expected.outcomes[index];
        if found.as_ref().ok() != Some(&expected) {
            let wrong = format!("request {}: {found:?} instead of {expected:?}", index + 1);
            self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(wrong);
        }
    }

    fn ask_once(
        &self,
        random: &mut fastrand::Rng,
        connections: &mut HashMap<SocketAddr, Connection>,
        bytes: &[u8],
    ) -> std::io::Result<http_client::Answer> {
        let address = {
            let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            addresses[random.usize(..addresses.len())]
        };
        let mut connection = match connections.remove(&address) {
            Some(connection) => connection,
            None => Connection::open(address, ANSWER_WAIT)?,
        };
        let answer = connection.ask(bytes)?;
        connections.insert(address, connection);
        Ok(answer)
    }
}
