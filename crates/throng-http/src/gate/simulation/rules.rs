//! Our rule of admission held against those of the literature, on the same loop and under the same loads.
//!
//! All others share one queue and one turn; what differs is who is let in and who goes next:
//!
//! - *CoDel, adaptive LIFO* (Maurer, "Fail at Scale", ACM Queue 13(8), 2015): while the queue has not been empty for 100 ms nobody
//!   may have waited longer than 5 ms, otherwise 100 ms; and the newest goes first.
//! - *DAGOR* (Zhou et al., SoCC 2018): overloaded if the mean wait of a window (1 s or 2,000 requests) passes 20 ms; then 5 % fewer
//!   users are let in, otherwise 1 % more; a user is let in always or never.
//! - *Breakwater* (Cho et al., OSDI 2020): a pool of credits grows a little while the wait is below its target and shrinks with how
//!   far it is above. HTTP clients cannot be told their credits, so who comes without one is refused. The target is 40 % of the bound.
//! - *Netflix concurrency-limits* (`Gradient2Limit`, tolerance 1.5): as many in flight as the ratio of the usual latency to the latest allows.

use super::*;
use std::{collections::VecDeque, fmt::Write as _};

/// The loop's turn, as ours by default.
const TURN: Duration = Duration::from_millis(5);
const WALL_TURNS: u32 = 4;

/// Who may come in, and who goes next.
trait Rule {
    const NAME: &'static str;
    /// The newest goes first.
    fn is_last_in_first_out(&self) -> bool {
        false
    }
    /// Looks at the queue, before a turn: how many wait, and since when the first.
    fn look(&mut self, _now: Duration, _waiting: usize, _first: Option<Duration>) {}
    /// `in_flight` wait or are at work.
    fn lets_in(&mut self, request: &Request, in_flight: usize) -> bool;
    /// One that was let in begins to be executed after such a wait; `false`: it is refused after all.
    fn still_goes(&mut self, _now: Duration, _waited: Duration) -> bool {
        true
    }
    fn answered(&mut self, _took: Duration) {}
}

/// A queue under such a rule.
struct Under<R> {
    rule: R,
    waiting: VecDeque<Request>,
    refused: VecDeque<Request>,
    at_work: usize,
    began: (Duration, Duration),
}

impl<R: Rule> Under<R> {
    fn new(rule: R) -> Self {
        Self {
            rule,
            waiting: VecDeque::new(),
            refused: VecDeque::new(),
            at_work: 0,
            began: Default::default(),
        }
    }
}

impl<R: Rule> Discipline for Under<R> {
    fn begin(&mut self, machine: &Machine) {
        self.at_work = 0;
        self.began = (machine.now.get(), machine.cpu.get());
        let first = self.waiting.front().map(|first| first.sent);
        self.rule.look(machine.now.get(), self.waiting.len(), first);
    }

    fn come(&mut self, request: Request, _: &Machine) -> Option<Request> {
        let in_flight = self.waiting.len() + self.at_work;
        let queue = match self.rule.lets_in(&request, in_flight) {
            true => &mut self.waiting,
            false => &mut self.refused,
        };
        queue.push_back(request);
        None
    }

    fn next(&mut self, machine: &Machine) -> Option<Request> {
        let (now, cpu) = (machine.now.get(), machine.cpu.get());
        if cpu - self.began.1 >= TURN || now - self.began.0 >= TURN * WALL_TURNS {
            return None;
        }
        loop {
            let request = match self.rule.is_last_in_first_out() {
                true => self.waiting.pop_back(),
                false => self.waiting.pop_front(),
            }?;
            if self.rule.still_goes(now, now.saturating_sub(request.sent)) {
                self.at_work += 1;
                return Some(request);
            }
            self.refused.push_back(request);
        }
    }

    fn next_refused(&mut self, _: &Machine) -> Option<Request> {
        self.refused.pop_front()
    }

    fn end(&mut self) -> bool {
        !self.waiting.is_empty() || !self.refused.is_empty()
    }

    fn answered(&mut self, took: Duration) {
        self.rule.answered(took);
    }
}

#[derive(Default)]
struct CoDel {
    empty_at: Duration,
    has_stood: bool,
}

impl Rule for CoDel {
    const NAME: &'static str = "CoDel, adaptive LIFO";

    fn is_last_in_first_out(&self) -> bool {
        self.has_stood
    }

    fn look(&mut self, now: Duration, waiting: usize, _: Option<Duration>) {
        if waiting == 0 {
            self.empty_at = now;
        }
        self.has_stood = now.saturating_sub(self.empty_at) > MILLISECOND * 100;
    }

    fn lets_in(&mut self, _: &Request, _: usize) -> bool {
        true
    }

    fn still_goes(&mut self, _: Duration, waited: Duration) -> bool {
        waited <= MILLISECOND * if self.has_stood { 5 } else { 100 }
    }
}

struct Dagor {
    /// Of all users, the part that is let in.
    level: f64,
    window: (Duration, u32, Duration),
}

impl Default for Dagor {
    fn default() -> Self {
        Self {
            level: 1.0,
            window: Default::default(),
        }
    }
}

impl Rule for Dagor {
    const NAME: &'static str = "DAGOR";

    fn lets_in(&mut self, request: &Request, _: usize) -> bool {
        let priority = request.connection.wrapping_mul(2_654_435_761);
        f64::from(priority) <= self.level * f64::from(u32::MAX)
    }

    fn still_goes(&mut self, now: Duration, waited: Duration) -> bool {
        let (began, count, sum) = &mut self.window;
        *count += 1;
        *sum += waited;
        if *count >= 2_000 || now.saturating_sub(*began) >= Duration::from_secs(1) {
            let is_overloaded = *sum / *count > MILLISECOND * 20;
            self.level = (self.level * if is_overloaded { 0.95 } else { 1.01 }).min(1.0);
            self.window = (now, 0, Duration::ZERO);
        }
        true
    }
}

struct Breakwater {
    credits: f64,
    clients: f64,
}

impl Rule for Breakwater {
    const NAME: &'static str = "Breakwater";

    fn look(&mut self, now: Duration, _: usize, first: Option<Duration>) {
        let target = WAIT_MAX.as_secs_f64() * 0.4;
        let waited = first.map_or(0.0, |first| now.saturating_sub(first).as_secs_f64());
        if waited < target {
            self.credits += (self.clients * 0.001).max(1.0);
        } else {
            self.credits *= 1.0 - (0.02 * (waited - target) / target).min(0.5);
        }
        self.credits = self.credits.clamp(1.0, self.clients);
    }

    fn lets_in(&mut self, _: &Request, in_flight: usize) -> bool {
        (in_flight as f64) < self.credits
    }
}

struct Gradient {
    limit: f64,
    usual: f64,
}

impl Default for Gradient {
    fn default() -> Self {
        Self {
            limit: 20.0,
            usual: 0.0,
        }
    }
}

impl Rule for Gradient {
    const NAME: &'static str = "Netflix gradient";

    fn lets_in(&mut self, _: &Request, in_flight: usize) -> bool {
        (in_flight as f64) < self.limit
    }

    fn answered(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.usual += (took - self.usual) / if self.usual == 0.0 { 1.0 } else { 600.0 };
        if self.usual / took > 2.0 {
            self.usual *= 0.95;
        }
        let gradient = (1.5 * self.usual / took).clamp(0.5, 1.0);
        let limit = self.limit * gradient + self.limit.sqrt();
        self.limit = (self.limit * 0.8 + limit * 0.2).clamp(20.0, 20_000.0);
    }
}

/// What one rule came to.
struct Row {
    name: &'static str,
    goodput: f64,
    refused: f64,
    waited: Duration,
    told: Duration,
}

impl Row {
    fn new(name: &'static str, mut outcome: Outcome, capacity: f64) -> Self {
        let asked = outcome.served.len() + outcome.refused.len();
        Self {
            name,
            goodput: outcome.goodput() / capacity,
            refused: outcome.refused.len() as f64 / asked as f64,
            waited: Outcome::p99(&mut outcome.served),
            told: Outcome::p99(&mut outcome.refused),
        }
    }
}

fn under<R: Rule>(rule: R, scenario: Scenario, capacity: f64) -> Row {
    Row::new(R::NAME, Simulation::new(scenario, Under::new(rule)).run(), capacity)
}

/// All rules on one load; ours is the first.
fn all(scenario: Scenario) -> Vec<Row> {
    let capacity = capacity(scenario);
    let scenario = match scenario.load {
        Load::Closed => scenario,
        Load::Open(times) => Scenario {
            load: Load::Open(capacity * times),
            ..scenario
        },
    };
    let clients = f64::from(scenario.connections);
    vec![
        Row::new("ours", run(scenario), capacity),
        under(CoDel::default(), scenario, capacity),
        under(Dagor::default(), scenario, capacity),
        under(
            Breakwater {
                credits: clients,
                clients,
            },
            scenario,
            capacity,
        ),
        under(Gradient::default(), scenario, capacity),
    ]
}

fn table(title: &str, rows: &[Row]) -> String {
    let mut text = format!("{title}\n");
    for row in rows {
        let _ = writeln!(
            text,
            "    {:<22} goodput {:.2}  refused {:>5.1} %  p99 {:>6.1} ms  refused p99 {:>6.1} ms",
            row.name,
            row.goodput,
            row.refused * 100.0,
            row.waited.as_secs_f64() * 1e3,
            row.told.as_secs_f64() * 1e3,
        );
    }
    text
}

/// `cargo test -p throng-http --lib rules -- --nocapture` prints the comparison.
#[test]
fn no_rule_of_the_literature_gives_more_goodput_within_the_bound() {
    let loads = [
        ("closed, 10,000 of 12 µs", Load::Closed, 12),
        ("open 2 ×, 12 µs", Load::Open(2.0), 12),
        ("open 2 ×, 100 µs", Load::Open(2.0), 100),
        ("open 10 ×, 100 µs", Load::Open(10.0), 100),
        ("open 2 ×, 1 ms", Load::Open(2.0), 1_000),
    ];
    for (load_name, load, cost_us) in loads {
        for (name, stolen, pauses) in &CIRCUMSTANCES[..3] {
            let scenario = Scenario {
                connections: 10_000,
                load,
                cost: MICROSECOND * cost_us,
                stolen: *stolen,
                pauses: *pauses,
                ..SCENARIO
            };
            let rows = all(scenario);
            let text = table(&format!("{load_name}, {name}"), &rows);
            println!("{text}");
            let slack = pauses.unwrap_or_default().1 * 4 + MILLISECOND * 50;
            assert!(rows[0].waited < WAIT_MAX + slack, "{text}");
            if matches!(load, Load::Closed) {
                assert_eq!(rows[0].refused, 0.0, "{text}");
            }
            let best = rows[1..].iter().filter(|row| row.waited < WAIT_MAX + slack);
            let best = best.map(|row| row.goodput).fold(0.0, f64::max);
            assert!(rows[0].goodput > best - 0.05, "{text}");
        }
    }
}
