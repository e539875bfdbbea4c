//! A command that only the newer one of two programs knows, on its way to an entity that a node of the older one owns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng::model::*;
use throng_sim::{Nodes, Sim, Simulation, Timing};

const PAGES: u64 = 16;
/// Pages that are marked by those before, so many further.
const MARKED: u64 = 1_000;
const OLD: usize = 0;
const NEW: usize = 1;

#[derive(Serialize, Deserialize, JsonSchema)]
enum Happened {
    Noted,
}
impl Event for Happened {}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("never")]
struct Never;
impl Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

/// A page, as one of two programs knows it.
macro_rules! page {
    ($name:ident, $command:ident { $($variant:ident $({ $field:ident })?),* }, |$asked:ident, $turn:ident| $decide:expr) => {
        #[derive(Default, Serialize, Deserialize)]
        struct $name {
            notes: u64,
        }

        #[derive(Clone, Serialize, Deserialize, JsonSchema)]
        enum $command {
            $($variant $({ $field: u64 })?),*
        }

        impl Entity for $name {
            const KIND: &'static str = "page";
            type Id = u64;
            type Command = $command;
            type Event = Happened;
            type Reply = u64;
            type Rejection = Never;

            fn creates(_: &$command) -> bool {
                true
            }

            fn decide(&self, $asked: $command, $turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Never> {
                $decide;
                $turn.emit(Happened::Noted);
                Ok(Answer::after(|page: &Self| page.notes))
            }

            fn evolve(&mut self, _: &Happened) {
                self.notes += 1;
            }
        }
    };
}

page!(OldPage, OldCommand { Note }, |command, _turn| assert!(matches!(
    command,
    OldCommand::Note
)));
page!(NewPage, NewCommand { Note, Mark, HaveMarked { to } }, |command, turn| {
    if let NewCommand::HaveMarked { to } = command {
        turn.send::<NewPage>(to, NewCommand::Mark);
    }
});

/// The messages that are dead at a node, by their receivers, and why.
async fn dead(nodes: &Nodes, node: usize) -> Vec<(String, String)> {
    let found = nodes.call(
        node,
        |engine| async move { engine.dead_messages(None, None, 1_000).await },
    );
    let page = found.await.unwrap().unwrap();
    let dead = page.messages.into_iter();
    dead.map(|dead| (dead.receiver.id.to_string(), dead.reason)).collect()
}

async fn settle(sim: &Sim, nodes: &Nodes) {
    if !nodes.settle(Duration::from_secs(20)).await {
        sim.wrong("not all is served".into());
    }
}

/// A node of each of two releases; the newer one's pages have sent to others what only its program knows. So many messages those are.
async fn both_releases(sim: &Sim, nodes: &Nodes) -> u64 {
    nodes.set_app(OLD, 1);
    nodes.start(OLD).await.unwrap();
    sim.upgrade(|engine| engine.with::<NewPage>());
    nodes.set_app(NEW, 2);
    nodes.start(NEW).await.unwrap();
    settle(sim, nodes).await;
    let mut sent = 0;
    for page in 0..PAGES {
        let command = NewCommand::HaveMarked { to: page + MARKED };
        let asked = nodes.call(NEW, move |engine| async move {
            engine.entity::<NewPage>(page).ask(command).await
        });
        match asked.await.unwrap() {
            Ok(_) => sent += 1,
            // Pages of the older node do not know what is asked of them.
            Err(error) => {
                let told = error.to_string();
                let is_it = |words: &str| told.contains(words);
                assert!(
                    matches!(error, Error::Unavailable { .. }) && is_it("unknown variant") && is_it("node n1 runs"),
                    "{told}"
                );
            }
        }
    }
    assert!(sent > 0 && sent < PAGES, "{sent}");
    sim.sleep(Duration::from_secs(2)).await;
    sent
}

/// Entities whose messages wait at a node, how many, and why.
async fn stuck(nodes: &Nodes, node: usize) -> Vec<(String, u64, String)> {
    let found = nodes.call(node, |engine| async move { engine.stuck() }).await.unwrap();
    let stuck = found.into_iter();
    stuck
        .map(|stuck| (stuck.address.id.to_string(), stuck.messages, stuck.reason))
        .collect()
}

/// How often the pages were noted that others mark.
async fn marks(nodes: &Nodes) -> u64 {
    let mut marks = 0;
    for page in MARKED..MARKED + PAGES {
        let history = nodes.call(NEW, move |engine| async move {
            engine.history(0, &page.to_string(), 0, 9).await
        });
        marks += history.await.unwrap().map_or(0, |history| history.events.len() as u64);
    }
    marks
}

#[test]
fn a_message_that_only_a_newer_program_understands_waits_until_that_owns_its_receiver() {
    let world = Simulation::new(1).with::<OldPage>();
    let run = world.try_run(|sim| async move {
        let nodes = sim.nodes(Timing::default());
        let sent = both_releases(&sim, &nodes).await;
        let waiting = stuck(&nodes, NEW).await;
        println!("{sent} messages were sent, of these wait: {waiting:?}");
        assert!(!waiting.is_empty() && (waiting.len() as u64) < sent, "{waiting:?}");
        for (_, messages, why) in &waiting {
            let is_it = |words: &str| why.contains(words);
            assert!(
                *messages == 1 && is_it("unknown variant `Mark`") && is_it("node n1 runs"),
                "{why}"
            );
        }
        assert_eq!(marks(&nodes).await, sent - waiting.len() as u64);

        nodes.kill(OLD);
        settle(&sim, &nodes).await;
        sim.sleep(Duration::from_secs(6)).await;
        assert_eq!(dead(&nodes, NEW).await, []);
        assert_eq!(stuck(&nodes, NEW).await, []);
        assert_eq!(marks(&nodes).await, sent);
        nodes.end();
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

#[test]
fn once_the_newer_release_is_gone_the_message_is_dead_with_the_reason() {
    let world = Simulation::new(1).with::<OldPage>();
    let run = world.try_run(|sim| async move {
        let nodes = sim.nodes(Timing::default());
        both_releases(&sim, &nodes).await;
        let waiting = stuck(&nodes, NEW).await;
        nodes.kill(NEW);
        settle(&sim, &nodes).await;
        sim.sleep(Duration::from_secs(2)).await;
        let found = dead(&nodes, OLD).await;
        let receivers: Vec<&String> = found.iter().map(|(id, _)| id).collect();
        assert_eq!(receivers, waiting.iter().map(|(id, ..)| id).collect::<Vec<_>>());
        assert!(
            found.iter().all(|(_, why)| why.contains("unknown variant `Mark`")),
            "{found:?}"
        );
        assert_eq!(stuck(&nodes, OLD).await, []);
        nodes.end();
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}
