//! Programs change while timers run and messages wait: nothing is lost without a report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng::{DeadMessage, Retried, model::*};
use throng_sim::{Sim, Simulation};
use throng_testing::fixtures::Never;

const DAY: Duration = Duration::from_hours(24);

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
enum UpgradedEvent {
    Opened,
    Charged { cents: u64 },
}
impl Event for UpgradedEvent {}

/// Defines a kind in three versions, one for each program.
macro_rules! bank {
    ($name:ident, $command:ident { $charge:ident, $beat:ident }, $upcast:expr) => {
        #[derive(Default, Serialize, Deserialize)]
        struct $name {
            cents: u64,
        }

        #[derive(Clone, Serialize, Deserialize, JsonSchema)]
        enum $command {
            Open,
            $charge {
                cents: u64,
            },
            $beat,
            /// Sets a timer that pays interest every day.
            Remind,
            /// Sends a charge to another account.
            Send {
                to: String,
            },
        }

        impl Entity for $name {
            const KIND: &'static str = "bank";
            type Id = String;
            type Command = $command;
            type Event = UpgradedEvent;
            type Reply = u64;
            type Rejection = Never;

            fn creates(command: &$command) -> bool {
                matches!(command, $command::Open)
            }

            fn decide(&self, command: $command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
                match command {
                    $command::Open => turn.emit(UpgradedEvent::Opened),
                    $command::$charge { cents } => turn.emit(UpgradedEvent::Charged { cents }),
                    $command::$beat => turn.emit(UpgradedEvent::Charged {
                        cents: 1 + turn.missed_ticks(),
                    }),
                    $command::Remind => {
                        let first = turn.now().after(DAY);
                        turn.remind("interest", first, Some(DAY), $command::$beat);
                    }
                    $command::Send { to } => turn.send::<Self>(to, $command::$charge { cents: 1 }),
                }
                Ok(CommandAnswer::after(|bank: &Self| bank.cents))
            }

            fn evolve(&mut self, event: &UpgradedEvent) {
                if let UpgradedEvent::Charged { cents } = event {
                    self.cents += cents;
                }
            }

            fn upcast_command(old: Recorded) -> Result<Recorded, UpcastError> {
                let upcast: fn(Recorded) -> Result<Recorded, UpcastError> = $upcast;
                upcast(old)
            }
        }
    };
}

bank!(Yesterday, YesterdayCommand { Charge, Tick }, |_| Err(UpcastError(
    "there is no step".into()
)));
bank!(Today, TodayCommand { Debit, Beat }, |_| Err(UpcastError(
    "there is no step".into()
)));
bank!(Tomorrow, TomorrowCommand { Debit, Beat }, |old| {
    let name = match &*old.name {
        "Charge" => "Debit",
        "Tick" => "Beat",
        _ => return Err(UpcastError(format!("nobody knows {}", old.name))),
    };
    Ok(Recorded {
        name: name.into(),
        ..old
    })
});

fn world() -> Simulation {
    Simulation::new(1).with::<Yesterday>().within(30 * DAY)
}

async fn charged(sim: &Sim) -> Vec<u64> {
    let history = sim.history();
    let events = history.events("bank", "ann");
    let cents = events.iter().filter_map(|event| {
        let body: serde_json::Value = serde_json::from_slice(&event.payload).unwrap();
        body["cents"].as_u64()
    });
    cents.collect()
}

async fn dead(sim: &Sim) -> Vec<DeadMessage> {
    let found = sim.call(|engine| async move { engine.dead_messages(None, None, 100).await.unwrap() });
    found.await.unwrap().messages
}

async fn metric(sim: &Sim, name: &'static str) -> String {
    let text = sim.call(|engine| async move {
        let mut text = String::new();
        engine.metrics().encode(&mut text).unwrap();
        text
    });
    let text = text.await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn a_tick_without_command_is_dead_until_a_program_knows_it() {
    world().run(|sim| async move {
        let ask = async |key, command| sim.ask_until_known::<Yesterday>("ann", key, command).await.unwrap();
        ask("open", YesterdayCommand::Open).await;
        ask("remind", YesterdayCommand::Remind).await;
        sim.kill();
        sim.upgrade(|engine| engine.with::<Today>());
        sim.restart().await;
        sim.sleep(DAY + DAY / 2).await;
        let found = dead(&sim).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&*found[0].receiver.id, &*found[0].name), ("ann", "Tick"));
        assert!(
            found[0].reason.contains("unknown variant `Tick`"),
            "{}",
            found[0].reason
        );
        assert_eq!(metric(&sim, "throng_messages_dead_total").await, "1");

        sim.kill();
        sim.upgrade(|engine| engine.with::<Tomorrow>());
        sim.restart().await;
        assert_eq!(dead(&sim).await.len(), 1, "over a restart");
        let retried = sim.call(|engine| async move { engine.retry_all_dead("bank", "ann", None).await.unwrap().0 });
        assert!(matches!(retried.await.unwrap()[0].1, Retried::Done));
        assert_eq!(charged(&sim).await, [1]);
        sim.sleep(DAY).await;
        assert_eq!(
            charged(&sim).await,
            [1, 1],
            "the next beat is taken a step up by itself"
        );
        assert_eq!(dead(&sim).await, []);
    });
}

#[test]
fn a_message_without_command_is_taken_a_step_up() {
    world().run(|sim| async move {
        let ask = async |id: &str, key, command| sim.ask_until_known::<Yesterday>(id, key, command).await.unwrap();
        ask("bob", "open", YesterdayCommand::Open).await;
        ask("bob", "send", YesterdayCommand::Send { to: "ann".into() }).await;
        while dead(&sim).await.is_empty() {
            sim.sleep(Duration::from_millis(10)).await;
        }
        ask("ann", "open", YesterdayCommand::Open).await;
        let retry = async || {
            let retried = sim.call(|engine| async move { engine.retry_all_dead("bank", "ann", None).await.unwrap().0 });
            retried.await.unwrap().remove(0).1
        };
        sim.kill();
        sim.upgrade(|engine| engine.with::<Today>());
        sim.restart().await;
        let why = retry().await;
        assert!(
            matches!(&why, Retried::Dead(why) if why.contains("`Charge`") && why.contains("there is no step")),
            "{why:?}"
        );
        sim.kill();
        sim.upgrade(|engine| engine.with::<Tomorrow>());
        sim.restart().await;
        assert_eq!(retry().await, Retried::Done);
        assert_eq!(charged(&sim).await, [1]);
    });
}

#[test]
fn a_repeating_timer_says_how_many_of_its_beats_were_missed() {
    world().run(|sim| async move {
        let ask = async |key, command| sim.ask_until_known::<Yesterday>("ann", key, command).await.unwrap();
        ask("open", YesterdayCommand::Open).await;
        ask("remind", YesterdayCommand::Remind).await;
        sim.sleep(DAY + DAY / 2).await;
        assert_eq!(charged(&sim).await, [1]);
        sim.kill();
        sim.sleep(3 * DAY).await;
        sim.restart().await;
        sim.sleep(DAY / 4).await;
        assert_eq!(charged(&sim).await, [1, 3], "three days at once");
        sim.sleep(DAY / 2).await;
        assert_eq!(charged(&sim).await, [1, 3, 1], "and then in its beat again");
    });
}
