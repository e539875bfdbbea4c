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

#[test]
fn a_message_that_only_a_newer_program_can_read_is_dead_at_an_older_one_with_the_reason_and_is_taken_by_the_newer_one()
{
    let world = Simulation::new(1).with::<OldPage>();
    let run = world.try_run(|sim| async move {
        let nodes = sim.nodes(Timing::default());
        nodes.set_app(OLD, 1);
        nodes.start(OLD).await.unwrap();
        sim.upgrade(|engine| engine.with::<NewPage>());
        nodes.set_app(NEW, 2);
        nodes.start(NEW).await.unwrap();
        settle(&sim, &nodes).await;
        let mut sent = 0;
        for page in 0..PAGES {
            let command = NewCommand::HaveMarked { to: page + MARKED };
            let asked = nodes.call(NEW, move |engine| async move {
                engine.entity::<NewPage>(page).ask(command).await
            });
            // Pages of the older node do not know what is asked of them.
            sent += u64::from(asked.await.unwrap().is_ok());
        }
        sim.sleep(Duration::from_secs(2)).await;
        let found = dead(&nodes, OLD).await;
        println!("{sent} messages were sent, dead at the older node: {found:?}");
        assert!(!found.is_empty() && (found.len() as u64) < sent, "{found:?} of {sent}");
        assert!(
            found.iter().all(|(_, why)| why.contains("unknown variant `Mark`")),
            "{found:?}"
        );

        nodes.kill(OLD);
        settle(&sim, &nodes).await;
        for (id, _) in found {
            let retried = nodes.call(NEW, move |engine| async move {
                engine.retry_all_dead("page", &id, None).await
            });
            println!("{:?}", retried.await.unwrap().map(|retried| retried.0));
        }
        assert_eq!(dead(&nodes, NEW).await, []);
        nodes.end();
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}
