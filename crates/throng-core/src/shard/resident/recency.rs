//! The order in which entities were used last: segmented least recently used (Karedla et al., 1994).
//!
//! The first use puts an entity on **probation**, a second one **protects** it. Victims come from probation first, so
//! that a scan over ids used once does not push out those used again and again.

/// The neighbours of an entity in its list. Part of the slot; `u32::MAX` means none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    older: u32,
    newer: u32,
    segment: Segment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    Out,
    Probation,
    Protected,
}

const NONE: u32 = u32::MAX;

impl Default for Links {
    fn default() -> Self {
        Self {
            older: NONE,
            newer: NONE,
            segment: Segment::Out,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    oldest: u32,
    newest: u32,
    len: usize,
}

/// Both lists of a table. The links live in the table's slots.
#[derive(Debug)]
pub(crate) struct Recency {
    probation: Ends,
    protected: Ends,
    used_last: u32,
}

impl Default for Recency {
    fn default() -> Self {
        let ends = Ends {
            oldest: NONE,
            newest: NONE,
            len: 0,
        };
        Self {
            probation: ends,
            protected: ends,
            used_last: NONE,
        }
    }
}

/// Gives access to the links of a slot.
pub(crate) trait Linked {
    fn links(&mut self, at: u32) -> &mut Links;
}

impl Recency {
    fn ends(&mut self, segment: Segment) -> &mut Ends {
        if segment == Segment::Protected {
            &mut self.protected
        } else {
            &mut self.probation
        }
    }

    /// Moves an entity to the front, because it was just used.
    pub(crate) fn used(&mut self, slots: &mut impl Linked, at: u32) {
        let links = *slots.links(at);
        if links.newer == NONE && links.segment == Segment::Protected {
            self.used_last = at;
            return;
        }
        let segment = if links.segment == Segment::Out {
            Segment::Probation
        } else {
            Segment::Protected
        };
        self.remove(slots, at);
        self.push(slots, at, segment);
        self.used_last = at;
        // The protected list may hold four fifths. Its oldest entity goes back on probation.
        if segment == Segment::Protected && self.protected.len > 4 * (self.probation.len + 1) {
            let oldest = self.protected.oldest;
            self.remove(slots, oldest);
            self.push(slots, oldest, Segment::Probation);
        }
    }

    fn push(&mut self, slots: &mut impl Linked, at: u32, segment: Segment) {
        let ends = self.ends(segment);
        let newest = std::mem::replace(&mut ends.newest, at);
        ends.len += 1;
        if newest == NONE {
            ends.oldest = at;
        } else {
            slots.links(newest).newer = at;
        }
        *slots.links(at) = Links {
            older: newest,
            newer: NONE,
            segment,
        };
    }

    /// Takes an entity out of its list.
    pub(crate) fn remove(&mut self, slots: &mut impl Linked, at: u32) {
        if self.used_last == at {
            self.used_last = NONE;
        }
        let links = std::mem::take(slots.links(at));
        if links.segment == Segment::Out {
            return;
        }
        match links.older {
            NONE => self.ends(links.segment).oldest = links.newer,
            older => slots.links(older).newer = links.newer,
        }
        match links.newer {
            NONE => self.ends(links.segment).newest = links.older,
            newer => slots.links(newer).older = links.older,
        }
        self.ends(links.segment).len -= 1;
    }

    /// Returns the entity to passivate next. It is never the one used last, because a newcomer would be gone before its command has run.
    pub(crate) fn victim(&self) -> Option<u32> {
        let oldest = [self.probation.oldest, self.protected.oldest];
        oldest.into_iter().find(|at| *at != NONE && *at != self.used_last)
    }

    /// Returns the entity used last, which is never a victim.
    pub(crate) fn used_last(&self) -> Option<u32> {
        Some(self.used_last).filter(|at| *at != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Linked for Vec<Links> {
        fn links(&mut self, at: u32) -> &mut Links {
            &mut self[at as usize]
        }
    }

    #[test]
    fn one_scan_does_not_push_out_entities_in_use() {
        let (mut slots, mut recency) = (vec![Links::default(); 10], Recency::default());
        for at in [0, 1, 0, 1, 2, 3, 4, 9] {
            recency.used(&mut slots, at);
        }
        let victims: Vec<u32> = std::iter::from_fn(|| {
            let at = recency.victim()?;
            recency.remove(&mut slots, at);
            Some(at)
        })
        .collect();
        assert_eq!(victims, [2, 3, 4, 0, 1], "and 9, the last used, stays");
    }

    proptest! {
        #[test]
        fn every_entity_is_a_victim_once(uses in proptest::collection::vec((0u32..20, any::<bool>()), 0..200)) {
            let (mut slots, mut recency) = (vec![Links::default(); 20], Recency::default());
            let mut here = std::collections::BTreeSet::new();
            for (at, keep) in uses {
                if keep { recency.used(&mut slots, at); here.insert(at); }
                else { recency.remove(&mut slots, at); here.remove(&at); }
                prop_assert_eq!(recency.probation.len + recency.protected.len, here.len());
            }
            while let Some(at) = recency.victim() {
                prop_assert!(here.remove(&at));
                recency.remove(&mut slots, at);
            }
            prop_assert!(here.len() <= 1, "only the last used is left");
        }
    }
}
