//! Counts what a service did in simulated runs.

use std::{cell::RefCell, collections::BTreeMap, fmt};
use throng::{DecidedCommand, Registry};

thread_local! {
    /// The runs of this thread since the last [`take`].
    static RUNS: RefCell<(u64, Reached)> = RefCell::default();
}

/// Adds a run to those of this thread.
pub(crate) fn add(run: &Reached) {
    RUNS.with_borrow_mut(|(runs, reached)| {
        *runs += 1;
        reached.add(run);
    });
}

/// Takes the runs of this thread.
pub(crate) fn take() -> (u64, Reached) {
    RUNS.take()
}

/// Counts how often each command and event of a service was reached. One that was never reached has count 0.
///
/// Every decision of an entity counts, even if its commit was lost in a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Counts of each outcome by `kind/command`. An outcome is `done`, the code of a rejection, or `failed`.
    pub commands: BTreeMap<String, BTreeMap<String, u64>>,
    /// Counts by `kind/event`.
    pub events: BTreeMap<String, u64>,
}

impl Reached {
    /// Returns the count of a name: an event, a command with all its outcomes, or the code of a rejection, written `confirmed` or
    /// `order/confirmed`.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        let is_named = |key: &str| {
            let own = key.split_once('/').map_or(key, |(_, own)| own);
            key == name || own == name
        };
        let events = self
            .events
            .iter()
            .filter(|(key, _)| is_named(key))
            .map(|(_, count)| count);
        let outcomes = self.commands.iter().flat_map(|(key, outcomes)| {
            let is_whole = is_named(key);
            outcomes
                .iter()
                .filter_map(move |(outcome, count)| (is_whole || outcome == name).then_some(count))
        });
        events.chain(outcomes).sum()
    }

    /// Returns the commands and events that were never reached.
    #[must_use]
    pub fn never(&self) -> Vec<String> {
        let commands = self.commands.iter().filter(|(_, outcomes)| outcomes.is_empty());
        let commands = commands.map(|(key, _)| format!("command {key}"));
        let events = self.events.iter().filter(|(_, count)| **count == 0);
        commands.chain(events.map(|(key, _)| format!("event {key}"))).collect()
    }

    /// Adds the names of a service's commands and events, each with count 0.
    pub(crate) fn expect(&mut self, registry: &Registry) {
        let mut generator = schemars::SchemaGenerator::default();
        let schemas: Vec<_> = registry
            .kinds()
            .iter()
            .map(|kind| {
                let command = (kind.command_schema)(&mut generator);
                (kind.name, command, (kind.event_schema)(&mut generator))
            })
            .collect();
        let definitions = generator.take_definitions(true);
        for (kind, command, event) in schemas {
            for name in variants(command.as_value(), &definitions) {
                self.commands.entry(format!("{kind}/{name}")).or_default();
            }
            for name in variants(event.as_value(), &definitions) {
                self.events.entry(format!("{kind}/{name}")).or_default();
            }
        }
    }

    pub(crate) fn decided(&mut self, decided: &DecidedCommand<'_>) {
        let DecidedCommand {
            kind,
            name,
            outcome,
            events,
        } = decided;
        let outcomes = self.commands.entry(format!("{kind}/{name}")).or_default();
        *outcomes.entry((*outcome).to_owned()).or_default() += 1;
        for event in *events {
            *self.events.entry(format!("{kind}/{event}")).or_default() += 1;
        }
    }

    fn add(&mut self, other: &Self) {
        for (key, outcomes) in &other.commands {
            let own = self.commands.entry(key.clone()).or_default();
            for (outcome, count) in outcomes {
                *own.entry(outcome.clone()).or_default() += count;
            }
        }
        for (key, count) in &other.events {
            *self.events.entry(key.clone()).or_default() += count;
        }
    }
}

/// Prints a line for each command and event.
impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, outcomes) in &self.commands {
            let outcomes = outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}"));
            let outcomes: Vec<String> = outcomes.collect();
            let told = if outcomes.is_empty() {
                "never".into()
            } else {
                outcomes.join(", ")
            };
            writeln!(f, "command {key}: {told}")?;
        }
        for (key, count) in &self.events {
            writeln!(f, "event {key}: {count}")?;
        }
        Ok(())
    }
}

/// Returns the names of an enum's variants as serde writes them, or `None` if the schema is not an externally tagged enum.
fn variants(schema: &serde_json::Value, definitions: &serde_json::Map<String, serde_json::Value>) -> Vec<String> {
    use serde_json::Value;
    let reference = schema.get("$ref").and_then(Value::as_str);
    let named = reference.and_then(|reference| definitions.get(reference.rsplit('/').next()?));
    let whole = named.unwrap_or(schema);
    let parts = whole
        .get("oneOf")
        .or_else(|| whole.get("anyOf"))
        .and_then(Value::as_array);
    let alone = [whole.clone()];
    let names = |part: &Value| -> Vec<String> {
        let units = part.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
        let unit = part.get("const").cloned();
        let content = match part.get("required").and_then(Value::as_array).map(Vec::as_slice) {
            Some([name]) => Some(name.clone()),
            _ => None,
        };
        let all = units.into_iter().chain(unit).chain(content);
        all.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    parts.map_or(&alone[..], Vec::as_slice).iter().flat_map(names).collect()
}

#[cfg(test)]
mod tests {
    use crate::Simulation;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use throng::model::{CommandAnswer, Entity, Event, OnOutcome, RequestError, Turn};
    use throng_testing::fixtures::{Command, Counter, Never};

    #[test]
    fn run_counts_commands_outcomes_and_events() {
        let world = Simulation::new(1).with::<Counter>();
        let ran = world.try_run(|sim| async move {
            for number in 0..3 {
                let key = format!("hit {number}");
                let hit = sim.ask_until_known::<Counter>("one", &key, Command::Hit {});
                hit.await.unwrap();
            }
            let refused = sim.ask_until_known::<Counter>("one", "refuse", Command::Refuse {});
            assert!(refused.await.is_err());
            assert_eq!((sim.reached("counter/Refuse"), sim.reached("dislike")), (1, 1));
            assert_eq!((sim.reached("Grant"), sim.reached("nothing-so-called")), (0, 0));
        });
        let (_, run) = ran.map_err(|failure| failure.to_string()).unwrap();
        assert_eq!(run.reached.events["counter/Hit"], 3);
        assert_eq!(run.reached.commands["counter/Hit"], [("done".to_owned(), 3)].into());
        let never = ["Begin", "Close", "Crash", "Grant"].map(|name| format!("command counter/{name}"));
        assert_eq!(
            run.reached.never(),
            [&never[..], &["event counter/Closed".to_owned()]].concat()
        );
        assert!(run.reached.to_string().contains("command counter/Refuse: 1 dislike\n"));
    }

    /// Requests something of a counter.
    #[derive(Default, Serialize, Deserialize)]
    struct Asker {}

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    enum Ask {
        Counter {},
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    enum Asked {
        Never {},
    }
    impl Event for Asked {}

    impl OnOutcome<Counter> for Asker {
        type Note = ();

        fn on_outcome(_: String, (): (), _: Result<u64, RequestError<throng_testing::fixtures::Dislike>>) -> Ask {
            Ask::Counter {}
        }
    }

    impl Entity for Asker {
        const KIND: &'static str = "asker";
        const REQUESTS: &'static [&'static str] = &["counter"];
        type Id = String;
        type Command = Ask;
        type Event = Asked;
        type Reply = ();
        type Rejection = Never;

        fn decide(&self, _: Ask, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
            turn.request::<Counter>("one".to_owned(), Command::Hit {}, ());
            Ok(CommandAnswer::Now(()))
        }

        fn evolve(&mut self, _: &Asked) {}
    }

    #[test]
    fn service_that_cannot_start_fails_at_once_with_its_reason() {
        let ask = |is_asked: bool| {
            let world = Simulation::new(1).with::<Counter>().with::<Asker>();
            let ran = world.try_run(|sim| async move {
                match is_asked {
                    true => drop(sim.ask_until_known::<Asker>("one", "ask", Ask::Counter {}).await),
                    false => sim.restart().await,
                }
            });
            ran.map(drop).unwrap_err()
        };
        for is_asked in [true, false] {
            let failure = ask(is_asked);
            assert!(failure.to_string().contains("could not hear the outcome"), "{failure}");
            assert!(failure.run.elapsed.as_secs() == 0, "{:?}", failure.run.elapsed);
        }
    }
}
