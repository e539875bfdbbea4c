//! A circuit breaker's decisions, without a clock: the caller passes the time since some start.

use std::time::Duration;

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Calls are counted over stretches of this length.
    pub window: Duration,
    /// The least number of calls in a stretch for it to be judged.
    pub calls_min: u32,
    /// The share of failed calls, in percent, from which it opens.
    pub failures_percent: u32,
    /// The number of failures in a row after which it opens, whatever the stretch; 0: they are not counted.
    pub failures_in_a_row: u32,
    /// The first time for which it stays open. The time doubles at each further opening, until it closes.
    pub pause_first: Duration,
    /// The longest time it stays open.
    pub pause_max: Duration,
    /// The number of calls that pass while it is half-open. All of them have to succeed.
    pub probes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            calls_min: 5,
            failures_percent: 50,
            failures_in_a_row: 0,
            pause_first: Duration::from_secs(1),
            pause_max: Duration::from_secs(30),
            probes: 1,
        }
    }
}

/// The treatment of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// Every call passes; failures are counted.
    Closed,
    /// A few calls pass as probes.
    HalfOpen,
    /// Every call is refused until the pause is over.
    Open,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The other side did its work, whatever the answer was.
    Succeeded,
    /// The other side cannot be reached, or is in trouble.
    Failed,
    /// The caller went away before the outcome was known.
    Abandoned,
}

/// The permission for one call. [`Circuit::end`] reports the outcome.
#[derive(Debug)]
#[must_use = "how the call ended has to be told"]
pub struct Permit {
    /// The phase in which it was given. The outcome says nothing about a later one.
    phase: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed {
        since: Duration,
        calls: u32,
        failures: u32,
        /// The failures since the last success, also of earlier stretches.
        in_a_row: u32,
    },
    /// `under_way + succeeded` never exceeds `probes`.
    HalfOpen {
        under_way: u32,
        succeeded: u32,
    },
    Open {
        until: Duration,
    },
}

/// A circuit breaker as a state machine.
#[derive(Clone, Debug)]
pub struct Circuit {
    settings: Settings,
    phase: Phase,
    /// The number of the phase. Outcomes of calls that began in an earlier phase do not count.
    number: u64,
    /// The number of openings since it was last closed.
    openings: u32,
}

impl Circuit {
    /// Returns a closed circuit.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::Closed {
                since: Duration::ZERO,
                calls: 0,
                failures: 0,
                in_a_row: 0,
            },
            number: 0,
            openings: 0,
        }
    }

    /// Returns the treatment of calls.
    #[must_use]
    pub fn state(&self) -> CircuitState {
        match self.phase {
            Phase::Closed { .. } => CircuitState::Closed,
            Phase::HalfOpen { .. } => CircuitState::HalfOpen,
            Phase::Open { .. } => CircuitState::Open,
        }
    }

    /// Requests permission for a call.
    ///
    /// # Errors
    /// The call must not be made. The error is the time after which to ask again.
    pub fn ask(&mut self, now: Duration) -> Result<Permit, Duration> {
        if let Phase::Open { until } = self.phase {
            if now < until {
                return Err(until - now);
            }
            self.enter(Phase::HalfOpen {
                under_way: 0,
                succeeded: 0,
            });
        }
        if let Phase::HalfOpen { under_way, succeeded } = &mut self.phase {
            if *under_way + *succeeded >= self.settings.probes.max(1) {
                return Err(self.settings.pause_first);
            }
            *under_way += 1;
        }
        Ok(Permit { phase: self.number })
    }

    /// Reports the end of a permitted call.
    pub fn end(&mut self, now: Duration, permit: Permit, outcome: Outcome) {
        if permit.phase != self.number {
            return;
        }
        match (&mut self.phase, outcome) {
            (Phase::Closed { .. }, Outcome::Abandoned) | (Phase::Open { .. }, _) => {}
            (
                Phase::Closed {
                    since,
                    calls,
                    failures,
                    in_a_row,
                },
                _,
            ) => {
                if now.saturating_sub(*since) >= self.settings.window {
                    (*since, *calls, *failures) = (now, 0, 0);
                }
                *calls = calls.saturating_add(1);
                *failures = failures.saturating_add(u32::from(outcome == Outcome::Failed));
                *in_a_row = match outcome {
                    Outcome::Failed => in_a_row.saturating_add(1),
                    Outcome::Succeeded | Outcome::Abandoned => 0,
                };
                let settings = &self.settings;
                let is_row = settings.failures_in_a_row > 0 && *in_a_row >= settings.failures_in_a_row;
                let share = u64::from(*failures) * 100;
                let is_too_much = share >= u64::from(*calls) * u64::from(settings.failures_percent.max(1));
                if is_row || *calls >= settings.calls_min.max(1) && is_too_much {
                    self.open(now);
                }
            }
            (Phase::HalfOpen { .. }, Outcome::Failed) => self.open(now),
            (Phase::HalfOpen { under_way, .. }, Outcome::Abandoned) => *under_way -= 1,
            (Phase::HalfOpen { under_way, succeeded }, Outcome::Succeeded) => {
                *under_way -= 1;
                *succeeded += 1;
                if *succeeded >= self.settings.probes.max(1) {
                    self.close(now);
                }
            }
        }
    }

    /// Closes the circuit, because the other side is known to be well, whatever failed before.
    pub fn close(&mut self, now: Duration) {
        self.openings = 0;
        self.enter(Phase::Closed {
            since: now,
            calls: 0,
            failures: 0,
            in_a_row: 0,
        });
    }

    fn open(&mut self, now: Duration) {
        let factor = 1_u32 << self.openings.min(16);
        let pause = self
            .settings
            .pause_first
            .saturating_mul(factor)
            .min(self.settings.pause_max);
        self.openings += 1;
        self.enter(Phase::Open {
            until: now.saturating_add(pause),
        });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: Settings = Settings {
        window: Duration::from_secs(10),
        calls_min: 4,
        failures_percent: 50,
        failures_in_a_row: 0,
        pause_first: Duration::from_secs(1),
        pause_max: Duration::from_secs(4),
        probes: 2,
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn call(circuit: &mut Circuit, now: Duration, outcome: Outcome) {
        let permit = circuit.ask(now).unwrap();
        circuit.end(now, permit, outcome);
    }

    #[test]
    fn it_opens_at_the_failure_share_after_enough_calls() {
        let mut circuit = Circuit::new(SETTINGS);
        for outcome in [Outcome::Failed, Outcome::Failed, Outcome::Succeeded] {
            call(&mut circuit, at(1), outcome);
            assert_eq!(circuit.state(), CircuitState::Closed);
        }
        call(&mut circuit, at(1), Outcome::Succeeded);
        assert_eq!(circuit.state(), CircuitState::Open, "two of four");
    }

    #[test]
    fn failures_in_a_row_open_it_across_stretches() {
        let mut circuit = Circuit::new(Settings {
            calls_min: 100,
            failures_in_a_row: 3,
            ..SETTINGS
        });
        let ends = [Outcome::Failed, Outcome::Failed, Outcome::Succeeded];
        for (number, outcome) in (0..).zip(ends.into_iter().chain([Outcome::Failed; 2])) {
            call(&mut circuit, at(number * 60), outcome);
            assert_eq!(circuit.state(), CircuitState::Closed);
        }
        call(&mut circuit, at(600), Outcome::Failed);
        assert_eq!(circuit.state(), CircuitState::Open);
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_restart_after_closing() {
        let mut circuit = Circuit::new(SETTINGS);
        (0..4).for_each(|_| call(&mut circuit, at(0), Outcome::Failed));
        let mut now = at(0);
        for pause in [1, 2, 4, 4] {
            assert_eq!(circuit.ask(now).unwrap_err(), at(pause));
            now += at(pause);
            call(&mut circuit, now, Outcome::Failed);
        }
        now += at(4);
        (0..2).for_each(|_| call(&mut circuit, now, Outcome::Succeeded));
        assert_eq!(circuit.state(), CircuitState::Closed);
        (0..4).for_each(|_| call(&mut circuit, now, Outcome::Failed));
        assert_eq!(circuit.ask(now).unwrap_err(), at(1));
    }

    #[test]
    fn an_abandoned_probe_gives_its_place_to_another() {
        let mut circuit = Circuit::new(SETTINGS);
        (0..4).for_each(|_| call(&mut circuit, at(0), Outcome::Failed));
        let permits = [circuit.ask(at(1)).unwrap(), circuit.ask(at(1)).unwrap()];
        assert!(circuit.ask(at(1)).is_err(), "no more than the probes");
        for permit in permits {
            circuit.end(at(1), permit, Outcome::Abandoned);
        }
        (0..2).for_each(|_| call(&mut circuit, at(1), Outcome::Succeeded));
        assert_eq!(circuit.state(), CircuitState::Closed);
    }

    #[test]
    fn closing_it_forgets_failures() {
        let mut circuit = Circuit::new(SETTINGS);
        (0..4).for_each(|_| call(&mut circuit, at(0), Outcome::Failed));
        let probe = circuit.ask(at(1)).unwrap();
        circuit.close(at(1));
        circuit.end(at(1), probe, Outcome::Failed);
        assert_eq!(
            circuit.state(),
            CircuitState::Closed,
            "how a call ended that began before says nothing"
        );
        (0..4).for_each(|_| call(&mut circuit, at(1), Outcome::Failed));
        assert_eq!(circuit.ask(at(1)).unwrap_err(), at(1), "the first pause again");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(u64),
        Ask,
        End(usize, Outcome),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let outcome = prop_oneof![
            Just(Outcome::Succeeded),
            Just(Outcome::Failed),
            Just(Outcome::Abandoned)
        ];
        let step = prop_oneof![
            (0_u64..3_000).prop_map(Step::Wait),
            Just(Step::Ask),
            (any::<usize>(), outcome).prop_map(|(which, outcome)| Step::End(which, outcome)),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn it_never_passes_too_many_calls_and_never_stays_shut(steps in steps()) {
            let mut circuit = Circuit::new(SETTINGS);
            let (mut now, mut under_way, mut probes) = (Duration::ZERO, Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Wait(millis) => now += Duration::from_millis(millis),
                    Step::Ask => {
                        let before = circuit.state();
                        match circuit.ask(now) {
                            Ok(permit) => {
                                if before == CircuitState::Open {
                                    probes = 0;
                                }
                                if circuit.state() == CircuitState::HalfOpen {
                                    probes += 1;
                                }
                                prop_assert!(circuit.state() != CircuitState::Open);
                                under_way.push(permit);
                            }
                            Err(retry_after) => {
                                prop_assert!(before != CircuitState::Closed, "a closed one lets all through");
                                prop_assert!(retry_after <= SETTINGS.pause_max && !retry_after.is_zero());
                            }
                        }
                    }
                    Step::End(which, outcome) if !under_way.is_empty() => {
                        let permit = under_way.swap_remove(which % under_way.len());
                        let (is_probe, before) = (permit.phase == circuit.number, circuit.state());
                        circuit.end(now, permit, outcome);
                        if is_probe && before == CircuitState::HalfOpen && outcome == Outcome::Abandoned {
                            probes -= 1;
                        }
                        prop_assert!(is_probe || before == circuit.state(), "what ended late changes nothing");
                    }
                    Step::End(..) => {}
                }
                if circuit.state() == CircuitState::HalfOpen {
                    prop_assert!(probes <= SETTINGS.probes);
                }
            }
            // Once all permits are returned and the other side has recovered, it closes.
            for permit in under_way {
                circuit.end(now, permit, Outcome::Abandoned);
            }
            now += SETTINGS.pause_max;
            for _ in 0..SETTINGS.probes {
                if circuit.state() != CircuitState::Closed {
                    let permit = circuit.ask(now);
                    prop_assert!(permit.is_ok());
                    circuit.end(now, permit.unwrap(), Outcome::Succeeded);
                }
            }
            prop_assert_eq!(circuit.state(), CircuitState::Closed);
        }
    }
}
