//! The service's report of the sections: their history and their present state.

use super::load::SECTIONS;
use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use std::{collections::BTreeSet, net::SocketAddr};
use throng::journal::Position;

use crate::http_client::{self, ANSWER_WAIT, Connection};

const PAGE: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) seq: u64,
    pub(super) name: String,
    pub(super) student: Option<String>,
    /// The position of its commit.
    pub(super) position: Option<Position>,
    /// The time of its commit.
    pub(super) at: Option<Timestamp>,
}

impl Event {
    #[cfg(test)]
    pub(super) fn new(seq: u64, name: &str, student: Option<&str>) -> Self {
        Self {
            seq,
            name: name.into(),
            student: student.map(Into::into),
            position: None,
            at: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) section: u32,
    pub(super) events: Vec<Event>,
    /// The taken seats, according to its view.
    pub(super) taken: u32,
    pub(super) roster: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Shown {
    seq: u64,
    name: String,
    at: String,
    position: String,
    payload: Payload,
}

#[derive(Deserialize)]
struct Payload {
    student: Option<String>,
}

#[derive(Deserialize)]
struct Events {
    events: Vec<Shown>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct View {
    taken: u32,
}

#[derive(Deserialize)]
struct Roster {
    students: Vec<String>,
    after: Option<String>,
}

/// Returns the history, view and roster of all sections. Nothing may change them meanwhile. A missing section has an empty history.
pub(super) fn fetch(address: SocketAddr) -> anyhow::Result<Vec<History>> {
    let mut connection =
        Connection::open(address, ANSWER_WAIT).context("the service cannot be asked for the histories")?;
    (0..SECTIONS)
        .map(|section| fetch_section(&mut connection, section))
        .collect()
}

fn fetch_section(connection: &mut Connection, section: u32) -> anyhow::Result<History> {
    let base = format!("/api/section/S{section}");
    let mut history = History {
        section,
        events: Vec::new(),
        taken: 0,
        roster: BTreeSet::new(),
    };
    let Some(view) = ask::<View>(connection, &base)? else {
        return Ok(history);
    };
    history.taken = view.taken;
    let mut after = 0;
    loop {
        let path = format!("{base}/events?after={after}&limit={PAGE}");
        let page = ask::<Events>(connection, &path)?.context("a section has no events")?;
        history.events.extend(page.events.into_iter().map(|shown| Event {
            seq: shown.seq,
            name: shown.name,
            student: shown.payload.student,
            position: shown.position.parse().ok(),
            at: shown.at.parse().ok(),
        }));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let mut after = String::new();
    loop {
        let path = format!("{base}/roster?limit=10000{after}");
        let page = ask::<Roster>(connection, &path)?.context("a section has no roster")?;
        history.roster.extend(page.students);
        match page.after {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(history),
        }
    }
}

/// Makes a request. Returns `None` if the entity does not exist.
fn ask<T: DeserializeOwned>(connection: &mut Connection, path: &str) -> anyhow::Result<Option<T>> {
    let answer = connection
        .ask(&http_client::get(path))
        .with_context(|| format!("GET {path} was not answered"))?;
    if answer.status == 404 {
        return Ok(None);
    }
    let body = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == 200, "GET {path} was answered {} {body}", answer.status);
    let page = serde_json::from_slice(&answer.body).with_context(|| format!("GET {path} was answered {body}"))?;
    Ok(Some(page))
}
