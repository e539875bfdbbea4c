//! Compares the answers to clients with the final contents of the journal.

use crate::{
    account::{Account, AccountEvent, Command, Fact, KIND, Mode, View, fold},
    book::{Asked, Entries, Told},
    relay,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use throng::model::{Entity, Event, Recorded};
use throng_core::tagged;
use throng_journal::{Position, StoredEvent};
use throng_sim::{History, SentMessage};

/// An event of an account.
struct Entry {
    name: String,
    fact: Fact,
    /// The timer's name, for a plan, a tick or a cancellation.
    timer: String,
    due: i64,
    times: u32,
    at_micros: i64,
    position: Position,
}

pub(crate) struct Checker<'a> {
    history: &'a History,
    entries: &'a Entries,
    accounts: BTreeMap<u64, Vec<Entry>>,
    /// The views shown of each account, by the number of events.
    views: BTreeMap<u64, Vec<View>>,
    messages: Vec<SentMessage>,
    /// The time of the last power failure. States shown before may be lost.
    power_lost: Option<Duration>,
    /// True if a generation ran that cannot apply bombs.
    bombs: bool,
    wrong: Vec<String>,
}

fn read(name: &str, payload: &[u8]) -> (Fact, serde_json::Value) {
    let value: serde_json::Value = serde_json::from_slice(payload).unwrap_or_else(|why| panic!("{name}: {why}"));
    let fact = Fact {
        op: value["op"].as_u64().unwrap(),
        part: value["part"].as_u64().unwrap() as u32,
        amount: value["amount"].as_i64().unwrap(),
    };
    (fact, value)
}

/// Applies an event to a view, independently of `Account::evolve`.
pub(crate) fn apply(view: &mut View, name: &str, payload: &[u8]) {
    let (fact, _) = read(name, payload);
    view.count += 1;
    view.digest = fold(view.digest, name, fact);
    view.balance += fact.amount;
}

/// Returns the state of an account after these events, by its own `evolve`.
pub(crate) fn replayed(id: u64, events: &[StoredEvent]) -> View {
    let mut account = Account::<3>::default();
    for event in events {
        let mut recorded = Recorded {
            name: event.name.to_string().into(),
            version: event.version,
            payload: serde_json::from_slice(&event.payload).unwrap(),
        };
        if recorded.version != AccountEvent::<3>::version(&recorded.name) {
            recorded = AccountEvent::<3>::upcast(recorded).unwrap();
        }
        let payload = serde_json::to_vec(&recorded.payload).unwrap();
        account.evolve(&tagged::from_parts(&recorded.name, &payload).unwrap());
    }
    account.view(id)
}

impl<'a> Checker<'a> {
    pub(crate) fn new(
        history: &'a History,
        shards: u16,
        entries: &'a Entries,
        power_lost: Option<Duration>,
        bombs: bool,
    ) -> Self {
        let (mut accounts, mut views) = (BTreeMap::new(), BTreeMap::new());
        for address in history.entities().into_keys().filter(|address| &*address.kind == KIND) {
            let id: u64 = address.id.parse().unwrap();
            let mut view = View { id, ..View::default() };
            let (mut account, mut shown) = (Vec::new(), vec![view.clone()]);
            for event in history.events(KIND, &address.id) {
                let (fact, value) = read(&event.name, &event.payload);
                apply(&mut view, &event.name, &event.payload);
                shown.push(view.clone());
                account.push(Entry {
                    name: event.name.to_string(),
                    fact,
                    timer: value["name"].as_str().unwrap_or_default().to_owned(),
                    due: value["due"].as_i64().unwrap_or_default(),
                    times: value["times"].as_u64().unwrap_or_default() as u32,
                    at_micros: event.at_micros,
                    position: event.position,
                });
            }
            accounts.insert(id, account);
            views.insert(id, shown);
        }
        Self {
            history,
            entries,
            accounts,
            views,
            messages: history.messages(shards).0,
            power_lost,
            bombs,
            wrong: Vec::new(),
        }
    }

    fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    fn may_be_lost(&self, at: Duration) -> bool {
        self.power_lost.is_some_and(|lost| at <= lost)
    }

    fn has(&self, id: u64, name: &str, op: u64) -> usize {
        let entries = self.accounts.get(&id).map_or(&[][..], Vec::as_slice);
        entries
            .iter()
            .filter(|entry| entry.name == name && entry.fact.op == op)
            .count()
    }

    pub(crate) fn check(mut self, stale_reads: bool) -> Vec<String> {
        self.check_shown();
        if !stale_reads && self.power_lost.is_none() {
            self.check_order();
        }
        self.check_once();
        self.check_operations();
        self.check_money();
        self.check_requests();
        self.check_timers();
        self.check_dead();
        self.wrong
    }

    /// Promise 3: every state shown is a prefix of the final history.
    fn check_shown(&mut self) {
        let mut wrong = Vec::new();
        for shown in &self.entries.shown {
            // The answer to a query may be in flight when the power fails.
            let since = if shown.what == "a query" {
                shown.began
            } else {
                shown.ended
            };
            if shown.view.count == 0 || self.may_be_lost(since) {
                continue;
            }
            let at = usize::try_from(shown.view.count).unwrap();
            let there = self.views.get(&shown.view.id).and_then(|views| views.get(at));
            let same = match shown.what {
                "a list" => there.is_some(),
                _ => there == Some(&shown.view),
            };
            if !same {
                wrong.push(format!(
                    "promise 3: {} at {:?} showed {:?}, but the journal has {there:?}",
                    shown.what, shown.ended, shown.view
                ));
            }
        }
        self.wrong.append(&mut wrong);
    }

    /// Promise 1: a request made after an answer sees at least the same events.
    fn check_order(&mut self) {
        let mut by_account: BTreeMap<u64, Vec<&crate::book::Shown>> = BTreeMap::new();
        for shown in &self.entries.shown {
            by_account.entry(shown.view.id).or_default().push(shown);
        }
        let mut wrong = Vec::new();
        for shown in by_account.into_values() {
            for late in shown
                .iter()
                .filter(|late| late.began > Duration::ZERO && late.what != "a reply")
            {
                let before = shown.iter().filter(|early| early.ended < late.began);
                if let Some(early) = before.max_by_key(|early| early.view.count)
                    && early.view.count > late.view.count
                {
                    wrong.push(format!(
                        "promise 1: {} from {:?} showed {:?} after {} at {:?} had shown {:?}",
                        late.what, late.began, late.view, early.what, early.ended, early.view
                    ));
                }
            }
        }
        self.wrong.append(&mut wrong);
    }

    /// Promise 4: nothing happens twice, or without a request.
    fn check_once(&mut self) {
        let mut wrong = Vec::new();
        for (id, entries) in &self.accounts {
            let mut seen = BTreeSet::new();
            for entry in entries {
                if !seen.insert((entry.name.as_str(), entry.fact.op, entry.fact.part)) {
                    wrong.push(format!(
                        "promise 4: {} of {:?} stands twice in {id}",
                        entry.name, entry.fact
                    ));
                }
                if !self.entries.operations.contains_key(&entry.fact.op) {
                    wrong.push(format!(
                        "{} of {:?} in {id} was asked by nobody",
                        entry.name, entry.fact
                    ));
                }
                if entry.name == "Poison" {
                    wrong.push(format!(
                        "promise 8: an event that cannot be applied was recorded in {id}"
                    ));
                }
            }
        }
        self.wrong.append(&mut wrong);
    }

    /// Promises 2 and 4: acknowledged operations are there completely, and refused ones are not.
    fn check_operations(&mut self) {
        let mut everywhere: BTreeMap<u64, usize> = BTreeMap::new();
        let mut passed: BTreeMap<u64, usize> = BTreeMap::new();
        for entry in self.accounts.values().flatten() {
            *everywhere.entry(entry.fact.op).or_default() += 1;
            *passed.entry(entry.fact.op).or_default() += usize::from(entry.name == "Passed");
        }
        for (op, operation) in &self.entries.operations {
            let found = everywhere.get(op).copied().unwrap_or_default();
            // The forwarding account's own events remain, whatever the other one answers.
            let is_recorded = matches!(
                &operation.asked,
                Asked::Account(Command::Forward { trace: true, .. } | Command::Spawn { answers: true, .. })
            );
            let is_remote = is_recorded && operation.told.contains(&Told::Nothing("quarantined"));
            if operation.is_nothing() && found > 0 && !is_remote {
                self.wrong.push(format!(
                    "op {op} was told that nothing was done ({:?}), but there are {found} events: {operation:?}",
                    operation.told.last()
                ));
            }
            let is_moved = matches!(
                &operation.asked,
                Asked::Account(Command::Forward { .. } | Command::Route { .. }) | Asked::Relay(_)
            );
            if is_moved && found - passed.get(op).copied().unwrap_or_default() > 1 {
                self.wrong
                    .push(format!("promise 4: op {op} took effect {found} times: {operation:?}"));
            }
            if let Asked::Account(Command::Add { parts, .. }) = &operation.asked {
                let mut own = self.accounts.get(&operation.to).into_iter().flatten();
                let positions: BTreeSet<Position> = own
                    .by_ref()
                    .filter(|entry| entry.fact.op == *op)
                    .map(|entry| entry.position)
                    .collect();
                if positions.len() > 1 || (found > 0 && found != *parts as usize) {
                    self.wrong
                        .push(format!("op {op} is there in part: {found} of {parts} events"));
                }
            }
            let done = operation.done().filter(|_| !self.may_be_lost(operation.ended));
            if let Some(view) = done {
                self.check_done(*op, operation.to, &operation.asked, view);
            }
        }
    }

    fn check_done(&mut self, op: u64, to: u64, asked: &Asked, view: &View) {
        let (at, name, count) = match asked {
            Asked::Account(command) => match command {
                Command::Open { .. } => (to, "Opened", 1),
                Command::Add { parts, .. } => (to, "Moved", *parts as usize),
                Command::Take { .. } => (to, "Moved", 1),
                Command::Transfer { .. } => (to, "Debited", 1),
                Command::Ask { .. } => (to, "Reserved", 1),
                Command::Forward { to, .. } => (*to, "Moved", 1),
                Command::Chain { .. } => (to, "Hopped", 1),
                Command::Spawn { .. } => (to, "Spawned", 1),
                Command::Route { .. } => (view.id, "Moved", 1),
                Command::Plan { .. } => (to, "Planned", 1),
                Command::Cancel { .. } => (to, "Cancelled", 1),
                Command::Plant { .. } => (to, "Bomb", 1),
                Command::PanicDeciding { .. } | Command::PanicEvolving { .. } => (to, "nothing", 1),
                Command::Receive { .. } | Command::Accept { .. } | Command::Heard { .. } | Command::Tick { .. } => {
                    return;
                }
            },
            Asked::Relay(relay::Command::Pass { to, .. }) => (*to, "Moved", 1),
            Asked::Relay(relay::Command::Post { to, .. }) => (*to, "Received", 1),
        };
        let found = self.has(at, name, op);
        // A chain may return to the same account.
        let is_there = if name == "Hopped" {
            found >= count
        } else {
            found == count
        };
        let is_dead = name == "Received" && self.messages.iter().any(is_left);
        if !is_there && !is_dead {
            self.wrong(format!(
                "promise 2: op {op} ({asked:?}) was acknowledged, but {at} has {found} events {name:?}"
            ));
        }
        let is_remote = |command: &Command| {
            matches!(
                command,
                Command::Forward { .. } | Command::Route { .. } | Command::Spawn { answers: true, .. }
            )
        };
        let is_direct = matches!(asked, Asked::Account(command) if !is_remote(command));
        if is_direct && count > 0 {
            let last = usize::try_from(view.count).ok().and_then(|count| count.checked_sub(1));
            let own = last.and_then(|last| self.accounts.get(&at)?.get(last));
            if own.is_none_or(|own| own.fact.op != op) {
                self.wrong(format!(
                    "promise 3: the answer to op {op} does not end with its own event: {view:?}"
                ));
            }
        }
    }

    /// Checks that all money that leaves one account arrives in another, or that its message is dead.
    fn check_money(&mut self) {
        for (op, operation) in &self.entries.operations {
            let (Asked::Account(Command::Transfer { amount, .. }) | Asked::Account(Command::Ask { amount, .. })) =
                &operation.asked
            else {
                continue;
            };
            let facts = self.accounts.values().flatten().filter(|entry| entry.fact.op == *op);
            let sum: i64 = facts.map(|entry| entry.fact.amount).sum();
            if sum != 0 && (sum > 0 || sum % amount != 0) {
                self.wrong.push(format!("op {op} made {sum} out of nothing"));
            }
            let prefix = format!("[{op},");
            let lost = self.messages.iter().filter(|message| {
                let own = message.from.id.parse() == Ok(operation.to);
                let noted = message.note.as_deref().is_some_and(|note| note.starts_with(&prefix));
                message.outcome.as_deref() != Some("done") && (own || noted)
            });
            if sum != 0 && lost.count() == 0 {
                self.wrong.push(format!("promise 6: op {op} lost {sum} on its way"));
            }
        }
    }

    /// Promise 6: every requester gets the outcome once, unless that message is dead. A missing receiver and a dropped request are outcomes, too.
    fn check_requests(&mut self) {
        for (op, operation) in &self.entries.operations {
            let Asked::Account(Command::Ask { amount, mode, .. }) = &operation.asked else {
                continue;
            };
            if self.has(operation.to, "Reserved", *op) == 0 {
                continue;
            }
            let note = format!("[{op},{amount}]");
            let asked = self
                .messages
                .iter()
                .filter(|message| message.note.as_ref() == Some(&note));
            let nobody = ["there is no account", "is quarantined"];
            let is_nobody_there = asked.clone().any(|message| {
                message.outcome.as_deref() == Some("refused") && nobody.iter().any(|why| message.reason.contains(why))
            });
            let outcomes: Vec<&str> = asked.filter_map(|message| message.outcome.as_deref()).collect();
            let is_dead = outcomes.contains(&"dead");
            let (settled, refunded) = (
                self.has(operation.to, "Settled", *op),
                self.has(operation.to, "Refunded", *op),
            );
            let heard_dead = self
                .messages
                .iter()
                .any(|message| message.name == "~heard" && is_left(message) && self.bombs);
            let right = match (is_dead, mode) {
                (true, _) => settled + refunded == 0,
                (false, _) if outcomes.contains(&"dropped") => (settled, refunded) == (0, 1),
                (false, _) if is_nobody_there => (settled, refunded) == (0, 1),
                (false, Mode::Refuse | Mode::Panic) => (settled, refunded) == (0, 1),
                (false, _) => (settled, refunded) == (1, 0),
            };
            if !right && !heard_dead {
                self.wrong.push(format!(
                    "promise 6: request {op} ({mode:?}) of {} came to {outcomes:?}, heard done {settled} and refused {refunded} times",
                    operation.to
                ));
            }
        }
    }

    /// Promise 9: messages between entities are never refused for lack of room or time.
    fn check_dead(&mut self) {
        let known = ["planned panic", "there is no account", "is quarantined"];
        for message in &self.messages {
            let is_planned = known.iter().any(|known| message.reason.contains(known));
            if message.outcome.as_deref() == Some("dead") && !is_planned {
                self.wrong.push(format!(
                    "promise 9: message {:?} to {} is dead: {}",
                    message.name, message.to, message.reason
                ));
            }
        }
    }

    /// Checks that timers fire when due, not before, and as often as they were set to.
    fn check_timers(&mut self) {
        let mut wrong = Vec::new();
        for (id, entries) in &self.accounts {
            // The set plans by name, and the number of firings that remain.
            let mut set: BTreeMap<&str, (u64, u32, i64)> = BTreeMap::new();
            for entry in entries {
                match entry.name.as_str() {
                    "Planned" => {
                        set.insert(&entry.timer, (entry.fact.op, entry.times, entry.due));
                    }
                    "Cancelled" => {
                        set.remove(entry.timer.as_str());
                    }
                    "Ticked" => match set.get_mut(entry.timer.as_str()) {
                        Some((op, left, due)) if *op == entry.fact.op && *left > 0 => {
                            *left -= 1;
                            if entry.at_micros < *due {
                                wrong.push(format!("timer {op} of {id} fired before it was due"));
                            }
                        }
                        _ => wrong.push(format!("timer {} of {id} fired without being set", entry.fact.op)),
                    },
                    _ => {}
                }
            }
            for (name, (op, left, _)) in set {
                if left > 0 {
                    wrong.push(format!(
                        "timer {name:?} of {id}, set by {op}, has still to fire {left} times"
                    ));
                }
            }
        }
        self.wrong.append(&mut wrong);
    }

    /// Checks that the final states and families shown by the engine are those of the journal.
    pub(crate) fn final_states(&mut self, shown: &BTreeMap<u64, (View, crate::account::Relatives)>) {
        for (id, views) in &self.views {
            let Some(expected) = views.last() else { continue };
            let plain = replayed(*id, &self.history.events(KIND, &id.to_string()));
            let Some((view, relatives)) = shown.get(id) else {
                self.wrong
                    .push(format!("account {id} has a history, but the engine does not show it"));
                continue;
            };
            if view != expected || *view != plain {
                self.wrong.push(format!(
                    "account {id} ends as {view:?}, its events as {expected:?}, replayed as {plain:?}"
                ));
            }
            let spawned = self.accounts[id].iter().filter(|entry| entry.name == "Spawned");
            let children: BTreeSet<String> = spawned.map(|entry| (1_000 + entry.fact.op).to_string()).collect();
            if relatives.children.len() != children.len()
                || !relatives.children.iter().all(|one| children.contains(one))
            {
                self.wrong.push(format!(
                    "account {id} shows the children {:?}, it has spawned {children:?}",
                    relatives.children
                ));
            }
            if *id >= 1_000 {
                let spawned = &self.entries.operations[&(id - 1_000)];
                let parent = spawned.to.to_string();
                if relatives.parent.as_ref() != Some(&parent) {
                    self.wrong.push(format!(
                        "account {id} shows the parent {:?}, it was spawned by {parent}",
                        relatives.parent
                    ));
                }
            }
        }
    }

    /// Checks that no two attempts of one operation contradict each other.
    pub(crate) fn check_told(&mut self) {
        for (op, operation) in &self.entries.operations {
            let done: Vec<&View> = operation
                .told
                .iter()
                .filter_map(|told| if let Told::Done(view) = told { Some(view) } else { None })
                .collect();
            if done.len() > 1 && !operation.keyed {
                self.wrong.push(format!("op {op} was answered {} times", done.len()));
            }
        }
    }
}

/// Returns true if nobody took the message: it is dead, or was dropped.
fn is_left(message: &SentMessage) -> bool {
    matches!(message.outcome.as_deref(), Some("dead" | "dropped"))
}
