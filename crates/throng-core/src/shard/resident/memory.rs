//! The bytes that a shard counts, compared with those it allocates.

use crate::{
    limits,
    model::Timestamp,
    shard::{
        Recalled, Rows,
        tests::{Bench, Command, FIRST, Open},
    },
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};
use throng_journal::{Address, CommitNo, StoredState};

thread_local! {
    /// The bytes that this thread has allocated and not freed.
    static TAKEN: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a count for each thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    let _ = TAKEN.try_with(|taken| taken.set(taken.get() + bytes));
}

#[allow(unsafe_code, reason = "the trait has it so")]
// SAFETY: both do what the system's allocator does.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps to the trait's rules, and nothing but the system's allocator is asked.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps to the trait's rules; the place came from `alloc`, so from the system's allocator.
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's place and layout.
        unsafe { System.dealloc(place, layout) }
    }
}

const ENTITIES: usize = 3_000;

/// A shard, and the bytes allocated when it was empty.
struct Weighed {
    bench: Bench,
    before: isize,
}

impl Weighed {
    fn new() -> Self {
        let mut bench = Bench::new();
        bench.ask("warm", Command::Tick).unwrap();
        let before = TAKEN.get();
        Self { bench, before }
    }

    fn deposit(&mut self) {
        for n in 0..ENTITIES {
            self.ask(&format!("entity-{n}"), Command::Deposit { amount: 1 });
        }
    }

    /// Loads each entity from the store, and lets it set a timer.
    fn remind(&mut self) {
        for n in 0..ENTITIES {
            let id = format!("entity-{n}");
            self.load(&id);
            self.ask(&id, Command::Remind { at: 1 << 50 });
        }
    }

    fn ask(&mut self, id: &str, command: Command) {
        // The filter of ids takes a few new ids for known ones.
        if self.bench.shard.glance(0, limits::hash("account", id), id).is_none() {
            let nothing = Recalled::default();
            self.bench.shard.loaded(0, limits::hash("account", id), id, nothing);
        }
        self.bench.ask(id, command).unwrap();
        self.bench.open = Open::default();
    }

    fn load(&mut self, id: &str) {
        let bytes = [&[0; 4][..], br#"{"balance":1}"#].concat();
        let state = StoredState {
            address: Address::new("account", id),
            shard: self.bench.shard.id(),
            seq: 1,
            version: 1,
            bytes,
        };
        let mut read = Recalled::default();
        read.stored.state = Some(state);
        self.bench.shard.loaded(0, limits::hash("account", id), id, read);
    }

    fn checkpoint(&mut self) {
        self.bench.shard.checkpoint(Timestamp::default(), &mut Rows::default());
        self.bench.shard.checkpointed(FIRST);
    }

    /// Returns the allocated bytes, and those that the shard counts.
    fn weigh(&self) -> (usize, usize) {
        let load = self.bench.shard.load();
        let taken = TAKEN.get() - self.before;
        (taken.max(0).cast_unsigned(), load.bytes + load.pending_bytes)
    }

    fn assert_counted(&self, what: &str) {
        let (taken, counted) = self.weigh();
        assert!(
            taken <= counted + counted / 5,
            "{what}: {taken} bytes are taken, {counted} counted"
        );
    }
}

//= promise 9: everything is bounded
#[test]
fn bytes_that_a_shard_takes_are_counted() {
    let mut weighed = Weighed::new();
    weighed.deposit();
    weighed.assert_counted("in memory, with an event");
    weighed.bench.shard.passivate(usize::MAX, CommitNo(0));
    weighed.assert_counted("passivated, with a state on its way to the store");
    weighed.checkpoint();
    weighed.remind();
    weighed.assert_counted("in memory, with a timer");
    weighed.bench.shard.passivate(usize::MAX, CommitNo(0));
    weighed.assert_counted("passivated, while the commit of its timer is open");
}

#[test]
fn entity_leaves_no_bytes_once_its_timer_is_durable() {
    let mut weighed = Weighed::new();
    weighed.deposit();
    weighed.bench.shard.passivate(usize::MAX, CommitNo(0));
    weighed.checkpoint();
    let (empty, _) = weighed.weigh();
    assert!(empty < 48 * ENTITIES, "{empty} bytes are left of entities in the store");
    weighed.remind();
    weighed.bench.shard.passivate(usize::MAX, FIRST.commit);
    let (taken, _) = weighed.weigh();
    let common = &weighed.bench.shard.common;
    let timers = common.timers.bytes() + common.timers.pending_bytes();
    assert!(common.resident <= 1, "{} entities are in memory", common.resident);
    assert!(
        taken < empty + timers + timers / 5,
        "{taken} bytes are taken, {empty} before and {timers} for the timers"
    );
}
