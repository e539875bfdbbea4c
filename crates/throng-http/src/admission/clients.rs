//! Fairness between clients, without clock, sockets or tasks: no client may take all the waiting room.

use std::collections::BTreeMap;

/// The share of the waiting room that one client may take while no other waits, so that the next client finds room.
const ALONE_SHARE: (u64, u64) = (3, 4);

/// A client's number, derived from its address or the value of a trusted header.
pub(crate) type Client = u64;

/// This machine itself, which may take all the room while no other client waits.
pub(crate) const LOCAL: Client = 0;

/// The number of waiting requests of each client.
#[derive(Default)]
pub(super) struct Clients {
    /// An ordered map, since few clients wait at a time. A hash that clients cannot foresee costs more than the search.
    waiting: BTreeMap<Client, u64>,
}

impl Clients {
    /// Counts one more waiting request of a client; `false` if the client has its share of the room already.
    pub(super) fn enter(&mut self, client: Client, room: usize) -> bool {
        let own = self.waiting.get(&client).copied().unwrap_or_default();
        let others = self.waiting.len() as u64 - u64::from(own > 0);
        if own >= share(client, others, room as u64) {
            return false;
        }
        *self.waiting.entry(client).or_default() += 1;
        true
    }

    /// Counts one waiting request of a client less.
    pub(super) fn leave(&mut self, client: Client) {
        if let Some(waiting) = self.waiting.get_mut(&client) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&client);
            }
        }
    }
}

/// Returns the share of the room that a client may take, at least one place.
fn share(client: Client, others: u64, room: u64) -> u64 {
    let share = match others {
        0 if client == LOCAL => return u64::MAX,
        0 => u128::from(room) * u128::from(ALONE_SHARE.0) / u128::from(ALONE_SHARE.1),
        others => u128::from(room) / u128::from(others + 1),
    };
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 100;

    /// Enters as often as admitted. Returns the number of times.
    fn fill(clients: &mut Clients, client: Client) -> u64 {
        let mut entered = 0;
        while entered <= 1_000 && clients.enter(client, ROOM) {
            entered += 1;
        }
        entered
    }

    #[test]
    fn one_that_is_alone_leaves_room_for_the_next() {
        let mut clients = Clients::default();
        assert_eq!(fill(&mut clients, 1), 75);
        // The first client has more than half by now, so it gets no more. The second gets up to its half.
        assert_eq!((fill(&mut clients, 2), fill(&mut clients, 1)), (50, 0));
        for _ in 0..30 {
            clients.leave(1);
        }
        assert_eq!(fill(&mut clients, 1), 5);
    }

    #[test]
    fn this_machine_may_take_all_of_it_while_nobody_else_waits() {
        let mut clients = Clients::default();
        assert_eq!(
            fill(&mut clients, LOCAL),
            1_001,
            "what is too much for all is not refused here"
        );
        assert_eq!(fill(&mut clients, 7), 50);
        assert_eq!(fill(&mut clients, LOCAL), 0);
    }

    #[test]
    fn whoever_has_left_counts_no_more() {
        let mut clients = Clients::default();
        fill(&mut clients, 1);
        fill(&mut clients, 2);
        (0..50).for_each(|_| clients.leave(2));
        assert!(!clients.waiting.contains_key(&2));
        clients.leave(2);
        assert_eq!(fill(&mut clients, 1), 0);
        clients.leave(1);
        assert_eq!(fill(&mut clients, 1), 1);
    }

    #[test]
    fn everybody_may_wait_with_one() {
        let mut clients = Clients::default();
        for client in 1..1_000 {
            assert!(clients.enter(client, ROOM));
        }
    }
}
