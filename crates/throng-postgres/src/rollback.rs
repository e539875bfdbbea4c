//! Finds out that the server does not hold any more what it has acknowledged.
//!
//! A standby that is promoted, a backup or a snapshot that is put in the server's place may lack the last commits; writers, owners, leases
//! and beats are rolled back with them. The server itself cannot tell, and its system identifier is the same. So each renewal, beat,
//! checkpoint and seal asks how far the own stream reaches there, and holds that against what was durable when it was sent.

use crate::{
    database::Database,
    journal::{LOCK_CLUSTER, PATIENCE, accept_recorded},
    options::OnLoss,
    recent::Recent,
    typed,
};
use futures_util::future::try_join3;
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use throng_journal::{Commit, CommitNo, Error, HEADER_BYTES, Loss, NodeId, Position, Witness, WriterId};
use tokio_postgres::{Client, GenericClient, Transaction};

const DOING: &str = "recording what the database has lost";
/// Losses that are told of at most.
const LOSSES_MAX: usize = 16;

/// The state of the own stream: its owner, its end, and the header of the commit that was acknowledged last.
const FOUND: &str = "SELECT w.session, coalesce((SELECT max(number) FROM commits c WHERE c.writer = w.writer), 0), (SELECT \
    substring(body FOR 56) FROM commits c WHERE c.writer = $1 AND c.number = $2), c.version, (SELECT coalesce(max(loss), 0) FROM losses) \
    FROM cluster c LEFT JOIN writers w ON w.writer = $1";
/// Ends of streams that are not reached.
const LOST: &str = "SELECT k.writer, k.commit, coalesce((SELECT max(c.number) FROM commits c WHERE c.writer = k.writer), 0) FROM \
    unnest($1::bigint[], $2::bigint[]) k(writer, commit) WHERE NOT EXISTS (SELECT FROM commits c WHERE c.writer = k.writer AND \
    c.number >= k.commit)";
const RECORD: &str =
    "INSERT INTO losses (writer, commit, held, timeline, session) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
const RECORD_COMMIT: &str = "INSERT INTO lost_commits (writer, number, at, entities, keys) VALUES ($1, $2, to_timestamp($3::float8 / 1000000), \
    $4, $5) ON CONFLICT DO NOTHING";
/// The first eight digits of a name of a file of the write-ahead log. Some hosted servers do not say.
const TIMELINE: &str = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// The commits known to be durable when a statement was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The newest own writer, and the last of its commits that was acknowledged.
    pub(crate) own: Position,
    header: [u8; HEADER_BYTES],
    version: u64,
    /// The newest recorded loss when the writer was opened.
    loss: i64,
}

/// The answer of the server.
#[derive(Default)]
pub(crate) struct Found {
    session: Option<String>,
    last: u64,
    header: Option<Vec<u8>>,
    version: u64,
    loss: i64,
}

/// The commits that the server had acknowledged and lacks, in a sentence.
#[derive(Debug)]
pub(crate) struct Contradiction {
    why: String,
    /// The own stream ends at this commit, before the last one that was acknowledged. That one itself: there is another in its place.
    held: Option<u64>,
}

/// The commits this engine knows to be durable. Written by each task that hears so from the server.
pub(crate) struct Acknowledged {
    state: Mutex<State>,
    /// The newest own writer, once something has ended it that no append says.
    over: AtomicU64,
}

struct State {
    known: Known,
    /// Ends of other streams that this engine has read.
    ended: Vec<Position>,
    /// The timeline the writer was first seen on.
    timeline: Option<String>,
    /// The node that this process is, and its last beat.
    node: Option<(NodeId, u64)>,
    rolled_back: Option<String>,
    /// The knowledge of other engines may have changed.
    changed: Option<String>,
    losses: Vec<Loss>,
    recent: Recent,
}

impl Contradiction {
    pub(crate) fn missing(at: Position) -> Self {
        Self {
            why: format!("there is no commit {at}, which a checkpoint needs"),
            held: None,
        }
    }
}

impl Default for Acknowledged {
    fn default() -> Self {
        let known = Known {
            own: Position::default(),
            header: [0; HEADER_BYTES],
            version: 0,
            loss: 0,
        };
        Self {
            state: Mutex::new(State {
                known,
                ended: Vec::new(),
                timeline: None,
                node: None,
                rolled_back: None,
                changed: None,
                losses: Vec::new(),
                recent: Recent::default(),
            }),
            over: AtomicU64::new(0),
        }
    }
}

impl Acknowledged {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new writer was opened: nothing of it is acknowledged.
    pub(crate) fn begin(&self, writer: WriterId, loss: i64) {
        let state = &mut *self.state();
        let before = state.known.own;
        if before.commit > CommitNo(0) {
            state.ended.push(before);
        }
        state.known.own = Position {
            writer,
            commit: CommitNo(0),
        };
        (state.known.loss, state.timeline, state.changed) = (loss, None, None);
    }

    /// An engine that is alone begins anew, or a process joins: nothing rests on what was lost.
    pub(crate) fn begin_anew(&self, node: Option<NodeId>) {
        let state = &mut *self.state();
        state.rolled_back = None;
        if let Some(node) = node {
            (state.node, state.known.version) = (Some((node, 0)), 0);
        }
    }

    /// Streams that have ended, and that this engine goes by.
    pub(crate) fn ended(&self, ends: impl Iterator<Item = Position>) {
        let ends = ends.filter(|end| end.commit > CommitNo(0));
        self.state().ended = ends.collect();
    }

    pub(crate) fn sent(&self, commit: &Commit) {
        self.state().recent.push(commit, Instant::now());
    }

    pub(crate) fn landed(&self, commit: &Commit) {
        let known = &mut self.state().known;
        if commit.stamp().writer == known.own.writer {
            known.own.commit = commit.stamp().number;
            known.header.copy_from_slice(&commit.bytes()[..HEADER_BYTES]);
        }
    }

    /// A beat of a node was counted as this one, and the directory was at this version then.
    pub(crate) fn saw(&self, node: NodeId, (beat, version): (u64, u64)) {
        let state = &mut *self.state();
        state.known.version = state.known.version.max(version);
        if let Some((own, last)) = &mut state.node
            && *own == node
        {
            *last = beat;
        }
    }

    /// Says why a beat of this process's node cannot be counted as this one.
    pub(crate) fn refuse_beat(&self, node: NodeId, beat: u64) -> Option<Contradiction> {
        let state = self.state();
        let (_, last) = state.node.filter(|(own, last)| *own == node && beat <= *last)?;
        let why = format!("node {node} has beaten {last} times, and is said to beat for the time {beat}");
        Some(Contradiction { why, held: None })
    }

    /// Says why this process's node cannot be unknown.
    pub(crate) fn refuse_node(&self, node: NodeId, is_known: bool) -> Option<Contradiction> {
        let is_own = self.state().node.is_some_and(|(own, _)| own == node);
        let why =
            (is_own && !is_known).then(|| format!("this process has joined as node {node}, which is not there"))?;
        Some(Contradiction { why, held: None })
    }

    pub(crate) fn known(&self) -> Known {
        self.state().known
    }

    /// The same for a beat. Once the own writer is over, its stream is compared by its seal. A node that has joined again because of it would be
    /// told to join again for ever.
    pub(crate) fn known_of_living(&self) -> Known {
        let known = self.known();
        match self.is_over(known.own.writer) {
            true => Known {
                own: Position::default(),
                ..known
            },
            false => known,
        }
    }

    /// Why this process has to join again, or to open a writer anew.
    pub(crate) fn rolled_back(&self) -> Option<Error> {
        self.state().rolled_back.clone().map(Error::RolledBack)
    }

    /// Why a writer is over.
    pub(crate) fn over(&self, writer: WriterId) -> Option<throng_journal::AppendError> {
        use throng_journal::AppendError;
        if !self.is_over(writer) {
            return None;
        }
        let state = self.state();
        let rolled_back = state.rolled_back.clone().map(AppendError::RolledBack);
        rolled_back.or_else(|| state.changed.clone().map(AppendError::Changed))
    }

    pub(crate) fn is_over(&self, writer: WriterId) -> bool {
        self.over.load(Ordering::Acquire) == writer.0 && writer.0 != 0
    }

    pub(crate) fn losses(&self) -> Vec<Loss> {
        self.state().losses.clone()
    }

    /// The server that a writer is used on: another timeline than before is another server. Other engines may have lost what this one rests
    /// on.
    pub(crate) fn saw_timeline(&self, writer: WriterId, timeline: &str) {
        let state = &mut *self.state();
        if timeline.is_empty() || state.known.own.writer != writer {
            return;
        }
        let before = state.timeline.get_or_insert_with(|| timeline.to_owned());
        if before != timeline {
            state.changed = Some(format!("it is on timeline {timeline}, and was on {before}"));
            self.over.store(writer.0, Ordering::Release);
        }
    }

    /// Another engine has found a loss since the writer was opened.
    pub(crate) fn compare_losses(&self, sent: &Known, found: &Found) {
        let state = &mut *self.state();
        if sent.own.writer.0 != 0 && state.known.own.writer == sent.own.writer && found.loss != sent.loss {
            state.changed = Some("another engine has found that commits are lost".into());
            self.over.store(sent.own.writer.0, Ordering::Release);
        }
    }
}

/// The answer of the server about a stream.
pub(crate) async fn find(client: &impl GenericClient, sent: &Known) -> Result<Found, tokio_postgres::Error> {
    let (writer, number) = (sent.own.writer.0.cast_signed(), sent.own.commit.0.cast_signed());
    let rows = client
        .query_typed(FOUND, &[typed::number(&writer), typed::number(&number)])
        .await?;
    let found = rows.first().map(|row| Found {
        session: row.get(0),
        last: row.get::<_, i64>(1).cast_unsigned(),
        header: row.get(2),
        version: row.get::<_, i64>(3).cast_unsigned(),
        loss: row.get(4),
    });
    Ok(found.unwrap_or_default())
}

impl Known {
    /// Says what the server lacks.
    pub(crate) fn refuse(&self, found: &Found, session: &str) -> Result<(), Contradiction> {
        let Position { writer, commit } = self.own;
        let refuse = |why: String, held: Option<u64>| Err(Contradiction { why, held });
        if writer.0 != 0 && found.session.as_deref() != Some(session) {
            let why = format!("writer {writer} was opened by this engine, and is not there");
            return refuse(why, (commit.0 != 0).then_some(0));
        }
        if found.last < commit.0 {
            let why = format!(
                "commit {} was acknowledged, and the stream ends at commit {}",
                self.own, found.last
            );
            return refuse(why, Some(found.last));
        }
        // Where history was removed from it, its stamp is left.
        let is_same = |header: &Vec<u8>| **header == self.header || stamp(header) == stamp(&self.header);
        if commit.0 != 0 && !found.header.as_ref().is_none_or(is_same) {
            let why = format!("commit {} is not the one that was acknowledged", self.own);
            return refuse(why, Some(commit.0));
        }
        if found.version < self.version {
            let (before, now) = (self.version, found.version);
            return refuse(
                format!("the directory was at version {before}, and is at version {now}"),
                None,
            );
        }
        Ok(())
    }
}

/// Writer, number, what was synced, and when.
fn stamp(header: &[u8]) -> Option<&[u8]> {
    header.get(8..40)
}

impl Database {
    /// Holds what the server says now against what it has acknowledged.
    pub(crate) async fn compare(
        &self,
        client: &impl GenericClient,
        sent: &Known,
    ) -> Result<Result<(), Contradiction>, tokio_postgres::Error> {
        let found = find(client, sent).await?;
        Ok(sent.refuse(&found, &self.session))
    }

    /// Records what is lost, and ends the writer. What to answer to whoever has found it.
    pub(crate) async fn rolled_back(&self, client: &mut Client, found: Contradiction) -> Error {
        let timeline = timeline(client).await;
        let (known, ended, before) = {
            let state = self.acknowledged.state();
            (state.known, state.ended.clone(), state.timeline.clone())
        };
        let lost = self.record(client, &known, &ended, &timeline).await;
        let lost = match lost {
            Ok(lost) => lost,
            // Found again by the next statement.
            Err(error) => return self.failed(DOING)(error),
        };
        let before = before.filter(|before| *before != timeline);
        let before = before.map(|before| format!(", before {before}")).unwrap_or_default();
        let why = format!("{}; timeline {timeline}{before}", found.why);
        for loss in &lost {
            tracing::error!(
                "acknowledged commits are lost in {}: {loss}; `throng journal loss` lists what was in them ({why})",
                self.options.place()
            );
        }
        let state = &mut *self.acknowledged.state();
        let room = LOSSES_MAX.saturating_sub(state.losses.len());
        state.losses.extend(lost.into_iter().take(room));
        state.rolled_back = Some(why.clone());
        self.acknowledged.over.store(known.own.writer.0, Ordering::Release);
        Error::RolledBack(why)
    }

    /// The losses that were not recorded before.
    async fn record(
        &self,
        client: &mut Client,
        known: &Known,
        ended: &[Position],
        timeline: &str,
    ) -> Result<Vec<Loss>, tokio_postgres::Error> {
        let transaction = client.transaction().await?;
        let writers: Vec<i64> = ended.iter().map(|end| end.writer.0.cast_signed()).collect();
        let commits: Vec<i64> = ended.iter().map(|end| end.commit.0.cast_signed()).collect();
        let (_, _, rows) = try_join3(
            transaction.batch_execute(PATIENCE),
            transaction.execute_typed(LOCK_CLUSTER, &[]),
            transaction.query_typed(LOST, &[typed::numbers(&writers), typed::numbers(&commits)]),
        )
        .await?;
        let position = |writer: WriterId, commit: u64| Position {
            writer,
            commit: CommitNo(commit),
        };
        let loss = |covered: Position, held: u64| Loss {
            covered,
            held: position(covered.writer, held),
            witness: Witness::Engine,
        };
        let mut losses: Vec<Loss> = rows
            .iter()
            .map(|row| {
                let number = |index| row.get::<_, i64>(index).cast_unsigned();
                loss(position(WriterId(number(0)), number(1)), number(2))
            })
            .collect();
        let own = self.compare(&transaction, known).await?;
        if let Err(Contradiction { held: Some(held), .. }) = own {
            losses.push(loss(known.own, held));
        }
        let mut new = Vec::new();
        for loss in losses {
            if self.record_one(&transaction, &loss, timeline).await? {
                new.push(loss);
            }
        }
        if self.options.on_loss() == OnLoss::Continue {
            accept_recorded(self, &transaction, |_| true).await?;
        }
        transaction.commit().await?;
        Ok(new)
    }

    async fn record_one(
        &self,
        transaction: &Transaction<'_>,
        loss: &Loss,
        timeline: &str,
    ) -> Result<bool, tokio_postgres::Error> {
        let Loss { covered, held, .. } = *loss;
        let number = |number: u64| number.cast_signed();
        let (writer, commit, held_commit) = (
            number(covered.writer.0),
            number(covered.commit.0),
            number(held.commit.0),
        );
        let new = transaction
            .execute(RECORD, &[&writer, &commit, &held_commit, &timeline, &self.session])
            .await?;
        let lost = self.acknowledged.state().recent.between(held, covered);
        let statement = transaction.prepare(RECORD_COMMIT).await?;
        for lost in lost {
            let at = lost.at_micros as f64;
            transaction
                .execute(
                    &statement,
                    &[
                        &writer,
                        &number(lost.position.commit.0),
                        &at,
                        &lost.entities,
                        &lost.keys,
                    ],
                )
                .await?;
        }
        Ok(new == 1)
    }
}

/// The timeline of the server; nothing where it does not say.
pub(crate) async fn timeline(client: &Client) -> String {
    let row = client.query_typed_opt(TIMELINE, &[]).await;
    row.ok()
        .flatten()
        .map_or_else(String::new, |row| row.get::<_, Option<String>>(0).unwrap_or_default())
}
