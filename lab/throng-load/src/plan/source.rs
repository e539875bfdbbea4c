//! Users that go through the phases: a [`Source`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use super::check;
use super::compile::{Compiled, CompiledRequest, CompiledStep, Crowd, Phase, Start, ends_with};
use super::data::Drawer;
use super::model::{OnFailure, Per};
use crate::{Arrivals, Next, Outcome, Shot, Source, Verdict};

const NOT_YET: u64 = u64::MAX;
/// The time between two checks if another worker has ended a phase.
const LOOK_NANOS: u64 = 1_000_000;
/// The most active users of an open phase in a worker. Further ones wait and are late.
const UNDER_WAY_MAX: usize = 100_000;
/// The most draws for a value that must differ from another one.
const DRAWS_MAX: usize = 32;

/// The progress of the phases, shared by all workers.
#[derive(Debug)]
pub(crate) struct Board {
    started_nanos: Vec<AtomicU64>,
    users_done: Vec<AtomicU64>,
}

impl Board {
    pub(crate) fn new(phases: usize) -> Self {
        let numbers = |value| (0..phases).map(|_| AtomicU64::new(value)).collect();
        Board {
            started_nanos: numbers(NOT_YET),
            users_done: numbers(0),
        }
    }

    fn users_done(&self, phase: usize) -> u64 {
        self.users_done[phase].load(Ordering::Acquire)
    }
}

/// A worker's share of a plan's users.
#[derive(Debug)]
pub(crate) struct PlanSource {
    plan: Arc<Compiled>,
    board: Arc<Board>,
    worker: u64,
    workers: u64,
    random: SmallRng,
    users: Vec<User>,
    vacant: Vec<u32>,
    ready: VecDeque<u32>,
    sleeping: BinaryHeap<Reverse<(u64, u32)>>,
    /// The phases that this worker has not started yet, in order.
    waiting: Vec<usize>,
    arriving: Vec<Arriving>,
    in_flight: usize,
}

#[derive(Debug)]
struct Arriving {
    phase: usize,
    arrivals: Arrivals,
    due_nanos: Option<u64>,
    next_number: u64,
}

#[derive(Debug, Default)]
struct User {
    phase: usize,
    number: u64,
    step: usize,
    times_left: u64,
    iterations_left: u64,
    until_nanos: u64,
    tries: u32,
    ready_nanos: u64,
    open: bool,
    values: Vec<String>,
    drawn: Vec<bool>,
    own_cursors: Vec<u64>,
    request: Vec<u8>,
    body: Vec<u8>,
}

impl PlanSource {
    pub(crate) fn new(plan: Arc<Compiled>, board: Arc<Board>, worker: usize, workers: usize) -> Self {
        let waiting = (0..plan.phases.len()).collect();
        let random = SmallRng::seed_from_u64(plan.seed ^ (worker as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        PlanSource {
            plan,
            board,
            worker: worker as u64,
            workers: workers as u64,
            random,
            users: Vec::new(),
            vacant: Vec::new(),
            ready: VecDeque::new(),
            sleeping: BinaryHeap::new(),
            waiting,
            arriving: Vec::new(),
            in_flight: 0,
        }
    }

    /// Returns a source for each of `workers`.
    pub(crate) fn split(plan: Compiled, workers: usize) -> Vec<PlanSource> {
        let plan = Arc::new(plan);
        let board = Arc::new(Board::new(plan.phases.len()));
        (0..workers)
            .map(|worker| PlanSource::new(plan.clone(), board.clone(), worker, workers))
            .collect()
    }

    /// Starts the phases that may start. Returns the time of the next check, if a clock decides.
    fn start_phases(&mut self, now_nanos: u64) -> Option<u64> {
        let mut look = None;
        let mut index = 0;
        while index < self.waiting.len() {
            let phase = self.waiting[index];
            let due = match self.plan.phases[phase].start {
                Start::At(nanos) => nanos,
                Start::After { phase, users_done } if self.board.users_done(phase) >= users_done => 0,
                Start::After { .. } => NOT_YET,
            };
            if due <= now_nanos {
                self.waiting.remove(index);
                self.start(phase, now_nanos);
            } else {
                if due != NOT_YET {
                    look = Some(look.map_or(due, |other: u64| other.min(due)));
                }
                index += 1;
            }
        }
        look
    }

    fn start(&mut self, phase: usize, now_nanos: u64) {
        let started = &self.board.started_nanos[phase];
        let started = match started.compare_exchange(NOT_YET, now_nanos, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => now_nanos,
            Err(earlier) => earlier,
        };
        let plan = self.plan.clone();
        match &plan.phases[phase].crowd {
            Crowd::Closed { users, ramp_nanos, .. } => {
                let mut number = self.worker;
                while number < *users {
                    let delay = (u128::from(*ramp_nanos) * u128::from(number) / u128::from(*users)) as u64;
                    self.spawn(phase, number, started, started + delay, false);
                    number += self.workers;
                }
            }
            Crowd::Open { arrivals, .. } => {
                let mut arrivals = arrivals
                    .share(self.worker as usize, self.workers as usize)
                    .starting_at(started);
                let due_nanos = arrivals.next();
                self.arriving.push(Arriving {
                    phase,
                    arrivals,
                    due_nanos,
                    next_number: self.worker,
                });
            }
        }
    }

    fn spawn(&mut self, phase: usize, number: u64, started_nanos: u64, ready_nanos: u64, open: bool) {
        let index = self.vacant.pop().unwrap_or_else(|| {
            let slots = self.plan.slots;
            let data = self.plan.data.len();
            self.users.push(User {
                values: vec![String::new(); slots],
                drawn: vec![false; data],
                own_cursors: vec![0; data],
                ..User::default()
            });
            self.users.len() as u32 - 1
        });
        let (iterations, until_nanos) = match self.plan.phases[phase].crowd {
            Crowd::Closed {
                repeat, duration_nanos, ..
            } => (repeat, started_nanos.saturating_add(duration_nanos)),
            Crowd::Open { .. } => (1, NOT_YET),
        };
        let user = &mut self.users[index as usize];
        user.phase = phase;
        user.number = number;
        user.iterations_left = iterations;
        user.until_nanos = until_nanos;
        user.ready_nanos = ready_nanos;
        user.open = open;
        user.own_cursors.fill(0);
        user.drawn.fill(false);
        user.values.iter_mut().for_each(String::clear);
        self.begin_iteration(index, ready_nanos);
    }

    /// Starts the user's next iteration, or ends the user if none is left.
    fn begin_iteration(&mut self, index: u32, now_nanos: u64) {
        let plan = self.plan.clone();
        let user = &mut self.users[index as usize];
        if user.iterations_left == 0 || now_nanos >= user.until_nanos {
            return self.leave(index);
        }
        if user.iterations_left != u64::MAX {
            user.iterations_left -= 1;
        }
        forget(user, &plan, Per::Iteration);
        self.go_to(index, 0, now_nanos);
    }

    /// Moves the user to a step: to its request, over its pause, or to the next iteration.
    fn go_to(&mut self, index: u32, mut step: usize, now_nanos: u64) {
        let plan = self.plan.clone();
        let user = &mut self.users[index as usize];
        let phase = &plan.phases[user.phase];
        let mut ready_nanos = now_nanos;
        while let Some(next) = phase.steps.get(step) {
            match next {
                CompiledStep::Pause(nanos) => ready_nanos = ready_nanos.saturating_add(*nanos),
                CompiledStep::Request { times: 0, .. } => {}
                CompiledStep::Request { times, .. } => {
                    user.step = step;
                    user.times_left = *times;
                    user.tries = 0;
                    return self.wait(index, ready_nanos);
                }
            }
            step += 1;
        }
        if ready_nanos > now_nanos {
            // The pause is the last step. The next iteration begins after it.
            user.step = step;
            user.times_left = 0;
            self.sleeping.push(Reverse((ready_nanos, index)));
            return;
        }
        self.begin_iteration(index, now_nanos);
    }

    fn wait(&mut self, index: u32, ready_nanos: u64) {
        self.users[index as usize].ready_nanos = ready_nanos;
        self.sleeping.push(Reverse((ready_nanos, index)));
    }

    fn leave(&mut self, index: u32) {
        let phase = self.users[index as usize].phase;
        self.vacant.push(index);
        self.board.users_done[phase].fetch_add(1, Ordering::AcqRel);
    }

    /// Adds the users that are due, and wakes those whose pause is over.
    fn wake(&mut self, now_nanos: u64) {
        for place in 0..self.arriving.len() {
            while let Some(due) = self.arriving[place].due_nanos.filter(|&due| due <= now_nanos) {
                if self.users.len() - self.vacant.len() >= UNDER_WAY_MAX {
                    break;
                }
                let arriving = &mut self.arriving[place];
                let (phase, number) = (arriving.phase, arriving.next_number);
                arriving.next_number += self.workers;
                arriving.due_nanos = arriving.arrivals.next();
                self.spawn(phase, number, due, due, true);
            }
        }
        while let Some(&Reverse((due, index))) = self.sleeping.peek() {
            if due > now_nanos {
                break;
            }
            self.sleeping.pop();
            if self.users[index as usize].times_left == 0 {
                self.begin_iteration(index, due.max(now_nanos));
            } else {
                self.ready.push_back(index);
            }
        }
    }

    fn write_request(&mut self, index: u32) -> u16 {
        let user = &mut self.users[index as usize];
        let phase = &self.plan.phases[user.phase];
        let CompiledStep::Request { request, class, .. } = &phase.steps[user.step] else {
            return 0;
        };
        if user.tries == 0 {
            let drawer = Drawer {
                user: user.number,
                users: phase.users(),
            };
            for &data in &request.needs {
                if !std::mem::replace(&mut user.drawn[data], true) {
                    let source = &self.plan.data[data];
                    let first = self.plan.data_slots[data];
                    for _ in 0..DRAWS_MAX {
                        source.draw(
                            &self.plan.data,
                            drawer,
                            &mut user.own_cursors[data],
                            &mut self.random,
                            &mut user.values[first..first + source.fields.len()],
                        );
                        let other = source.unlike.map(|other| self.plan.data_slots[other]);
                        if other.is_none_or(|other| user.values[first] != user.values[other]) {
                            break;
                        }
                    }
                }
            }
            fill(request, user);
        }
        user.tries += 1;
        *class
    }

    /// Moves a user on after the final outcome of a request.
    fn advance(&mut self, index: u32, success: bool, now_nanos: u64) {
        let plan = self.plan.clone();
        let user = &mut self.users[index as usize];
        let phase: &Phase = &plan.phases[user.phase];
        forget(user, &plan, Per::Request);
        user.times_left -= 1;
        user.tries = 0;
        let ready_nanos = now_nanos.saturating_add(phase.think_nanos);
        if now_nanos >= user.until_nanos {
            self.leave(index);
        } else if !success && phase.on_failure == OnFailure::NextIteration {
            let after_last = phase.steps.len();
            self.go_to(index, after_last, ready_nanos);
        } else if user.times_left > 0 {
            self.wait(index, ready_nanos);
        } else {
            let next = user.step + 1;
            self.go_to(index, next, ready_nanos);
        }
    }

    fn all_done(&self) -> bool {
        self.waiting.is_empty()
            && (0..self.plan.phases.len()).all(|phase| self.board.users_done(phase) >= self.plan.phases[phase].users())
    }
}

/// Drops the values that were drawn for this duration only.
fn forget(user: &mut User, plan: &Compiled, over: Per) {
    for (drawn, data) in user.drawn.iter_mut().zip(&plan.data) {
        if ends_with(data.per, over) {
            *drawn = false;
        }
    }
}

fn fill(request: &CompiledRequest, user: &mut User) {
    use std::io::Write as _;
    user.request.clear();
    request.head.fill(&user.values, &mut user.request);
    if let Some(body) = &request.body {
        user.body.clear();
        body.fill(&user.values, &mut user.body);
        let _ = write!(user.request, "Content-Length: {}\r\n\r\n", user.body.len());
        user.request.extend_from_slice(&user.body);
    } else {
        user.request.extend_from_slice(b"\r\n");
    }
}

impl Source for PlanSource {
    fn next(&mut self, now_nanos: u64) -> Next<'_> {
        let mut look = if self.waiting.is_empty() {
            None
        } else {
            self.start_phases(now_nanos)
        };
        self.wake(now_nanos);
        if let Some(index) = self.ready.pop_front() {
            self.in_flight += 1;
            let class = self.write_request(index);
            let user = &self.users[index as usize];
            let intended_nanos = user.open.then_some(user.ready_nanos);
            return Next::Send(Shot {
                bytes: &user.request,
                tag: index.into(),
                intended_nanos,
                class,
            });
        }
        let mut sooner = |nanos: u64| look = Some(look.map_or(nanos, |other| other.min(nanos)));
        if let Some(Reverse((due, _))) = self.sleeping.peek() {
            sooner(*due);
        }
        for arriving in &self.arriving {
            if let Some(due) = arriving.due_nanos {
                sooner(due.max(now_nanos + 1));
            }
        }
        if self.workers > 1 && !self.waiting.is_empty() {
            sooner(now_nanos + LOOK_NANOS);
        }
        match look {
            Some(nanos) => Next::WaitUntil(nanos),
            None if self.in_flight > 0 => Next::WaitForAnswer,
            None if self.all_done() => Next::Done,
            None => Next::WaitUntil(now_nanos + LOOK_NANOS),
        }
    }

    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        self.in_flight -= 1;
        let index = tag as u32;
        let plan = self.plan.clone();
        let user = &mut self.users[index as usize];
        let CompiledStep::Request { request, .. } = &plan.phases[user.phase].steps[user.step] else {
            return Verdict::ByStatus;
        };
        let success = match &outcome.result {
            Ok(answer) => check::passes(request, answer),
            Err(_) => false,
        };
        if !success && user.tries < request.tries {
            let place = (user.tries as usize - 1).min(request.pauses_nanos.len().saturating_sub(1));
            let pause = request.pauses_nanos.get(place).copied().unwrap_or(0);
            self.wait(index, outcome.done_nanos.saturating_add(pause));
            return Verdict::Retried;
        }
        if let (true, Ok(answer)) = (success, &outcome.result) {
            for (slot, capture) in &request.captures {
                check::capture(capture, answer, &mut user.values[*slot]);
            }
        }
        self.advance(index, success, outcome.done_nanos);
        if success {
            Verdict::Success
        } else {
            Verdict::CheckFailed
        }
    }

    fn unsent(&self, now_nanos: u64) -> u64 {
        let due = |arriving: &Arriving| match arriving.due_nanos {
            Some(due) if due <= now_nanos => {
                1 + arriving.arrivals.clone().take_while(|&next| next <= now_nanos).count() as u64
            }
            _ => 0,
        };
        self.ready.len() as u64 + self.arriving.iter().map(due).sum::<u64>()
    }
}
