//! `throng-lab day --nodes N`: the day on several nodes. One is killed and started again, another is drained.

use anyhow::Context as _;
use registration::{
    reference::{Expected, Outcome},
    trace::Trace,
};
use servers::{Postgres, PostgresOptions};
use std::{
    collections::HashMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use throng_load::ResponseParts;

use crate::{
    http_client::{self, ANSWER_WAIT, Connection},
    service::{Launch, Service},
    units::count,
};
use throng_cli::{
    client::Client,
    demo::{DemoArguments, answers, pace::DayClock, rosters, steps},
    percent,
    progress::Progress,
};

/// The time for which a request is repeated.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// The state that the clients share.
struct Day<'a> {
    trace: &'a Trace,
    expected: &'a Expected,
    /// The speed relative to the recorded one; 0 is as fast as possible.
    speed: f64,
    begun: Instant,
    /// The requests of each client, in order. All requests of a section belong to the same client.
    lanes: Vec<Vec<usize>>,
    done: AtomicU64,
    again: AtomicU64,
    /// The addresses of the running nodes.
    addresses: Mutex<Vec<SocketAddr>>,
    wrong: Mutex<Vec<String>>,
    /// The longest wait of a request in microseconds, since this was last set to zero.
    longest: AtomicU64,
}

/// Replays the day. The exit code says whether every roster is as expected.
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
    let ports = ports(arguments.port, nodes)?;
    let launch = |node: u16| Launch {
        app: "registration",
        place: place.clone(),
        arguments: {
            let (port, admin) = ports[usize::from(node) - 1];
            let of = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
            let name = format!("node-{node}");
            [
                "--cluster",
                "--name",
                &name,
                "--listen",
                &of(port),
                "--admin-listen",
                &of(admin),
            ]
            .map(str::to_owned)
            .to_vec()
        },
        environment: Vec::new(),
        log: log.clone(),
        within: None,
    };
    let launches: Vec<Launch> = (1..=nodes).map(launch).collect();
    let mut services: Vec<Option<Service>> = launches
        .iter()
        .map(|launch| launch.start().map(Some))
        .collect::<anyhow::Result<_>>()?;
    for ((service, (_, admin)), number) in services.iter().flatten().zip(&ports).zip(1..) {
        say(&format!(
            "  node-{number}     http://{}   console http://127.0.0.1:{admin}/console",
            service.address
        ));
    }
    let address = services[0].as_ref().context("the first node runs")?.address;
    let client = Client::new(address, usize::from(arguments.clients))?;
    let opened = steps::open(&client, trace)?;
    say(&format!(
        "  opened     {} sections in {:.2} s",
        count(trace.sections.len() as u64),
        opened.as_secs_f64()
    ));
    let day = Day::new(trace, expected, arguments);
    day.set_addresses(&services);
    let begun = Instant::now();
    let total = trace.requests.len() as u64;
    let mut progress = Progress::new("replaying", total).with_clock(DayClock::start(trace, arguments.speed()));
    let mut told = Vec::new();
    thread::scope(|scope| -> anyhow::Result<()> {
        let clients: Vec<_> = (0..day.lanes.len())
            .map(|client| {
                let day = &day;
                scope.spawn(move || day.replay(client))
            })
            .collect();
        let mut steps = Vec::from([
            (total / 5, Step::Kill),
            (total * 2 / 5, Step::Start),
            (total * 3 / 5, Step::Drain),
            (total * 4 / 5, Step::Undrain),
        ]);
        // After a short day the remaining steps follow with no clients. The rosters must be right all the same.
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

/// Returns the ports of each node, for clients and for administration. They begin at the given port, or are free ones. A restarted node gets its
/// ports again.
fn ports(first: u16, nodes: u16) -> anyhow::Result<Vec<(u16, u16)>> {
    const ADMIN: u16 = 1_000;
    if first > 0 {
        let last = first.checked_add(ADMIN + nodes);
        last.context("--port leaves no room for the ports of all nodes and their consoles: choose one below 64000")?;
        return Ok((first..first + nodes).map(|port| (port, port + ADMIN)).collect());
    }
    // Held until all are known, so that no port is returned twice.
    let held: Vec<TcpListener> = (0..2 * nodes)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<std::io::Result<_>>()?;
    let ports: Vec<u16> = held
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect::<std::io::Result<_>>()?;
    Ok(ports.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// An operation on one node.
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
    fn new(trace: &'a Trace, expected: &'a Expected, arguments: &DemoArguments) -> Self {
        Self {
            trace,
            expected,
            speed: arguments.speed(),
            begun: Instant::now(),
            lanes: trace.lanes(usize::from(arguments.clients)),
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

    /// Makes the step at a node while the clients go on, and returns its effect in words.
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
        // The cost is known once the waiting requests are answered.
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

    /// Replays a client's requests in order, each at a random node and not before its time.
    fn replay(&self, client: usize) {
        let mut random = fastrand::Rng::with_seed(client as u64);
        let mut connections: HashMap<SocketAddr, Connection> = HashMap::new();
        for index in &self.lanes[client] {
            if self.speed > 0.0 {
                let due = self.trace.offset(*index).div_f64(self.speed);
                thread::sleep(due.saturating_sub(self.begun.elapsed()));
            }
            self.one(*index, &mut random, &mut connections);
            self.done.fetch_add(1, Ordering::Relaxed);
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
                    let answer = ResponseParts {
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
    ) -> std::io::Result<http_client::Response> {
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
