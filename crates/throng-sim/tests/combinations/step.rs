//! The steps of a world, in an order determined by the seed.

use crate::{disk::Hit, model::Of};

/// The number of diaries of each kind.
pub(crate) const DIARIES: u64 = 2;

/// The end of a restored history.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    End,
    /// A moment, in thousandths of the time since the first one.
    Time(usize),
    Commit(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Stop,
    Kill,
    PowerLoss(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Writes this many times, and begins the diary if it has ended. The last write also sends the number to the other diary of the kind.
    Write {
        of: Of,
        times: u64,
        sends: bool,
    },
    Close(Of),
    Erase(Of),
    Jump {
        millis: u64,
    },
    Pass,
    Checkpoint,
    /// Compacts the store, with a running service or without.
    Compact {
        is_stopped: bool,
    },
    End {
        end: End,
        is_store_lost: bool,
    },
    /// Rebuilds the read model, by request to the engine or by losing its rows.
    Rebuild {
        are_rows_lost: bool,
    },
    Backup,
    /// Updates the copy with a backup that follows.
    Follow,
    /// Updates the copy in the middle of a pass or an erasure, after this many more syncs.
    BackupAmid {
        erases: Option<Of>,
        syncs: u64,
        /// True if the process dies right afterwards.
        is_killed: bool,
    },
    Restore {
        is_of_copy: bool,
        until: Until,
        with_archive: bool,
        /// True if the service continues on the restored journal.
        is_adopted: bool,
    },
}

/// An action, and a fault this many disk calls or database statements later.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) hit: Option<(u64, Hit)>,
}

impl Step {
    pub(crate) fn of(action: Action) -> Self {
        Self { action, hit: None }
    }

    pub(crate) fn hit(self, calls: u64, hit: Hit) -> Self {
        Self {
            hit: Some((calls, hit)),
            ..self
        }
    }

    pub(crate) fn all(seed: u64, count: usize, has_copies: bool) -> Vec<Self> {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0d1a_71e5);
        let mut steps: Vec<Self> = Vec::new();
        for _ in 0..count {
            let next = steps.last().filter(|_| has_copies && rng.bool());
            let next = next.and_then(|last| last.next(&mut rng));
            let step = next.unwrap_or_else(|| Self::random(&mut rng, has_copies));
            steps.push(step);
        }
        steps
    }

    /// Returns a step that may reveal damage done by this one.
    fn next(&self, rng: &mut fastrand::Rng) -> Option<Self> {
        let action = match (&self.action, &self.hit) {
            (Action::BackupAmid { is_killed: true, .. }, _) => Action::Backup,
            (Action::Backup | Action::Follow | Action::BackupAmid { .. }, Some(_)) => Action::Restore {
                is_of_copy: true,
                until: Until::End,
                with_archive: false,
                is_adopted: rng.bool(),
            },
            (Action::Erase(_) | Action::Pass, None) => {
                let hit = rng.bool().then(|| (rng.u64(..150), Hit::Death));
                return Some(Self {
                    action: if rng.bool() { Action::Backup } else { Action::Follow },
                    hit,
                });
            }
            (Action::Backup | Action::Follow, None) if rng.bool() => Action::End {
                end: End::Kill,
                is_store_lost: false,
            },
            _ => return None,
        };
        Some(Self::of(action))
    }

    fn random(rng: &mut fastrand::Rng, has_copies: bool) -> Self {
        let of = (rng.usize(..3), rng.u64(..DIARIES));
        let times = 1 + of_some(rng, [1, 3, 8]);
        let calls = of_some(rng, [10, 60, 300]);
        let action = match rng.u64(..if has_copies { 100 } else { 78 }) {
            0..30 => Action::Write {
                of,
                times,
                sends: rng.u64(..3) == 0,
            },
            30..38 => Action::Close(of),
            38..43 => Action::Erase(of),
            43..49 => Action::Jump {
                millis: rng.u64(..3_000),
            },
            49..58 => Action::Pass,
            58..62 => Action::Checkpoint,
            62..64 => Action::Compact { is_stopped: rng.bool() },
            64..74 => Action::End {
                end: match rng.u64(..3) {
                    0 => End::Stop,
                    1 => End::Kill,
                    _ => End::PowerLoss(rng.u64(..)),
                },
                is_store_lost: rng.u64(..4) == 0,
            },
            74..78 => Action::Rebuild {
                are_rows_lost: rng.bool(),
            },
            78..84 => Action::Backup,
            84..88 => Action::Follow,
            88..92 => Action::BackupAmid {
                erases: rng.bool().then_some(of),
                syncs: rng.u64(..12),
                is_killed: rng.bool(),
            },
            _ => Action::Restore {
                is_of_copy: rng.bool(),
                until: match rng.u64(..4) {
                    0 => Until::End,
                    1 => Until::Commit(rng.usize(..1_000)),
                    _ => Until::Time(rng.usize(..1_000)),
                },
                with_archive: rng.u64(..3) == 0,
                is_adopted: rng.u64(..3) == 0,
            },
        };
        let is_hit = rng.u64(..5) == 0 && !matches!(action, Action::Rebuild { .. });
        let hit = if rng.u64(..3) == 0 { Hit::Failure } else { Hit::Death };
        Self {
            action,
            hit: is_hit.then_some((calls, hit)),
        }
    }
}

/// Returns a number below one of these limits.
fn of_some(rng: &mut fastrand::Rng, limits: [u64; 3]) -> u64 {
    let limit = limits[rng.usize(..limits.len())];
    rng.u64(..limit)
}
