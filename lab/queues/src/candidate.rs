//! The candidates.

use crate::{
    channels::{Arrays, Channel, Crossbeam, Flume, Kanal, Single, Tokio},
    level::{self, Level},
    ours::Ours,
    surge::{self, Surge},
    way::Way,
};
use serde::{Deserialize, Serialize};
use std::{fmt, marker::PhantomData};
use throng_queue::HandOver;

/// A queue, and the way trades are passed through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Candidate {
    /// The batching queue with its default settings.
    Adaptive,
    /// The batching queue with batches of a fixed number of items.
    Every(usize),
    /// A rival, one item at a time.
    Single(Rival),
    /// A rival with recycled arrays of this many items.
    Arrays(Rival, usize),
}

/// A channel from another crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rival {
    /// The bounded channel of `crossbeam-channel`.
    Crossbeam,
    /// The bounded channel of `flume`.
    Flume,
    /// The bounded channel of `kanal`.
    Kanal,
    /// The mpsc channel of tokio, used from threads.
    Tokio,
}

impl Rival {
    /// The rivals in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Crossbeam, Self::Flume, Self::Kanal, Self::Tokio];

    fn name(self) -> &'static str {
        match self {
            Self::Crossbeam => "crossbeam",
            Self::Flume => "flume",
            Self::Kanal => "kanal",
            Self::Tokio => "tokio mpsc",
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => out.write_str("throng adaptive"),
            Self::Every(items) => write!(out, "throng batch {items}"),
            Self::Single(rival) => out.write_str(rival.name()),
            Self::Arrays(rival, items) => write!(out, "{} Vec<{items}>", rival.name()),
        }
    }
}

/// Runs the measurements on any [`Way`].
trait Measure {
    type Figures;
    fn of(&self, way: &impl Way) -> Self::Figures;
}

impl Measure for Surge {
    type Figures = surge::Figures;
    fn of(&self, way: &impl Way) -> surge::Figures {
        surge::surge(way, self)
    }
}

impl Measure for Level {
    type Figures = level::Figures;
    fn of(&self, way: &impl Way) -> level::Figures {
        level::level(way, self)
    }
}

impl Candidate {
    /// Returns the batching queue and its rivals. Their arrays are as large as its full batches.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let ours = [
            Self::Adaptive,
            Self::Every(1),
            Self::Every(10),
            Self::Every(100),
            Self::Every(1_000),
        ];
        let single = Rival::ALL.map(Self::Single);
        let arrays = Rival::ALL.map(|rival| Self::Arrays(rival, 1_000));
        [&ours[..], &single, &arrays].concat()
    }

    pub(crate) fn surge(self, surge: &Surge) -> surge::Figures {
        self.measure(surge)
    }

    pub(crate) fn level(self, level: &Level) -> level::Figures {
        self.measure(level)
    }

    fn measure<M: Measure>(self, measure: &M) -> M::Figures {
        match self {
            Self::Adaptive => measure.of(&Ours(HandOver::Adaptive)),
            Self::Every(items) => measure.of(&Ours(HandOver::Every(items))),
            Self::Single(rival) => rival.measure(measure, None),
            Self::Arrays(rival, items) => rival.measure(measure, Some(items)),
        }
    }
}

impl Rival {
    fn measure<M: Measure>(self, measure: &M, items: Option<usize>) -> M::Figures {
        fn of<C: Channel, M: Measure>(measure: &M, items: Option<usize>) -> M::Figures {
            match items {
                None => measure.of(&Single::<C>(PhantomData)),
                Some(items) => measure.of(&Arrays::<C>(items, PhantomData)),
            }
        }
        match self {
            Self::Crossbeam => of::<Crossbeam, M>(measure, items),
            Self::Flume => of::<Flume, M>(measure, items),
            Self::Kanal => of::<Kanal, M>(measure, items),
            Self::Tokio => of::<Tokio, M>(measure, items),
        }
    }
}
