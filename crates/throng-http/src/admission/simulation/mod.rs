//! A simulation of a loop, its clients and its machine in virtual time: the effects of the queue and the policy.

mod rest;

use super::{
    clock::Clock,
    queue::{Entry, Queue},
};
use crate::limits::Limits;
use std::{
    cell::Cell,
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// The machine: CPU time passes as the loop works, and wall time as the machine allows.
struct Machine {
    start: Instant,
    now: Cell<Duration>,
    cpu: Cell<Duration>,
    /// The time for which other processes work, for each slice of the loop.
    stolen: Duration,
    slice_left: Cell<Duration>,
    /// The time between two pauses of the process, and their length.
    pauses: Option<(Duration, Duration)>,
    next_pause: Cell<Duration>,
}

/// The time for which the scheduler runs one process before it considers another.
const SLICE: Duration = Duration::from_millis(3);

impl Machine {
    fn new(stolen: Duration, pauses: Option<(Duration, Duration)>) -> Self {
        Self {
            start: Instant::now(),
            now: Cell::default(),
            cpu: Cell::default(),
            stolen,
            slice_left: Cell::new(SLICE),
            pauses,
            next_pause: Cell::new(pauses.map_or(Duration::MAX, |(every, _)| every)),
        }
    }

    fn work(&self, mut cpu: Duration) {
        self.cpu.set(self.cpu.get() + cpu);
        while cpu >= self.slice_left.get() {
            cpu -= self.slice_left.get();
            self.now.set(self.now.get() + self.slice_left.get() + self.stolen);
            self.slice_left.set(SLICE);
        }
        self.now.set(self.now.get() + cpu);
        self.slice_left.set(self.slice_left.get() - cpu);
        if let Some((every, pause)) = self.pauses
            && self.now.get() >= self.next_pause.get()
        {
            self.now.set(self.now.get() + pause);
            self.next_pause.set(self.now.get() + every);
        }
    }
}

impl Clock for Machine {
    fn now(&self) -> Instant {
        self.start + self.now.get()
    }

    fn cpu(&self) -> Duration {
        self.cpu.get()
    }
}

/// A request of a connection, with the time it was sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    sent: Duration,
    connection: u32,
    is_task: bool,
}

impl Entry for Request {
    fn is_gone(&self) -> bool {
        false
    }

    fn is_task(&self) -> bool {
        self.is_task
    }

    fn may_wait(&self) -> bool {
        true
    }
}

/// The load of the clients.
#[derive(Clone, Copy)]
enum Load {
    /// Each connection sends the next request as soon as it has its answer, even a refusal.
    Closed,
    /// Requests per second over all connections. A connection without its answer sends the next request after it.
    Open(f64),
}

#[derive(Clone, Copy)]
struct Scenario {
    connections: u32,
    load: Load,
    cost: Duration,
    refusal: Duration,
    /// Requests are tasks, and reading each takes this long before admission. They are answered after the others.
    reading: Option<Duration>,
    stolen: Duration,
    pauses: Option<(Duration, Duration)>,
    /// A period, the part at its end in which requests cost more, and the factor.
    dear: Option<(Duration, Duration, u32)>,
    lasts: Duration,
}

const SCENARIO: Scenario = Scenario {
    connections: 256,
    load: Load::Closed,
    cost: Duration::from_micros(12),
    refusal: Duration::from_micros(6),
    reading: None,
    stolen: Duration::ZERO,
    pauses: None,
    dear: None,
    lasts: Duration::from_secs(5),
};

/// The times of all answers of a run.
#[derive(Default)]
struct Outcome {
    served: Vec<Duration>,
    refused: Vec<Duration>,
    lasted: Duration,
}

impl Outcome {
    fn goodput(&self) -> f64 {
        self.served.len() as f64 / self.lasted.as_secs_f64()
    }

    fn p99(times: &mut [Duration]) -> Duration {
        times.sort_unstable();
        times.get(times.len() * 99 / 100).copied().unwrap_or_default()
    }
}

/// The cost of a batch beside its requests: the commit, a look at the sockets.
const BATCH_COST: Duration = Duration::from_micros(60);

struct Simulation {
    scenario: Scenario,
    machine: Machine,
    queue: Queue<Request>,
    to_come: BinaryHeap<Reverse<Request>>,
    outcome: Outcome,
    has_waiting: bool,
    /// The first connection of those that send no more requests.
    leaves_from: u32,
}

impl Simulation {
    fn new(scenario: Scenario) -> Self {
        let mut to_come = BinaryHeap::new();
        for connection in 0..scenario.connections {
            let sent = match scenario.load {
                Load::Closed => MICROSECOND * connection,
                Load::Open(rate) => Duration::from_secs_f64(f64::from(connection) / rate),
            };
            to_come.push(Reverse(Request {
                sent,
                connection,
                is_task: scenario.reading.is_some(),
            }));
        }
        Self {
            machine: Machine::new(scenario.stolen, scenario.pauses),
            queue: Queue::new(&Limits::default(), Instant::now()),
            scenario,
            to_come,
            outcome: Outcome::default(),
            has_waiting: false,
            leaves_from: u32::MAX,
        }
    }

    fn executes(&self) {
        let times = match self.scenario.dear {
            Some((every, lasts, times)) => {
                let now = self.machine.now.get().as_nanos() % every.as_nanos();
                if now + lasts.as_nanos() >= every.as_nanos() {
                    times
                } else {
                    1
                }
            }
            None => 1,
        };
        self.machine.work(self.scenario.cost * times);
    }

    /// Lets a connection send its next request after an answer.
    fn asks_again(&mut self, request: Request) {
        if request.connection >= self.leaves_from {
            return;
        }
        let now = self.machine.now.get();
        let sent = match self.scenario.load {
            Load::Closed => now + MICROSECOND * 50,
            Load::Open(rate) => {
                let due = request.sent + Duration::from_secs_f64(f64::from(self.scenario.connections) / rate);
                due.max(now + MICROSECOND * 50)
            }
        };
        self.to_come.push(Reverse(Request { sent, ..request }));
    }

    /// Admits a request at once, lets it wait, or refuses it.
    fn come(&mut self, request: Request) -> Option<Request> {
        if self.queue.goes_at_once(&self.machine) {
            return Some(request);
        }
        if self.queue.is_crowded() {
            self.queue.refuse(request);
        } else {
            self.queue.push(request);
        }
        None
    }

    fn batch(&mut self) {
        if !self.has_waiting
            && let Some(Reverse(next)) = self.to_come.peek()
        {
            self.machine.now.set(self.machine.now.get().max(next.sent));
        }
        self.machine.work(BATCH_COST);
        self.queue.begin(&self.machine);
        while let Some(excess) = self.queue.pop_excess() {
            self.queue.refuse(excess);
        }
        while let Some(recalled) = self.queue.pop_recalled() {
            self.queue.push(recalled);
        }
        let (seen, mut gone) = (self.machine.now.get(), Vec::new());
        while let Some(Reverse(request)) = self.to_come.peek().copied()
            && request.sent <= seen
        {
            self.to_come.pop();
            self.machine.work(self.scenario.reading.unwrap_or_default());
            if let Some(request) = self.come(request) {
                self.executes();
                gone.push(request);
            }
        }
        let mut tasks = 0;
        while let Some(request) = self.queue.pop(&self.machine) {
            match request.is_task {
                true => tasks += 1,
                false => self.executes(),
            }
            gone.push(request);
        }
        let mut refused = Vec::new();
        while let Some(request) = self.queue.pop_refused(&self.machine) {
            if !request.is_task {
                self.machine.work(self.scenario.refusal);
            }
            refused.push(request);
        }
        self.has_waiting = self.queue.end();
        (0..tasks).for_each(|_| self.executes());
        for request in refused {
            if request.is_task {
                self.machine.work(self.scenario.refusal);
            }
            self.outcome.refused.push(self.machine.now.get() - request.sent);
            self.asks_again(request);
        }
        for request in gone {
            self.outcome.served.push(self.machine.now.get() - request.sent);
            self.asks_again(request);
        }
    }

    fn run(mut self) -> Outcome {
        while self.machine.now.get() < self.scenario.lasts {
            self.batch();
        }
        self.outcome.lasted = self.machine.now.get();
        self.outcome
    }
}

fn run(scenario: Scenario) -> Outcome {
    Simulation::new(scenario).run()
}

/// Returns the goodput with a few connections under the same circumstances.
fn capacity(scenario: Scenario) -> f64 {
    let few = Scenario {
        connections: 256,
        load: Load::Closed,
        ..scenario
    };
    run(few).goodput()
}

/// The disturbances of a loop: its name, the time of other processes, and the period and length of pauses.
type Circumstance = (&'static str, Duration, Option<(Duration, Duration)>);

const CIRCUMSTANCES: [Circumstance; 4] = [
    ("alone", Duration::ZERO, None),
    ("with a neighbour", SLICE, None),
    (
        "with short pauses",
        Duration::ZERO,
        Some((Duration::from_millis(200), Duration::from_millis(50))),
    ),
    (
        "with long pauses",
        Duration::ZERO,
        Some((Duration::from_secs(1), Duration::from_millis(600))),
    ),
];

/// Runs a scenario under all disturbances.
fn under_all(scenario: Scenario, judge: impl Fn(&str, Scenario, Outcome)) {
    for (name, stolen, pauses) in CIRCUMSTANCES {
        let scenario = Scenario {
            stolen,
            pauses,
            ..scenario
        };
        judge(name, scenario, run(scenario));
    }
}

#[test]
fn a_closed_population_served_in_time_is_never_refused() {
    for (connections, cost_us) in [
        (256, 12),
        (2_000, 12),
        (10_000, 12),
        (10_000, 20),
        (2_000, 100),
        (200, 1_000),
    ] {
        let scenario = Scenario {
            connections,
            cost: MICROSECOND * cost_us,
            ..SCENARIO
        };
        under_all(scenario, |name, scenario, outcome| {
            let goodput = outcome.goodput() / capacity(scenario);
            assert_eq!(outcome.refused.len(), 0, "{name}, {connections} of {cost_us} µs");
            assert!(goodput > 0.95, "{name}, {connections} of {cost_us} µs: {goodput}");
        });
    }
}

#[test]
fn tasks_are_served_though_refusing_them_is_dear() {
    for (connections, cost_us, reading_us) in [
        (2_000, 6, 6),
        (10_000, 6, 6),
        (10_000, 6, 15),
        (2_000, 50, 50),
        (500, 500, 50),
    ] {
        let scenario = Scenario {
            connections,
            cost: MICROSECOND * cost_us,
            reading: Some(MICROSECOND * reading_us),
            ..SCENARIO
        };
        let work = MICROSECOND * connections * (cost_us + reading_us);
        under_all(scenario, |name, scenario, outcome| {
            let capacity = capacity(scenario);
            let said = format!("{name}, {connections} of {cost_us} + {reading_us} µs");
            if work * 2 < WAIT_MAX || (work < WAIT_MAX && scenario.stolen.is_zero()) {
                let (goodput, refused) = (outcome.goodput() / capacity, outcome.refused.len());
                assert!(goodput > 0.9, "{said}: {goodput}");
                assert!(refused * 20 < outcome.served.len(), "{said}: {refused} refused");
            }
            for times in [2.0, 10.0] {
                let outcome = run(Scenario {
                    connections: 10_000,
                    load: Load::Open(capacity * times),
                    ..scenario
                });
                let goodput = outcome.goodput() / capacity;
                assert!(goodput > 0.6, "{said}, {times} ×: {goodput}");
            }
        });
    }
}

#[test]
fn a_surge_costs_little_goodput_and_no_accepted_wait() {
    for cost_us in [12, 100, 1_000, 20_000] {
        for times in [0.5, 0.9, 1.5, 2.0, 5.0, 10.0] {
            let scenario = Scenario {
                connections: 10_000,
                cost: MICROSECOND * cost_us,
                ..SCENARIO
            };
            under_all(scenario, |name, scenario, _| {
                let capacity = capacity(scenario);
                let mut outcome = run(Scenario {
                    load: Load::Open(capacity * times),
                    ..scenario
                });
                let (goodput, pause) = (outcome.goodput() / capacity, scenario.pauses.unwrap_or_default().1);
                let said = format!("{name}, {cost_us} µs, {times} ×: {goodput:.2}");
                if pause < MILLISECOND * 100 {
                    assert!(goodput > 0.92 * times.min(1.0), "{said}");
                }
                // Accepted requests also wait through the pauses meanwhile.
                let waited = Outcome::p99(&mut outcome.served);
                let slack = pause * 4 + scenario.cost * 10 + MILLISECOND * 50;
                assert!(waited < WAIT_MAX + slack, "{said}: {waited:?}");
                assert!(
                    times > 1.0 || outcome.refused.is_empty(),
                    "{said}: {}",
                    outcome.refused.len()
                );
                // The check holds only if the refusals fit into their part of the CPU.
                let told = Outcome::p99(&mut outcome.refused);
                assert!(cost_us < 1_000 || told < slack + MILLISECOND * 50, "{said}: {told:?}");
            });
        }
    }
}

#[test]
fn dear_requests_served_in_time_are_not_refused() {
    for times in [10, 30] {
        let outcome = run(Scenario {
            connections: 10_000,
            dear: Some((Duration::from_secs(2), MILLISECOND * 200, times)),
            ..SCENARIO
        });
        assert_eq!(outcome.refused.len(), 0, "{times} ×");
        assert!(outcome.goodput() > 0.8 * capacity(SCENARIO), "{times} ×");
    }
}

#[test]
fn a_surge_is_forgotten_when_it_is_over() {
    let mut simulation = Simulation::new(Scenario {
        connections: 10_000,
        cost: MILLISECOND,
        ..SCENARIO
    });
    while simulation.machine.now.get() < Duration::from_secs(2) {
        simulation.batch();
    }
    assert!(simulation.outcome.refused.len() > 1_000);
    // All clients except a few leave once they have their answers.
    simulation.leaves_from = 20;
    let over = simulation.machine.now.get();
    while simulation.machine.now.get() < over + Duration::from_secs(1) {
        simulation.batch();
    }
    simulation.outcome = Outcome::default();
    while simulation.machine.now.get() < over + Duration::from_secs(2) {
        simulation.batch();
    }
    let outcome = &mut simulation.outcome;
    assert!(outcome.refused.is_empty() && outcome.served.len() > 900);
    assert!(Outcome::p99(&mut outcome.served) < MILLISECOND * 30);
}
