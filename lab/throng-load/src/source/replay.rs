use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{Next, Outcome, Shot, Source, Verdict};

const NOBODY: u32 = u32::MAX;

/// Recorded requests in order. The order must be kept among requests of the same key.
///
/// A trace holds at most 2³² − 1 requests, with their bytes in one arena.
#[derive(Debug, Default, Clone)]
pub struct Trace {
    arena: Vec<u8>,
    items: Vec<TraceItem>,
    keys: HashMap<Box<[u8]>, u32>,
}

/// A request of a [`Trace`].
#[derive(Debug, Clone)]
pub struct TraceItem {
    /// The number of its key, from 0 in order of first use.
    pub key: u32,
    /// The time of its recording, since the start of the trace.
    pub offset: Option<Duration>,
    /// The index into [`crate::Options::classes`].
    pub class: u16,
    bytes: Range<usize>,
}

impl Trace {
    /// Returns an empty trace.
    pub fn new() -> Self {
        Trace::default()
    }

    /// Appends a request (its whole bytes) and returns its index.
    ///
    /// Requests of one `key` are sent one after another, each after the answer to the one before. A request with an `offset` is not sent before that
    /// time of the replay.
    pub fn push(&mut self, key: impl AsRef<[u8]>, offset: Option<Duration>, class: u16, request: &[u8]) -> usize {
        let number = self.keys.len() as u32;
        let key = match self.keys.get(key.as_ref()) {
            Some(&known) => known,
            None => {
                self.keys.insert(key.as_ref().into(), number);
                number
            }
        };
        let begin = self.arena.len();
        self.arena.extend_from_slice(request);
        self.items.push(TraceItem {
            key,
            offset,
            class,
            bytes: begin..self.arena.len(),
        });
        self.items.len() - 1
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if there is no request.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the number of different keys.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Returns the bytes of the request at `index`.
    pub fn bytes(&self, index: usize) -> &[u8] {
        &self.arena[self.items[index].bytes.clone()]
    }

    /// Returns the key, time and class of the request at `index`.
    pub fn item(&self, index: usize) -> &TraceItem {
        &self.items[index]
    }
}

/// The next step of a replay after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aftermath {
    /// The request is done and counted with this verdict. The next one of its key may be sent.
    Done(Verdict),
    /// The same request is sent again after a pause. Its key waits meanwhile.
    Again(Duration),
}

#[derive(Debug, Clone, Copy)]
struct Key {
    busy: bool,
    /// The oldest parked request of the key. The others follow through `following`.
    first: u32,
    last: u32,
}

/// Replays a [`Trace`] over many connections and keeps the order within each key.
///
/// No two requests of a key are in flight. A request whose key is busy is parked and does not hold up the later ones. Once `look_ahead` requests
/// are parked, the replay waits. So it never runs further than that ahead of the slowest key.
pub struct OrderedReplay<F> {
    trace: Arc<Trace>,
    on_answer: F,
    part: u32,
    parts: u32,
    speed: f64,
    look_ahead: usize,
    cursor: usize,
    keys: Vec<Key>,
    following: Vec<u32>,
    parked: usize,
    ready: VecDeque<u32>,
    /// The requests to be repeated, with their times. They are few, so a scan finds the earliest.
    again: Vec<(u64, u32)>,
    in_flight: usize,
}

impl<F> OrderedReplay<F>
where
    F: FnMut(usize, &Outcome<'_>) -> Aftermath + Send,
{
    /// Returns a replay of the whole trace by one worker, as fast as answers allow.
    ///
    /// `on_answer` gets the request's index in the trace and its outcome.
    pub fn new(trace: Arc<Trace>, on_answer: F) -> Self {
        let keys = vec![
            Key {
                busy: false,
                first: NOBODY,
                last: NOBODY
            };
            trace.keys()
        ];
        let following = vec![NOBODY; trace.len()];
        OrderedReplay {
            trace,
            on_answer,
            part: 0,
            parts: 1,
            speed: 0.0,
            look_ahead: 4096,
            cursor: 0,
            keys,
            following,
            parked: 0,
            ready: VecDeque::new(),
            again: Vec::new(),
            in_flight: 0,
        }
    }

    /// Sends at the recorded times, `speed` times as fast. With 0 (the default) it ignores recorded times.
    pub fn speed(mut self, speed: f64) -> Self {
        self.speed = speed;
        self
    }

    /// Sets the number of requests that may be parked behind busy keys (default 4,096, at least 1).
    pub fn look_ahead(mut self, requests: usize) -> Self {
        self.look_ahead = requests.max(1);
        self
    }

    /// Restricts the replay to the keys of worker `part` of `parts`.
    pub fn part(mut self, part: usize, parts: usize) -> Self {
        self.part = part as u32;
        self.parts = parts.max(1) as u32;
        self
    }

    fn intended_nanos(&self, index: usize) -> Option<u64> {
        if self.speed <= 0.0 {
            return None;
        }
        self.trace.items[index]
            .offset
            .map(|offset| (offset.as_nanos() as f64 / self.speed) as u64)
    }

    /// Returns the next request that may be sent now, or the time to ask again.
    fn choose(&mut self, now_nanos: u64) -> Result<u32, Next<'static>> {
        if let Some(place) = self.again.iter().position(|&(due, _)| due <= now_nanos) {
            return Ok(self.again.swap_remove(place).1);
        }
        if let Some(index) = self.ready.pop_front() {
            return Ok(index);
        }
        let mut wait_nanos = self.again.iter().map(|&(due, _)| due).min();
        while self.cursor < self.trace.len() && self.parked < self.look_ahead {
            let index = self.cursor;
            let key = self.trace.items[index].key;
            if key % self.parts != self.part {
                self.cursor += 1;
                continue;
            }
            if let Some(due) = self.intended_nanos(index).filter(|&due| due > now_nanos) {
                wait_nanos = Some(wait_nanos.map_or(due, |other| other.min(due)));
                break;
            }
            self.cursor += 1;
            let slot = &mut self.keys[key as usize];
            if !slot.busy {
                slot.busy = true;
                return Ok(index as u32);
            }
            if slot.last == NOBODY {
                slot.first = index as u32;
            } else {
                self.following[slot.last as usize] = index as u32;
            }
            slot.last = index as u32;
            self.parked += 1;
        }
        Err(match wait_nanos {
            Some(due) => Next::WaitUntil(due),
            None if self.in_flight > 0 => Next::WaitForAnswer,
            None => Next::Done,
        })
    }
}

impl<F> Source for OrderedReplay<F>
where
    F: FnMut(usize, &Outcome<'_>) -> Aftermath + Send,
{
    fn next(&mut self, now_nanos: u64) -> Next<'_> {
        let index = match self.choose(now_nanos) {
            Ok(index) => index as usize,
            Err(next) => return next,
        };
        self.in_flight += 1;
        let intended_nanos = self.intended_nanos(index);
        let item = &self.trace.items[index];
        Next::Send(Shot {
            bytes: &self.trace.arena[item.bytes.clone()],
            tag: index as u64,
            intended_nanos,
            class: item.class,
        })
    }

    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        let index = tag as usize;
        self.in_flight -= 1;
        match (self.on_answer)(index, outcome) {
            Aftermath::Again(pause) => {
                self.again
                    .push((outcome.done_nanos + pause.as_nanos() as u64, index as u32));
                Verdict::Retried
            }
            Aftermath::Done(verdict) => {
                let slot = &mut self.keys[self.trace.items[index].key as usize];
                if slot.first == NOBODY {
                    slot.busy = false;
                } else {
                    let next = slot.first;
                    slot.first = std::mem::replace(&mut self.following[next as usize], NOBODY);
                    if slot.first == NOBODY {
                        slot.last = NOBODY;
                    }
                    self.parked -= 1;
                    self.ready.push_back(next);
                }
                verdict
            }
        }
    }

    fn unsent(&self, _now_nanos: u64) -> u64 {
        let ahead = self.trace.items[self.cursor..]
            .iter()
            .filter(|item| item.key % self.parts == self.part)
            .count();
        (ahead + self.parked + self.ready.len() + self.again.len()) as u64
    }
}

impl<F> std::fmt::Debug for OrderedReplay<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrderedReplay")
            .field("cursor", &self.cursor)
            .field("parked", &self.parked)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, ResponseParts};

    fn trace(keys: &[&str]) -> Arc<Trace> {
        let mut trace = Trace::new();
        for (index, key) in keys.iter().enumerate() {
            trace.push(
                key,
                Some(Duration::from_millis(index as u64 * 10)),
                0,
                format!("{index}").as_bytes(),
            );
        }
        Arc::new(trace)
    }

    fn answer(done_nanos: u64) -> Outcome<'static> {
        Outcome {
            result: Ok(ResponseParts {
                status: 200,
                head: b"",
                body: b"",
            }),
            sent_nanos: 0,
            intended_nanos: 0,
            done_nanos,
        }
    }

    fn sent<F: FnMut(usize, &Outcome<'_>) -> Aftermath + Send>(replay: &mut OrderedReplay<F>, now: u64) -> Option<u64> {
        match replay.next(now) {
            Next::Send(shot) => Some(shot.tag),
            _ => None,
        }
    }

    #[test]
    fn a_busy_key_does_not_hold_up_the_others_and_keeps_its_order() {
        let mut replay = OrderedReplay::new(trace(&["a", "a", "b", "a"]), |_, _| Aftermath::Done(Verdict::ByStatus));
        assert_eq!(sent(&mut replay, 0), Some(0));
        assert_eq!(sent(&mut replay, 0), Some(2));
        assert!(matches!(replay.next(0), Next::WaitForAnswer));
        replay.answered(2, &answer(1));
        assert!(matches!(replay.next(1), Next::WaitForAnswer));
        replay.answered(0, &answer(2));
        assert_eq!(sent(&mut replay, 2), Some(1));
        assert_eq!(sent(&mut replay, 2), None);
        replay.answered(1, &answer(3));
        assert_eq!(sent(&mut replay, 3), Some(3));
        replay.answered(3, &answer(4));
        assert!(matches!(replay.next(4), Next::Done));
    }

    #[test]
    fn look_ahead_is_bounded() {
        let mut replay =
            OrderedReplay::new(trace(&["a", "a", "a", "b"]), |_, _| Aftermath::Done(Verdict::ByStatus)).look_ahead(2);
        assert_eq!(sent(&mut replay, 0), Some(0));
        assert_eq!(sent(&mut replay, 0), None, "two are parked, so `b` is not reached");
        replay.answered(0, &answer(1));
        assert_eq!(sent(&mut replay, 1), Some(1));
        assert_eq!(sent(&mut replay, 1), Some(3));
    }

    #[test]
    fn recorded_times_are_kept_at_the_wanted_speed() {
        let mut replay = OrderedReplay::new(trace(&["a", "b"]), |_, _| Aftermath::Done(Verdict::ByStatus)).speed(10.0);
        assert_eq!(sent(&mut replay, 0), Some(0));
        assert!(matches!(replay.next(0), Next::WaitUntil(1_000_000)));
        assert_eq!(sent(&mut replay, 1_000_000), Some(1));
    }

    #[test]
    fn a_request_sent_again_keeps_its_key_waiting() {
        let mut tries = 0;
        let mut replay = OrderedReplay::new(trace(&["a", "a"]), move |_, outcome| {
            tries += 1;
            match outcome.result {
                Err(_) => Aftermath::Again(Duration::from_nanos(5 * tries)),
                Ok(_) => Aftermath::Done(Verdict::ByStatus),
            }
        });
        assert_eq!(sent(&mut replay, 0), Some(0));
        let failed = Outcome {
            result: Err(ErrorKind::Reset),
            ..answer(10)
        };
        assert_eq!(replay.answered(0, &failed), Verdict::Retried);
        assert!(matches!(replay.next(10), Next::WaitUntil(15)));
        assert_eq!(sent(&mut replay, 15), Some(0));
        replay.answered(0, &answer(20));
        assert_eq!(sent(&mut replay, 20), Some(1));
    }

    #[test]
    fn parts_divide_the_keys() {
        let trace = trace(&["a", "b", "c", "a", "b"]);
        let mut seen: Vec<u64> = Vec::new();
        for part in 0..2 {
            let mut replay = OrderedReplay::new(trace.clone(), |_, _| Aftermath::Done(Verdict::ByStatus)).part(part, 2);
            while let Some(tag) = sent(&mut replay, 0) {
                seen.push(tag);
                replay.answered(tag, &answer(1));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }
}
