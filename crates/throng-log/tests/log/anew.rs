//! Notes that are begun anew after they were erased, or ended and pruned.

use crate::{
    disk::{Chance, Disk},
    kit::{DIR, options},
    notes::{Command, Note, Running, look, once_free, seqs, start, write},
};
use std::{path::Path, time::Duration};
use throng::{
    Engine,
    model::{Error, Keep},
};
use throng_journal::{Checkpoint, Cut, ShardSet, Store as _, conformance::block_on};
use throng_log::{
    open_embedded,
    tools::{for_each_commit, hold, verify},
};

/// Keeps no durable history.
const NOTHING: Keep = Keep::Age(Duration::ZERO);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Erased,
    Pruned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    InOrder,
    KilledAfterCheckpoint,
    Killed,
    PowerLost,
}

impl Way {
    fn keep(self) -> Keep {
        match self {
            Self::Erased => Keep::Forever,
            Self::Pruned => NOTHING,
        }
    }

    /// Ends Ann's note. Returns the number of its last event.
    async fn go(self, engine: &Engine) -> u64 {
        write(engine, "ann", "before").await;
        write(engine, "ann", "before").await;
        if self == Self::Erased {
            engine.erase("note", "ann").await.unwrap();
            return 2;
        }
        engine.entity::<Note>("ann").ask(Command::Close).await.unwrap();
        // Another event follows, so a checkpoint covers everything before it.
        write(engine, "last", "").await;
        write(engine, "last", "").await;
        assert_eq!(engine.prune(false).await.unwrap().gone, 1);
        3
    }
}

impl End {
    async fn end(self, running: Running, disk: &Disk) {
        match self {
            Self::InOrder => running.engine.stop().await,
            Self::KilledAfterCheckpoint => {
                running.engine.checkpoint().await.unwrap();
                disk.kill_process();
            }
            Self::Killed => disk.kill_process(),
            Self::PowerLost => disk.lose_power(&mut Chance::new(1)),
        }
    }
}

async fn begin(engine: &Engine, text: &str) {
    let text = text.to_owned();
    let begun = engine.entity::<Note>("ann").ask(Command::Begin { text }).await;
    assert_eq!(begun.unwrap(), 1, "it begins with nothing");
}

/// Checks that the journal is sound, and that the program understands all of it.
async fn assert_understood(disk: &Disk, context: &str) {
    drop(once_free(|| hold(&options(disk), Path::new(DIR))).await);
    let found = verify(&options(disk), Path::new(DIR)).unwrap();
    assert!(found.is_sound(), "{context}: {found}");
    let mut checker = Engine::builder().with::<Note>().checker();
    for_each_commit(&options(disk), Path::new(DIR), &mut |commit| {
        block_on(checker.commit(commit));
        Ok(())
    })
    .unwrap();
    let report = checker.finish();
    assert!(report.is_sound(), "{context}: {report}");
}

async fn assert_anew(engine: &Engine, texts: u64, after: u64, context: &str) {
    let (count, last) = look(engine, "ann")
        .await
        .unwrap_or_else(|why| panic!("{context}: {why}"));
    assert_eq!((count, &*last), (texts, &*format!("after {texts}")), "{context}");
    let kept = seqs(engine, "ann").await;
    assert_eq!(kept, (after + 1..=after + texts).collect::<Vec<_>>(), "{context}");
    assert!(engine.quarantined(9).await.unwrap().is_empty(), "{context}");
}

async fn comes_back(way: Way, end: End) {
    let context = &format!("{way:?}, {end:?}");
    let disk = Disk::new();
    let mut running = start(&disk, way.keep()).await;
    let gone = way.go(&running.engine).await;
    begin(&running.engine, "after 1").await;
    for texts in 2..=4 {
        write(&running.engine, "ann", &format!("after {texts}")).await;
        end.end(running, &disk).await;
        running = start(&disk, Keep::Forever).await;
        assert_anew(&running.engine, texts, gone, context).await;
    }
    running.engine.stop().await;
    drop(running);
    assert_understood(&disk, context).await;
    // The log alone must be enough.
    disk.remove(&Path::new(DIR).join("store.redb"));
    for _ in 0..2 {
        let running = start(&disk, Keep::Forever).await;
        let (count, last) = look(&running.engine, "ann").await.unwrap();
        assert_eq!((count, &*last), (4, "after 4"), "{context}, without the store");
        running.engine.stop().await;
    }
}

macro_rules! comes_back {
    ($($name:ident: $way:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for end in [End::InOrder, End::KilledAfterCheckpoint, End::Killed, End::PowerLost] {
                comes_back(Way::$way, end).await;
            }
        })*
    };
}

comes_back! {
    note_begun_anew_after_it_was_erased_comes_back: Erased;
    note_begun_anew_after_it_was_pruned_comes_back: Pruned;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_begun_anew_ends_and_is_gone_once_more() {
    for way in [Way::Erased, Way::Pruned] {
        let disk = Disk::new();
        for round in 0..3 {
            let mut running = start(&disk, way.keep()).await;
            if round > 0 {
                begin(&running.engine, "after 1").await;
                running.engine.stop().await;
                drop(running);
                running = start(&disk, way.keep()).await;
            }
            way.go(&running.engine).await;
            running.engine.stop().await;
            drop(running);
            let running = start(&disk, way.keep()).await;
            let looked = look(&running.engine, "ann").await;
            assert!(
                matches!(looked, Err(Error::Ended { .. })),
                "{way:?}, {round}: {looked:?}"
            );
            running.engine.stop().await;
            drop(running);
            assert_understood(&disk, &format!("{way:?}, {round}")).await;
        }
    }
}

/// Returns a directory whose index has lost the first of three texts.
async fn with_lost_event() -> Disk {
    let disk = Disk::new();
    let running = start(&disk, Keep::Forever).await;
    for number in 1..=3 {
        write(&running.engine, "ann", &format!("text {number}")).await;
    }
    running.engine.stop().await;
    drop(running);
    let (_log, store) = once_free(|| open_embedded(DIR, options(&disk))).await;
    let shards = ShardSet::first(2);
    let covered = block_on(store.covers(&shards)).unwrap().remove(0);
    let lost = Checkpoint {
        upto: covered.upto.unwrap(),
        shards,
        cuts: vec![Cut {
            address: throng_journal::Address::new("note", "ann"),
            upto: 1,
            is_gone: false,
        }],
        ..Checkpoint::default()
    };
    block_on(store.advance(lost)).unwrap();
    disk
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_that_has_lost_its_first_events_is_told_as_damage() {
    let disk = with_lost_event().await;
    let running = start(&disk, Keep::Forever).await;
    for _ in 0..2 {
        let said = look(&running.engine, "ann").await.unwrap_err().to_string();
        assert!(
            said.contains("event 1 is missing before event 2") && said.contains("rebuilt"),
            "{said}"
        );
        assert!(running.engine.release("note", "ann", by_test()).await.unwrap());
    }
    running.engine.stop().await;
    drop(running);
    disk.remove(&Path::new(DIR).join("store.redb"));
    let running = start(&disk, Keep::Forever).await;
    assert_eq!(look(&running.engine, "ann").await.unwrap(), (3, "text 3".into()));
    running.engine.stop().await;
}

fn by_test() -> throng::OperatorDecision<'static> {
    throng::OperatorDecision::new("a test", "it is mended")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantined_note_that_is_erased_is_gone_and_begins_anew() {
    let disk = with_lost_event().await;
    let mut running = start(&disk, Keep::Forever).await;
    look(&running.engine, "ann").await.unwrap_err();
    running.engine.erase("note", "ann").await.unwrap();
    for round in 0..2 {
        let looked = look(&running.engine, "ann").await;
        assert!(matches!(looked, Err(Error::Ended { .. })), "{round}: {looked:?}");
        running.engine.stop().await;
        drop(running);
        assert_understood(&disk, "erased").await;
        running = start(&disk, Keep::Forever).await;
    }
    begin(&running.engine, "after 1").await;
    running.engine.stop().await;
    drop(running);
    let running = start(&disk, Keep::Forever).await;
    assert_anew(&running.engine, 1, 3, "erased").await;
    running.engine.stop().await;
    drop(running);
    assert_understood(&disk, "begun anew").await;
}
