//! The entities of a shard that are executed most, according to a sample: space-saving counters (Metwally, Agrawal, El Abbadi: "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", 2005), over the last two time windows.

use crate::model::Timestamp;

/// Entities that are counted in a window.
const COUNTERS: usize = 8;
const WINDOW_MICROS: i64 = 4_000_000;

/// An entity that is executed often.
#[derive(Clone, Debug, PartialEq)]
pub struct HotEntity {
    /// The kind's index in the registry.
    pub kind: usize,
    /// The id in its address.
    pub id: Box<str>,
    /// A lower bound of its executions a second in the sample.
    pub seen_per_second: f64,
}

/// The counters of the present and of the previous window.
#[derive(Debug, Default)]
pub(crate) struct Hot {
    current: Vec<Counter>,
    before: Vec<Counter>,
    /// The time when the current window began, in microseconds.
    begun: i64,
    pub(crate) done: u64,
}

#[derive(Debug)]
struct Counter {
    kind: usize,
    hash: u64,
    id: Box<str>,
    count: u64,
    /// The part of `count` that may belong to the counter's former entities.
    others: u64,
}

impl Counter {
    fn is_of(&self, kind: usize, hash: u64, id: &str) -> bool {
        self.hash == hash && self.kind == kind && &*self.id == id
    }
}

impl Hot {
    fn roll(&mut self, now: Timestamp) {
        let since = now.micros.saturating_sub(self.begun);
        if since < WINDOW_MICROS {
            return;
        }
        self.before = std::mem::take(&mut self.current);
        if since >= 2 * WINDOW_MICROS {
            self.before.clear();
        }
        self.begun = now.micros;
    }

    pub(crate) fn see(&mut self, (kind, hash, id): (usize, u64, &str), now: Timestamp) {
        self.roll(now);
        if let Some(own) = self.current.iter_mut().find(|counter| counter.is_of(kind, hash, id)) {
            own.count += 1;
            return;
        }
        let others = if self.current.len() < COUNTERS {
            0
        } else {
            let least = (0..COUNTERS).min_by_key(|at| self.current[*at].count).unwrap_or(0);
            self.current.swap_remove(least).count
        };
        self.current.push(Counter {
            kind,
            hash,
            id: id.into(),
            count: others + 1,
            others,
        });
    }

    pub(crate) fn list(&mut self, now: Timestamp) -> Vec<HotEntity> {
        self.roll(now);
        let current = now.micros.saturating_sub(self.begun).max(0);
        // Without a previous window, the present one began with the first execution.
        let seconds = (current + WINDOW_MICROS) as f64 / 1e6;
        let mut found: Vec<(&Counter, u64)> = Vec::new();
        for counter in self.current.iter().chain(&self.before) {
            let sure = counter.count - counter.others;
            match found
                .iter_mut()
                .find(|(own, _)| own.is_of(counter.kind, counter.hash, &counter.id))
            {
                Some((_, count)) => *count += sure,
                None => found.push((counter, sure)),
            }
        }
        let found = found.into_iter().map(|(counter, count)| HotEntity {
            kind: counter.kind,
            id: counter.id.clone(),
            seen_per_second: count as f64 / seconds,
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp { micros }
    }

    fn of<'a>(list: &'a [HotEntity], id: &str) -> Option<&'a HotEntity> {
        list.iter().find(|hot| &*hot.id == id)
    }

    #[test]
    fn the_one_that_is_asked_most_is_found_among_many_others() {
        let mut hot = Hot {
            begun: 1,
            ..Hot::default()
        };
        for n in 0_u64..4_000 {
            let now = at(1 + i64::try_from(n).unwrap() * 1_000);
            hot.see((0, n, &format!("other {n}")), now);
            if n % 4 == 0 {
                hot.see((0, u64::MAX, "hot"), now);
            }
        }
        let list = hot.list(at(4_000_000));
        let found = of(&list, "hot").unwrap().seen_per_second;
        assert!((100.0..=126.0).contains(&found), "1,000 in 8 s: {found}");
        assert!(list.len() <= 2 * COUNTERS);
        let others = list.iter().filter(|hot| &*hot.id != "hot");
        assert!(others.into_iter().all(|other| other.seen_per_second < 1.0), "{list:?}");
    }

    #[test]
    fn hot_entities_are_forgotten_without_requests() {
        let mut hot = Hot {
            begun: 0,
            ..Hot::default()
        };
        for _ in 0..100 {
            hot.see((3, 7, "a"), at(1));
        }
        assert_eq!(hot.list(at(WINDOW_MICROS))[0].kind, 3, "the window before");
        assert!(of(&hot.list(at(WINDOW_MICROS + 1)), "a").is_some());
        assert!(hot.list(at(2 * WINDOW_MICROS)).is_empty());
        hot.see((3, 7, "a"), at(9 * WINDOW_MICROS));
        assert!(hot.list(at(50 * WINDOW_MICROS)).is_empty());
    }
}
