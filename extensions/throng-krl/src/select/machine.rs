/// The initial state.
pub(crate) const START: u16 = 0;
/// The accepting state, which selects the rule.
pub(crate) const END: u16 = 1;

/// A nondeterministic machine over events. It may be in several states at once. An event that fits no transition changes nothing. Otherwise the
/// machine moves to the targets of all transitions that fit.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The transitions of each state.
    transitions: Vec<Vec<(Trigger, u16)>>,
    /// True if the first event decides, so that nothing has to be remembered.
    is_single: bool,
    /// The fingerprint that distinguishes this machine's states from those of another.
    fingerprint: u64,
}

/// The condition for a transition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trigger {
    /// An event that this pattern of the rule matches.
    Event(u16),
    Not(Box<Trigger>),
    /// Any of these. They are tried in order, and the first that holds counts.
    Or(Vec<Trigger>),
}

impl Machine {
    /// Returns a machine that one event completes: the first pattern's.
    pub(crate) fn single() -> Machine {
        Machine::new(vec![vec![(Trigger::Event(0), END)], Vec::new()])
    }

    pub(super) fn new(transitions: Vec<Vec<(Trigger, u16)>>) -> Machine {
        let is_single = transitions.iter().enumerate().all(|(from, ways)| {
            let is_plain = |(trigger, to): &(Trigger, u16)| *to == END && matches!(trigger, Trigger::Event(_));
            ways.is_empty() || (from == usize::from(START) && ways.iter().all(is_plain))
        });
        let mut hash = Fnv::default();
        for ways in &transitions {
            hash.add(u64::MAX);
            for (trigger, to) in ways {
                trigger.hash(&mut hash);
                hash.add(u64::from(*to));
            }
        }
        Machine {
            transitions,
            is_single,
            fingerprint: hash.0,
        }
    }

    /// Returns the transitions of a state.
    pub(crate) fn ways(&self, state: u16) -> &[(Trigger, u16)] {
        self.transitions.get(usize::from(state)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_single(&self) -> bool {
        self.is_single
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Trigger {
    fn hash(&self, hash: &mut Fnv) {
        match self {
            Trigger::Event(pattern) => hash.add(u64::from(*pattern) << 8 | 1),
            Trigger::Not(inner) => {
                hash.add(2);
                inner.hash(hash);
            }
            Trigger::Or(inner) => {
                hash.add((inner.len() as u64) << 8 | 3);
                for trigger in inner {
                    trigger.hash(hash);
                }
            }
        }
    }
}

/// A hash that stays the same in all versions of the program, because it is stored (FNV-1a over words).
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }
}
