//! The faults of a simulation, and their shares.

use fastrand::Rng;
use std::{ops::Range, time::Duration};
use throng_journal::{Address, Error, Loaded};

/// The faults of a simulation. Shares are between 0 (never) and 1 (always).
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Share of answers of the journal and the store that arrive later, instead of at once.
    pub later: f64,
    /// The delay, in virtual microseconds.
    pub delay_micros: Range<u64>,
    /// Share of the later answers that stall.
    pub stall: f64,
    /// The length of a stall, in virtual microseconds.
    pub stall_micros: Range<u64>,
    /// The time of an append that is answered at once, in virtual microseconds. Its thread is blocked meanwhile.
    pub sync_micros: Range<u64>,
    /// Share of appends that fail but may have become durable.
    pub in_doubt: f64,
    /// Share of the journal's other calls (open, take, seal, read, sync) that fail.
    pub journal_error: f64,
    /// Share of the store's calls that fail.
    pub store_error: f64,
    /// Share of appends after which the journal takes another number of appends in flight: 1, 2 or 4.
    pub depth_change: f64,
    /// A promise that the journal breaks, to prove that a checker finds it.
    pub lie: Option<Lie>,
}

/// A promise that a journal or store breaks. Only to prove that a checker can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The last acknowledged commit is lost when the process dies.
    LosesAcknowledged,
    /// A commit in doubt becomes durable twice, the second time as the next commit.
    LandsTwice,
    /// Records that a message was taken are lost.
    DropsTaken,
    /// The store forgets the newest events of an entity it covers.
    StaleState,
    /// A sealed writer's commits are acknowledged.
    IgnoresSeals,
    /// An event of a commit with several is lost.
    TearsCommit,
    /// Records of an entity's state are lost, so that nothing replaces its events when they are removed.
    DropsStates,
    /// A removal of history removes all events it reads.
    RemovesTooMuch,
    /// The store does not keep idempotency keys.
    ForgetsKeys,
    /// The store takes an index for damaged if it begins after the first event and has no state.
    NeedsFirstEvent,
    /// A node that takes shards over does not wait for the end of their owners' leases.
    TakesOverAtOnce,
    /// A node measures its lease by its time of day.
    LeaseByTimeOfDay,
    /// A node without sessions at the database counts as dead, and its lease as ended.
    TrustsFreeLock,
    /// A list of streams declares all of them ended, so that whoever merges them continues with the next one too early.
    EndsStreamsEarly,
    /// Messages of another node are reported as taken before they are durable.
    TakesBeforeDurable,
    /// A node sees no newer release.
    SeesNoNewer,
    /// A node uses the last answer about the others, however old.
    LooksTooEarly,
    /// Messages are removed with the history of a node's shards whether or not they were taken.
    RemovesMessages,
    /// A node that owns a part of a stream removes the history of other nodes' shards from it, too.
    RemovesOthers,
}

impl Lie {
    /// Returns what a store with [`NeedsFirstEvent`](Self::NeedsFirstEvent) would return for the entity.
    pub(crate) fn judge(lie: Option<Self>, of: &Address, loaded: Loaded) -> Result<Loaded, Error> {
        let begins_late = loaded.state.is_none() && loaded.events.first().is_some_and(|first| first.seq > 1);
        match lie {
            Some(Self::NeedsFirstEvent) if begins_late => Err(Error::Row {
                address: of.clone(),
                why: "a simulated fault: the index does not begin with event 1".into(),
            }),
            _ => Ok(loaded),
        }
    }
}

impl Faults {
    /// Returns no faults: everything is answered at once.
    #[must_use]
    pub fn none() -> Self {
        Self {
            later: 0.0,
            delay_micros: 1..2,
            stall: 0.0,
            stall_micros: 1..2,
            sync_micros: 0..1,
            in_doubt: 0.0,
            journal_error: 0.0,
            store_error: 0.0,
            depth_change: 0.0,
            lie: None,
        }
    }

    /// Returns random faults for a seed. Some are off altogether, so that the others are reached.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x6661_756C_7473);
        let mut share = |most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
        let mut faults = Self {
            later: share(1.0),
            stall: share(0.02),
            in_doubt: share(0.08),
            journal_error: share(0.2),
            store_error: share(0.2),
            depth_change: share(0.3),
            ..Self::none()
        };
        let scale = *rng.choice(&[20, 300, 3_000, 30_000]).unwrap_or(&300);
        faults.delay_micros = 1..scale;
        faults.stall_micros = 50_000..3_000_000;
        faults
    }

    /// Returns the delay of an answer; `None`: there is no answer.
    pub(crate) fn wait(&self, rng: &mut Rng) -> Option<Duration> {
        if rng.f64() >= self.later {
            return None;
        }
        let micros = if rng.f64() < self.stall {
            rng.u64(self.stall_micros.clone())
        } else {
            rng.u64(self.delay_micros.clone())
        };
        Some(Duration::from_micros(micros))
    }
}
