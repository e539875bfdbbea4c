//! A command that only the newer of two programs knows, sent to an entity on a node with the older one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use throng::model::*;
use throng_sim::{Nodes, Sim, Simulation, Timing};
use throng_testing::fixtures::Never;

const PAGES: u64 = 16;
/// The distance from a page to the page that it marks.
const MARKED: u64 = 1_000;
const OLD: usize = 0;
const NEW: usize = 1;

#[derive(Serialize, Deserialize, JsonSchema)]
enum UnknownEvent {
    Noted,
}
impl Event for UnknownEvent {}

#[derive(Serialize, Deserialize, JsonSchema)]
enum HappenedSince {
    Noted,
    /// Known only to the newer program.
    Closed,
}
impl Event for HappenedSince {}

/// Defines a page in two versions, one for each program.
macro_rules! page {
    ($name:ident, $event:ident, $command:ident { $($variant:ident $({ $field:ident })?),* }, |$asked:ident, $turn:ident| $decide:expr) => {
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
            type Event = $event;
            type Reply = u64;
            type Rejection = Never;

            fn creates(_: &$command) -> bool {
                true
            }

            fn decide(&self, $asked: $command, $turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
                let happened = $decide;
                $turn.emit(happened);
                Ok(CommandAnswer::after(|page: &Self| page.notes))
            }

            fn evolve(&mut self, _: &$event) {
                self.notes += 1;
            }
        }
    };
}

page!(OldPage, UnknownEvent, OldCommand { Note, HaveNoted { to } }, |command, turn| {
    if let OldCommand::HaveNoted { to } = command {
        turn.send::<OldPage>(to, OldCommand::Note);
    }
    UnknownEvent::Noted
});
page!(NewPage, HappenedSince, NewCommand { Note, HaveNoted { to }, Mark, HaveMarked { to }, Close, Remind { seconds } }, |command, turn| {
    match command {
        NewCommand::HaveNoted { to } => turn.send::<NewPage>(to, NewCommand::Note),
        NewCommand::HaveMarked { to } => turn.send::<NewPage>(to, NewCommand::Mark),
        NewCommand::Remind { seconds } => {
            let at = turn.now().after(Duration::from_secs(seconds));
            turn.remind("mark", at, None, NewCommand::Mark);
        }
        NewCommand::Note | NewCommand::Mark | NewCommand::Close => {}
    }
    match command {
        NewCommand::Close => HappenedSince::Closed,
        _ => HappenedSince::Noted,
    }
});

/// Returns the dead messages at a node, by receiver, with the reasons.
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

/// Starts a node of each of two releases. The newer one's pages send others commands that only its program knows. Returns the number of these
/// messages.
async fn both_releases(sim: &Sim, nodes: &Nodes) -> u64 {
    nodes.set_app(OLD, 1);
    nodes.start(OLD).await.unwrap();
    sim.upgrade(|engine| engine.with::<NewPage>());
    nodes.set_app(NEW, 2);
    nodes.start(NEW).await.unwrap();
    settle(sim, nodes).await;
    let mut sent = 0;
    for page in 0..PAGES {
        match ask(nodes, page, NewCommand::HaveMarked { to: page + MARKED }).await {
            Ok(_) => sent += 1,
            // Pages on the older node do not know the command.
            Err(why) => assert!(why.contains("unknown variant"), "{why}"),
        }
    }
    assert!(sent > 0 && sent < PAGES, "{sent}");
    sim.sleep(Duration::from_secs(2)).await;
    sent
}

/// Returns the entities whose messages wait at a node, with number and reason.
async fn stuck(nodes: &Nodes, node: usize) -> Vec<(String, u64, String)> {
    let found = nodes.call(node, |engine| async move { engine.stuck() }).await.unwrap();
    let stuck = found.into_iter();
    stuck
        .map(|stuck| (stuck.address.id.to_string(), stuck.messages, stuck.reason))
        .collect()
}

/// Returns the number of a page's events, as the newer program reads them.
async fn events(nodes: &Nodes, page: u64) -> usize {
    let history = nodes.call(NEW, move |engine| async move {
        engine.history(0, &page.to_string(), 0, 99).await
    });
    history.await.unwrap().map_or(0, |history| history.events.len())
}

/// Returns the number of events that marks have caused on the marked pages.
async fn marks(nodes: &Nodes) -> u64 {
    let mut marks = 0;
    for page in MARKED..MARKED + PAGES {
        marks += events(nodes, page).await as u64;
    }
    marks
}

/// Asks the newer node. A command that the page's older owner does not understand is refused as one for a newer release.
async fn ask(nodes: &Nodes, page: u64, command: NewCommand) -> Result<u64, String> {
    let asked = nodes.call(NEW, move |engine| async move {
        engine.entity::<NewPage>(page).ask(command).await
    });
    match asked.await.unwrap() {
        Ok(notes) => Ok(notes),
        Err(Error::Unavailable { reason }) if reason.contains("newer release") && reason.contains("node n1") => {
            Err(reason)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a test in a world of old pages, and reports its faults.
fn run<F: Future<Output = ()>>(test: impl FnOnce(Sim) -> F) {
    if let Err(failure) = Simulation::new(1).with::<OldPage>().try_run(test) {
        panic!("{failure}");
    }
}

#[test]
fn a_newer_message_waits_until_a_newer_node_owns_its_receiver() {
    run(|sim| async move {
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
}

#[test]
fn a_message_outlasts_that_the_only_newer_node_is_started_again() {
    run(|sim| async move {
        let nodes = sim.nodes(Timing::default());
        let sent = both_releases(&sim, &nodes).await;
        let waiting = stuck(&nodes, NEW).await;
        nodes.kill(NEW);
        settle(&sim, &nodes).await;
        sim.sleep(Duration::from_secs(60)).await;
        assert_eq!(dead(&nodes, OLD).await, []);
        let mut waits = stuck(&nodes, OLD).await;
        waits.sort();
        assert!(
            waits.iter().all(|(.., why)| why.contains("node n1, which is gone for")),
            "{waits:?}"
        );
        let of = |waiting: &[(String, u64, String)]| waiting.iter().map(|(id, ..)| id.clone()).collect::<BTreeSet<_>>();
        assert_eq!(of(&waits), of(&waiting));
        assert!(!waits.is_empty());
        let client = nodes.call(OLD, |engine| async move {
            let driver = engine.driver();
            driver
                .answer(driver.command(0, "1".to_owned(), "Mark", Vec::new())?)
                .await
        });
        let refused = client.await.unwrap().unwrap_err();
        assert!(
            matches!(&refused, Error::Unavailable { reason } if reason.contains("node n1")),
            "{refused}"
        );

        nodes.start(NEW).await.unwrap();
        nodes.drain(OLD, true).await;
        settle(&sim, &nodes).await;
        sim.sleep(Duration::from_secs(10)).await;
        assert_eq!((dead(&nodes, NEW).await, stuck(&nodes, NEW).await), (vec![], vec![]));
        assert_eq!(marks(&nodes).await, sent);
        nodes.end();
    });
}

#[test]
fn a_newer_message_is_dead_with_reason_once_the_release_is_gone() {
    run(|sim| async move {
        let nodes = sim.nodes(Timing::default());
        both_releases(&sim, &nodes).await;
        let waiting = stuck(&nodes, NEW).await;
        nodes.kill(NEW);
        settle(&sim, &nodes).await;
        sim.sleep(Duration::from_secs(130)).await;
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
}

#[test]
fn a_waiting_message_holds_up_only_its_sender_and_receiver_pair() {
    run(|sim| async move {
        let nodes = sim.nodes(Timing::default());
        both_releases(&sim, &nodes).await;
        let waiting = stuck(&nodes, NEW).await;
        let receivers: Vec<u64> = waiting.iter().map(|(id, ..)| id.parse().unwrap()).collect();
        let [one, other, ..] = receivers[..] else {
            panic!("two are at the older node: {receivers:?}")
        };
        // The newer node owns them, because they could be asked.
        let (sender, bystander) = (one - MARKED, other - MARKED);
        for (page, to) in [(sender, one), (bystander, one), (sender, other), (sender, MARKED + 99)] {
            ask(&nodes, page, NewCommand::HaveNoted { to }).await.unwrap();
        }
        ask(&nodes, one, NewCommand::Note).await.unwrap();
        sim.sleep(Duration::from_secs(1)).await;
        let found = [one, other, MARKED + 99].map(|page| events(&nodes, page));
        let [one_has, other_has, third_has] = found;
        assert_eq!((one_has.await, other_has.await, third_has.await), (2, 1, 1));
        let of_one = stuck(&nodes, NEW)
            .await
            .into_iter()
            .find(|(id, ..)| *id == one.to_string());
        assert_eq!(
            of_one.unwrap().1,
            2,
            "the one that is not understood, and the one after it"
        );

        nodes.kill(OLD);
        settle(&sim, &nodes).await;
        sim.sleep(Duration::from_secs(6)).await;
        assert_eq!((events(&nodes, one).await, events(&nodes, other).await), (4, 2));
        assert_eq!((dead(&nodes, NEW).await, stuck(&nodes, NEW).await), (vec![], vec![]));
        nodes.end();
    });
}

/// Pages closed by the newer program, or with its timers, came to the older node while the newer one was away. It is back, and each node owns some of
/// them. The timers are due in this many seconds.
async fn came_to_the_older(sim: &Sim, nodes: &Nodes, seconds: u64) {
    nodes.set_app(OLD, 1);
    nodes.start(OLD).await.unwrap();
    sim.upgrade(|engine| engine.with::<NewPage>());
    nodes.set_app(NEW, 2);
    nodes.start(NEW).await.unwrap();
    nodes.drain(OLD, true).await;
    sim.sleep(Duration::from_secs(3)).await;
    for page in 0..PAGES {
        ask(nodes, page, NewCommand::Close).await.unwrap();
        ask(nodes, page + MARKED, NewCommand::Remind { seconds: 10 + seconds })
            .await
            .unwrap();
    }
    nodes.drain(OLD, false).await;
    nodes.kill(NEW);
    sim.sleep(Duration::from_secs(5)).await;
    nodes.start(NEW).await.unwrap();
    settle(sim, nodes).await;
    sim.sleep(Duration::from_secs(3)).await;
}

#[test]
fn messages_and_timers_wait_for_the_program_that_knows_them() {
    run(|sim| async move {
        let nodes = sim.nodes(Timing::default());
        came_to_the_older(&sim, &nodes, 10).await;
        let sender = 77;
        let mut is_refused = 0;
        for to in 0..PAGES {
            ask(&nodes, sender, NewCommand::HaveNoted { to }).await.unwrap();
            if let Err(why) = ask(&nodes, to, NewCommand::Note).await {
                assert!(why.contains("is quarantined since event 1"), "{why}");
                is_refused += 1;
            }
        }
        sim.sleep(Duration::from_secs(20)).await;
        let sender_at = if stuck(&nodes, NEW).await.is_empty() { OLD } else { NEW };
        let waiting = stuck(&nodes, sender_at).await;
        assert_eq!(waiting.len(), is_refused, "{waiting:?}");
        assert!(
            is_refused > 0
                && waiting
                    .iter()
                    .all(|(.., why)| why.contains("is quarantined since event 1"))
        );
        let late = nodes.call(OLD, |engine| async move { engine.late_timers(99).await });
        let late = late.await.unwrap().unwrap();
        assert!(!late.is_empty() && (late.len() as u64) < PAGES, "{late:?}");
        assert_eq!(marks(&nodes).await, 2 * PAGES - late.len() as u64);

        nodes.kill(OLD);
        settle(&sim, &nodes).await;
        sim.sleep(Duration::from_secs(6)).await;
        assert_eq!(marks(&nodes).await, 2 * PAGES);
        let mut has = Vec::new();
        for page in 0..PAGES {
            has.push(events(&nodes, page).await);
        }
        let taken: usize = has.iter().sum();
        assert_eq!(taken, 3 * PAGES as usize - is_refused, "{has:?}");
        assert!(has.iter().all(|events| *events >= 2), "{has:?}");
        assert_eq!((dead(&nodes, NEW).await, stuck(&nodes, NEW).await), (vec![], vec![]));
        nodes.end();
    });
}

#[test]
fn a_newer_timer_is_dead_once_no_newer_node_has_lived_long() {
    run(|sim| async move {
        let nodes = sim.nodes(Timing::default());
        came_to_the_older(&sim, &nodes, 10).await;
        sim.sleep(Duration::from_secs(20)).await;
        let late = nodes.call(OLD, |engine| async move { engine.late_timers(99).await });
        let late = late.await.unwrap().unwrap().len();
        assert_eq!(dead(&nodes, OLD).await, []);
        nodes.kill(NEW);
        settle(&sim, &nodes).await;
        sim.sleep(Duration::from_secs(200)).await;
        let found = dead(&nodes, OLD).await;
        assert!(late > 0 && found.len() == late, "{late} of {found:?}");
        assert!(
            found.iter().all(|(_, why)| why.contains("unknown variant `Mark`")),
            "{found:?}"
        );
        nodes.end();
    });
}
