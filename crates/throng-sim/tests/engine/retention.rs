//! Retention while processes die, journals fail and stores are lost: by age, by number, with the entity's end, and by erasure.

use crate::diary::{AGE, AGED, COUNTED, Command, Diary, EVENTS, FOREVER, KINDS, Look, Never, keep, secret};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use throng::{FeedError, Options, journal::RecordKind, model::*};
use throng_sim::{Failure, Faults, Lie, Sim, Simulation, for_each_seed_with};

/// The number of entities of each kind.
const ENTITIES: u64 = 4;

/// The expected entity, according to everything acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Model {
    count: u64,
    sum: u64,
    has_ended: bool,
    is_erased: bool,
    /// True if it has ended once and was begun anew.
    is_anew: bool,
}

impl Model {
    fn is_over(&self) -> bool {
        self.has_ended || self.is_erased
    }

    fn written(&mut self, number: u64) {
        if self.is_over() {
            *self = Self {
                is_anew: true,
                ..Self::default()
            };
        }
        self.count += 1;
        self.sum += number;
    }
}

type Models = BTreeMap<(usize, u64), Model>;

async fn write(sim: &Sim, at: (usize, u64), number: u64) -> Result<u64, Error<Never>> {
    ask(sim, at, format!("write {number}"), Command::Write { number, to: None }).await
}

async fn ask(sim: &Sim, (kind, id): (usize, u64), key: String, command: Command) -> Result<u64, Error<Never>> {
    match kind {
        FOREVER => sim.ask_until_known::<Diary<FOREVER>>(id, &key, command).await,
        AGED => sim.ask_until_known::<Diary<AGED>>(id, &key, command).await,
        _ => sim.ask_until_known::<Diary<COUNTED>>(id, &key, command).await,
    }
}

async fn close(sim: &Sim, id: u64, number: u64) -> Result<u64, Error<Never>> {
    ask(sim, (AGED, id), format!("close {number}"), Command::Close).await
}

async fn look(sim: &Sim, (kind, id): (usize, u64)) -> Result<(u64, u64), Error<Never>> {
    match kind {
        FOREVER => sim.read_until_known::<Diary<FOREVER>, _>(id, || Look).await,
        AGED => sim.read_until_known::<Diary<AGED>, _>(id, || Look).await,
        _ => sim.read_until_known::<Diary<COUNTED>, _>(id, || Look).await,
    }
}

/// Repeats an erasure until it is known to be done.
async fn erase(sim: &Sim, (kind, id): (usize, u64)) {
    loop {
        let erased = sim.call(move |engine| async move { engine.erase(KINDS[kind], &id.to_string()).await });
        match erased.await {
            Ok(Ok(_)) => return,
            Ok(Err(Error::Unknown { .. })) => return sim.wrong(format!("{} {id} is unknown", KINDS[kind])),
            _ => {}
        }
        sim.sleep(Duration::from_millis(50)).await;
        if sim.engine().is_none() {
            drop(sim.start().await);
        }
    }
}

/// Writes to a diary and begins it, at random moments of its erasure. Returns true if it was begun anew.
async fn write_and_begin(sim: &Sim, at: (usize, u64), number: u64) -> bool {
    let pause = || Duration::from_micros(sim.below([1, 300, 3_000, 30_000][sim.below(4) as usize]));
    sim.sleep(pause()).await;
    match write(sim, at, number).await {
        Ok(_) | Err(Error::Ended { .. }) => {}
        Err(error) => sim.wrong(format!("writing to {at:?} beside its erasure: {error}")),
    }
    sim.sleep(pause()).await;
    match ask(sim, at, format!("begin {number}"), Command::Begin { number }).await {
        Ok(count) => count == 1,
        Err(error) => {
            sim.wrong(format!("beginning {at:?} beside its erasure: {error}"));
            false
        }
    }
}

/// Applies one random step to a service of diaries.
async fn step(sim: &Sim, models: &mut Models, number: u64) {
    let at = (sim.below(KINDS.len() as u64) as usize, sim.below(ENTITIES));
    let model = models.entry(at).or_default();
    let is_over = model.is_over();
    match sim.below(100) {
        0..15 if is_over => {
            sim.count("begun anew");
            match ask(sim, at, format!("begin {number}"), Command::Begin { number }).await {
                Ok(_) => model.written(number),
                Err(error) => sim.wrong(format!("beginning {at:?} anew: {error}")),
            }
        }
        0..70 => match write(sim, at, number).await {
            Ok(_) if is_over => sim.wrong(format!("{at:?} has ended, and was written to")),
            Ok(_) => model.written(number),
            Err(Error::Ended { .. }) if is_over => {}
            Err(error) => sim.wrong(format!("writing to {at:?}: {error}")),
        },
        70..74 if at.0 == AGED && model.count > 0 && !is_over => match close(sim, at.1, number).await {
            Ok(_) => model.has_ended = true,
            Err(error) => sim.wrong(format!("closing {at:?}: {error}")),
        },
        74..78 if model.count > 0 && !model.is_erased => {
            sim.count("erased");
            let sim_in = sim.clone();
            let meanwhile = sim.spawn(async move { write_and_begin(&sim_in, at, number).await });
            erase(sim, at).await;
            let is_begun = meanwhile.await.unwrap();
            model.is_erased = true;
            // An erasure repeated after an interruption also erases what was begun meanwhile.
            match look(sim, at).await {
                Ok(shown) if is_begun && shown == (1, number) => {
                    sim.count("begun anew beside an erasure");
                    model.written(number);
                }
                Err(Error::Ended { .. }) => {}
                shown => sim.wrong(format!("{at:?} is shown as {shown:?} once it is erased")),
            }
        }
        78..88 => {
            sim.count("pruned by an operator");
            let pass = sim.call(|engine| async move { engine.prune(false).await.is_ok() });
            let _is_done = pass.await;
        }
        88..96 => {
            sim.kill();
            if sim.chance(0.3) {
                sim.lose_store();
            }
            drop(sim.start().await);
        }
        _ => sim.jump(Duration::from_millis(sim.below(1_500))),
    }
}

/// The kills after which faults end. A start makes a call for each stream that no checkpoint covers; where a fifth of the calls fails, it may
/// never succeed.
const KILLS_MAX: usize = 100;
const FAULTS_ENDED: &str = "faults ended for the kills";

/// Kills the service from time to time, at any moment.
fn killer(sim: &Sim) -> Arc<Mutex<bool>> {
    let ends = Arc::new(Mutex::new(false));
    let (sim_in, ends_in) = (sim.clone(), ends.clone());
    let _killing = sim.spawn(async move {
        for _ in 0..KILLS_MAX {
            sim_in.sleep(Duration::from_micros(sim_in.below(6_000_000))).await;
            if *ends_in.lock().unwrap() {
                return;
            }
            sim_in.kill();
        }
        sim_in.count(FAULTS_ENDED);
        end_faults(&sim_in);
    });
    ends
}

fn end_faults(sim: &Sim) {
    let lie = sim.lie();
    sim.set_faults(Faults { lie, ..Faults::none() });
}

async fn live(sim: Sim) {
    let mut models = Models::new();
    sim.restart().await;
    let ends = killer(&sim);
    for number in 1..=80 {
        sim.sleep(Duration::from_micros(sim.below(60_000))).await;
        step(&sim, &mut models, number).await;
    }
    *ends.lock().unwrap() = true;
    end_faults(&sim);
    models.retain(|_, model| model.count > 0);
    // All history kept for a time has expired, and two passes later it is removed.
    for round in 0..2 {
        sim.jump(AGE * 2);
        sim.restart().await;
        // Another event follows, so everything before is covered. Its kind keeps all history.
        write(&sim, (FOREVER, ENTITIES), 1_000 + round).await.unwrap();
        write(&sim, (FOREVER, ENTITIES), 2_000 + round).await.unwrap();
        let pass = sim.call(|engine| async move { engine.prune(false).await.map(drop) });
        pass.await.unwrap().unwrap();
    }
    check_shown(&sim, &models).await;
    check_journal(&sim, &models);
    check_index(&sim, &models).await;
    // The journal alone must be enough.
    sim.kill();
    sim.lose_store();
    sim.restart().await;
    check_shown(&sim, &models).await;
    sim.stop().await.unwrap();
}

/// Checks that the engine shows everything acknowledged.
async fn check_shown(sim: &Sim, models: &Models) {
    for (at, model) in models {
        match (look(sim, *at).await, model.is_over()) {
            (Ok(shown), false) if shown == (model.count, model.sum) => {}
            (Err(Error::Ended { .. }), true) => {}
            (shown, _) => sim.wrong(format!("{at:?} is shown as {shown:?}, it is {model:?}")),
        }
    }
}

/// Checks that the engine shows all remaining events, whichever of them the store has.
async fn check_index(sim: &Sim, models: &Models) {
    let left = sim.history();
    for (kind, id) in models.keys().copied() {
        let shown = sim.call(move |engine| async move { engine.history(kind, &id.to_string(), 0, 1_000).await });
        let shown = match shown.await.unwrap() {
            Ok(history) => history.events,
            Err(FeedError::Engine(Error::Unknown { .. })) => Vec::new(),
            Err(error) => return sim.wrong(format!("the history of {} {id}: {error}", KINDS[kind])),
        };
        if shown != left.events(KINDS[kind], &id.to_string()) {
            let shown: Vec<u64> = shown.iter().map(|event| event.seq).collect();
            sim.wrong(format!("the events {shown:?} are shown of {} {id}", KINDS[kind]));
        }
    }
}

/// Checks that the journal holds exactly the records that must remain.
fn check_journal(sim: &Sim, models: &Models) {
    let history = sim.history();
    for ((kind, id), model) in models {
        let events = history.events(KINDS[*kind], &id.to_string());
        let left: Vec<u64> = events.iter().map(|event| event.seq).collect();
        let all = model.count as usize;
        let expected = match *kind {
            _ if model.is_over() => 0,
            AGED => 0,
            COUNTED => all.min(EVENTS as usize),
            _ => all,
        };
        let is_gapless = left.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let is_last = model.is_anew || left.last().is_none_or(|last| *last == model.count);
        if left.len() != expected || !is_gapless || !is_last {
            sim.wrong(format!(
                "the events {left:?} are left of {} {id}, {model:?}",
                KINDS[*kind]
            ));
        }
        let secret = secret(*kind, *id);
        let knows = |commit: &throng_journal::Commit| {
            let bytes = commit.bytes();
            bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
        };
        if model.is_erased && history.commits.iter().any(knows) {
            sim.wrong(format!("{} {id} was erased, and the journal knows it", KINDS[*kind]));
        }
        let has_end = |commit: &throng_journal::Commit| {
            let mut records = commit.records().flatten();
            records.any(|record| record.record == RecordKind::Ended && record.id == id.to_string())
        };
        if (model.is_over() || model.is_anew) && !history.commits.iter().any(has_end) {
            sim.wrong(format!("nothing says any more that {} {id} has ended", KINDS[*kind]));
        }
    }
}

fn seed(seed: u64, lie: Option<Lie>, keep_trace: bool) -> Result<throng_sim::Run, Box<Failure>> {
    let options = Options {
        keep: keep().into(),
        prune_every: Some(Duration::from_millis([100, 700, 10_000_000][(seed % 3) as usize])),
        memory_bytes_max: [2_500, 1 << 26][(seed / 3 % 2) as usize],
        checkpoint_every: Duration::from_millis([20, 300, 10_000][(seed / 6 % 3) as usize]),
        drain: Duration::from_millis(50),
        ..Options::default()
    };
    let mut faults = match seed % 4 {
        0 => Faults::none(),
        _ => Faults::random(seed),
    };
    faults.lie = lie;
    let simulation = Simulation::new(seed)
        .with::<Diary<FOREVER>>()
        .query::<Diary<FOREVER>, Look>()
        .with::<Diary<AGED>>()
        .query::<Diary<AGED>, Look>()
        .with::<Diary<COUNTED>>()
        .query::<Diary<COUNTED>, Look>()
        .options(options)
        .shards([1, 3][(seed % 2) as usize])
        .faults(faults)
        .keep_trace(keep_trace);
    simulation.try_run(live).map(|((), run)| run)
}

#[test]
fn history_ends_as_it_is_kept_whatever_fails() {
    let test = "history_ends_as_it_is_kept_whatever_fails";
    let happens = [
        "erased",
        "begun anew",
        "begun anew beside an erasure",
        "pruned by an operator",
        "record removed",
        "store lost",
    ];
    for_each_seed_with(("throng-sim", test), 501, &happens, |number, keep_trace| {
        seed(number, None, keep_trace)
    });
}

/// The process dies every three seconds, and every fifth call of journal and store fails. Nine of ten starts are useless, and those that serve add to
/// the history.
#[test]
fn an_erasure_ends_though_each_process_dies_before_it_is_done() {
    match seed(1_511, None, false) {
        Ok(run) => assert_eq!(run.counts.get(FAULTS_ENDED), None, "it ended in spite of them"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn a_pass_looks_only_at_newly_expired_history() {
    let options = Options {
        keep: [("aged".to_owned(), Keep::Age(Duration::from_secs(160)))].into(),
        ..Options::default()
    };
    let options = Options {
        prune_every: Some(Duration::from_secs(10)),
        ..options
    };
    let simulation = Simulation::new(7)
        .with::<Diary<FOREVER>>()
        .with::<Diary<AGED>>()
        .options(options);
    simulation.run(|sim| async move {
        for number in 0..600 {
            write(&sim, (FOREVER, number % ENTITIES), number).await.unwrap();
            if number % 5 == 0 {
                write(&sim, (AGED, number % ENTITIES), 10_000 + number).await.unwrap();
            }
            sim.sleep(Duration::from_secs(1)).await;
        }
        let history = sim.history();
        let records: usize = history.commits.iter().map(|commit| commit.record_count()).sum();
        let (looked_at, passes) = (sim.counted("record looked at"), sim.counted("history removed"));
        assert!(passes > 30 && sim.counted("record removed") > 0, "{passes} passes");
        // Each record is examined once when it may have expired, and some again because passes end in the middle.
        assert!(
            looked_at > 100 && looked_at < 2 * records as u64,
            "{looked_at} looks at {records} records in {passes} passes"
        );
    });
}

/// Returns the remaining records of an aged diary.
fn left(sim: &Sim, id: u64) -> Vec<RecordKind> {
    let history = sim.history();
    let mut found = Vec::new();
    for commit in &history.commits {
        let own = commit.records().flatten();
        let own = own.filter(|record| record.kind == KINDS[AGED] && record.id == id.to_string());
        found.extend(own.map(|record| record.record).filter(|kind| *kind != RecordKind::Key));
    }
    found
}

async fn pass(sim: &Sim) {
    // Another event follows, so a checkpoint covers everything before it.
    write(sim, (FOREVER, 1), 1).await.unwrap();
    let pass = sim.call(|engine| async move { engine.prune(false).await.map(drop) });
    pass.await.unwrap().unwrap();
}

async fn is_ended_once_the_store_is_lost(sim: &Sim, id: u64) -> bool {
    sim.kill();
    sim.lose_store();
    sim.restart().await;
    matches!(look(sim, (AGED, id)).await, Err(Error::Ended { .. }))
}

fn aging(prune_every: Option<Duration>) -> Simulation {
    let options = Options {
        keep: [("aged".to_owned(), Keep::Age(AGE))].into(),
        prune_every,
        ..Options::default()
    };
    Simulation::new(7)
        .with::<Diary<FOREVER>>()
        .with::<Diary<AGED>>()
        .query::<Diary<AGED>, Look>()
        .options(options)
}

#[test]
fn an_end_is_over_no_sooner_than_the_state_recorded_after_it() {
    aging(None).run(|sim| async move {
        write(&sim, (AGED, 1), 1).await.unwrap();
        sim.sleep(AGE * 3 / 4).await;
        close(&sim, 1, 2).await.unwrap();
        sim.sleep(AGE / 2).await;
        pass(&sim).await;
        assert!(left(&sim, 1).contains(&RecordKind::State), "{:?}", left(&sim, 1));
        sim.sleep(AGE * 3 / 4).await;
        pass(&sim).await;
        assert_eq!(left(&sim, 1), [RecordKind::Ended, RecordKind::State]);
        sim.sleep(AGE * 2).await;
        pass(&sim).await;
        assert_eq!(left(&sim, 1), [RecordKind::Ended]);
        assert!(is_ended_once_the_store_is_lost(&sim, 1).await);
    });
}

#[test]
fn a_state_recorded_long_before_the_end_goes_with_it() {
    aging(Some(Duration::from_secs(1))).run(|sim| async move {
        write(&sim, (AGED, 1), 1).await.unwrap();
        for number in 2..40 {
            sim.sleep(Duration::from_secs(1)).await;
            // The records of these writes expire, so passes continue beyond the state.
            write(&sim, (AGED, 2), number).await.unwrap();
            if number == 20 {
                assert_eq!(left(&sim, 1), [RecordKind::State]);
                close(&sim, 1, number).await.unwrap();
            }
        }
        assert_eq!(left(&sim, 1), [RecordKind::Ended]);
        assert!(is_ended_once_the_store_is_lost(&sim, 1).await);
    });
}

/// Checks the report of the first seed that reveals the lie.
fn is_noticed(lie: Lie, words: &str) {
    let noticed = (0..100).find_map(|number| {
        let failure = seed(number, Some(lie), false).err()?;
        let wrong = failure.wrong.into_iter().find(|wrong| wrong.contains(words))?;
        Some((number, wrong))
    });
    match noticed {
        Some((seed, wrong)) => println!("{lie:?} is noticed with seed {seed}: {wrong}"),
        None => panic!("nobody noticed {lie:?}"),
    }
}

#[test]
fn a_store_that_needs_the_first_event_is_noticed() {
    is_noticed(Lie::NeedsFirstEvent, "quarantined");
}

#[test]
fn a_removed_event_without_later_state_is_noticed() {
    is_noticed(Lie::DropsStates, "is shown as");
}

#[test]
fn history_that_goes_though_it_is_kept_is_noticed() {
    is_noticed(Lie::RemovesTooMuch, "are left of");
}
