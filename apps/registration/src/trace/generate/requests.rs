//! The requests of a trace: assigns students, sections and operations to the times.

use std::{collections::HashSet, ops::Range, sync::Arc};

use jiff::{
    ToSpan as _,
    civil::{Date, date},
};

use super::{
    super::{Operation, Request, Shape, random::Random},
    offers::Offers,
    times::{REGISTRATION_DAYS, SURGE_MINUTES},
};

const PERIOD_FIRST_DAY: Date = date(2026, 10, 19);
const DAY_SECONDS: u32 = 24 * 60 * 60;

/// The share of adds that repeat an earlier add of the student: one in this many.
const SECOND_ADD_ONE_IN: u32 = 60;
/// The share of drops that name a section the student never asked for: one in this many.
const ABSENT_DROP_ONE_IN: u32 = 12;
/// The most draws of a student for a drop, if those drawn have nothing to drop.
const DROP_TRIES: u32 = 8;

pub(super) fn draw(shape: &Shape, offers: &Offers, seconds: &[u32], random: &mut Random) -> Vec<Request> {
    let students = tokens(shape.students, random);
    let operations = operations(shape, random);
    let mut cast = Cast::new(shape, offers, random);
    seconds
        .iter()
        .zip(operations)
        .map(|(second, operation)| {
            let (student, section) = cast.draw(*second, operation, random);
            let day = PERIOD_FIRST_DAY + i64::from(*second / DAY_SECONDS).days();
            Request {
                student: students[student].clone(),
                section: offers.sections[section].id.clone(),
                at: day.at(0, 0, 0, 0) + i64::from(*second % DAY_SECONDS).seconds(),
                operation,
            }
        })
        .collect()
}

/// Returns distinct tokens of eight digits, without order or meaning.
fn tokens(count: u32, random: &mut Random) -> Vec<Arc<str>> {
    let mut used = HashSet::new();
    let mut tokens = Vec::with_capacity(count as usize);
    while tokens.len() < count as usize {
        let number = random.between(10_000_000, 99_999_999);
        if used.insert(number) {
            tokens.push(number.to_string().into());
        }
    }
    tokens
}

/// Returns all operations in random order, with the administrative drops within the last third.
fn operations(shape: &Shape, random: &mut Random) -> Vec<Operation> {
    let repeat = |operation, count: u32| std::iter::repeat_n(operation, count as usize);
    let mut operations: Vec<Operation> = repeat(Operation::Add, shape.adds)
        .chain(repeat(Operation::Drop, shape.drops))
        .collect();
    random.shuffle(&mut operations);
    let last_part = (shape.requests() / 3).max(shape.administrative_drops);
    operations.extend(repeat(Operation::AdministrativeDrop, shape.administrative_drops));
    let start = operations.len() - last_part as usize;
    random.shuffle(&mut operations[start..]);
    operations
}

/// The students and sections by index, and their requests so far.
struct Cast {
    /// The sections of the adds to come, shuffled. Each is in it as often as it is wanted.
    deck: Vec<usize>,
    /// The sections with requests.
    touched: Vec<usize>,
    /// The sections that each student asked for and has not dropped.
    wished: Vec<Vec<usize>>,
    /// The students who asked for each section.
    wishers: Vec<Vec<usize>>,
    /// True for each student who has made a request.
    seen: Vec<bool>,
    /// The number of students without a request so far.
    unseen: usize,
    /// All students before this index have made a request.
    unseen_from: usize,
    /// The number of requests to come.
    requests_left: usize,
}

impl Cast {
    fn new(shape: &Shape, offers: &Offers, random: &mut Random) -> Self {
        let mut deck: Vec<usize> = (0..)
            .zip(&offers.adds)
            .flat_map(|(section, adds)| std::iter::repeat_n(section, *adds as usize))
            .collect();
        let mut touched = deck.clone();
        touched.dedup();
        random.shuffle(&mut deck);
        Self {
            deck,
            touched,
            wished: vec![Vec::new(); shape.students as usize],
            wishers: vec![Vec::new(); shape.sections as usize],
            seen: vec![false; shape.students as usize],
            unseen: shape.students as usize,
            unseen_from: 0,
            requests_left: shape.requests() as usize,
        }
    }

    /// Draws the student and the section of the next request.
    fn draw(&mut self, second: u32, operation: Operation, random: &mut Random) -> (usize, usize) {
        let newcomer = self.newcomer_who_must_come_now();
        let eligible = eligible(second, self.seen.len());
        let drawn = newcomer.unwrap_or_else(|| pick(&eligible, random));
        let (student, section) = match operation {
            Operation::Add => self.draw_add(drawn, newcomer.is_none(), random),
            Operation::Drop | Operation::AdministrativeDrop => {
                let mut student = drawn;
                for _ in 0..DROP_TRIES {
                    if newcomer.is_none() && self.wished[student].is_empty() {
                        student = pick(&eligible, random);
                    }
                }
                (student, self.draw_drop(student, random))
            }
        };
        if !std::mem::replace(&mut self.seen[student], true) {
            self.unseen -= 1;
        }
        self.requests_left -= 1;
        (student, section)
    }

    /// Returns a student without a request, if each remaining request is needed for one. So every student makes a request.
    fn newcomer_who_must_come_now(&mut self) -> Option<usize> {
        if self.unseen < self.requests_left {
            return None;
        }
        self.unseen_from += self.seen[self.unseen_from..].iter().take_while(|seen| **seen).count();
        (self.unseen_from < self.seen.len()).then_some(self.unseen_from)
    }

    fn draw_add(&mut self, drawn: usize, may_repeat: bool, random: &mut Random) -> (usize, usize) {
        let section = self.deck.pop().expect("the deck holds one section for each add");
        let wishers = &mut self.wishers[section];
        if may_repeat && !wishers.is_empty() && random.one_in(SECOND_ADD_ONE_IN) {
            return (wishers[random.index(wishers.len())], section);
        }
        wishers.push(drawn);
        self.wished[drawn].push(section);
        (drawn, section)
    }

    fn draw_drop(&mut self, student: usize, random: &mut Random) -> usize {
        let wished = &mut self.wished[student];
        if wished.is_empty() || random.one_in(ABSENT_DROP_ONE_IN) {
            return self.touched[random.index(self.touched.len())];
        }
        wished.swap_remove(random.index(wished.len()))
    }
}

/// Returns the students who may register at this time: a few before the first registration day, in a surge those whose day it is, and otherwise all
/// whose day has come.
fn eligible(second: u32, students: usize) -> Range<usize> {
    let day = second / DAY_SECONDS;
    let opened = REGISTRATION_DAYS.iter().filter(|opens| **opens <= day).count();
    let in_surge = REGISTRATION_DAYS.contains(&day) && second % DAY_SECONDS < SURGE_MINUTES * 60;
    let first_of = |part: usize| students * part / REGISTRATION_DAYS.len();
    let range = match opened {
        0 => 0..students / 16,
        _ if in_surge => first_of(opened - 1)..first_of(opened),
        _ => 0..first_of(opened),
    };
    if range.is_empty() { 0..1 } else { range }
}

fn pick(range: &Range<usize>, random: &mut Random) -> usize {
    range.start + random.index(range.len())
}
