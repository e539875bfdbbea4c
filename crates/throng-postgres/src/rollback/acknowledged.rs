//! The commits that the server has acknowledged, and its own answer about them.

use crate::{recent::Recent, typed};
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use throng_journal::{Commit, CommitNo, Error, HEADER_BYTES, Loss, NodeId, Position, WriterId};
use tokio_postgres::GenericClient;

/// Selects the state of the own stream: its owner, its end, and the header of the last acknowledged commit.
const FOUND: &str = "SELECT w.session, coalesce((SELECT max(number) FROM commits c WHERE c.writer = w.writer), 0), (SELECT \
    substring(body FOR 56) FROM commits c WHERE c.writer = $1 AND c.number = $2), c.version, (SELECT coalesce(max(loss), 0) FROM losses) \
    FROM cluster c LEFT JOIN writers w ON w.writer = $1";

/// The commits known to be durable when a statement was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The newest own writer, and its last acknowledged commit.
    pub(crate) own: Position,
    header: [u8; HEADER_BYTES],
    version: u64,
    /// The newest recorded loss when the writer was opened.
    loss: i64,
}

/// The answer of the server.
#[derive(Default)]
pub(crate) struct ServerAnswer {
    session: Option<String>,
    last: u64,
    header: Option<Vec<u8>>,
    version: u64,
    loss: i64,
}

/// The acknowledged commits that the server lacks, in a sentence.
#[derive(Debug)]
pub(crate) struct Contradiction {
    pub(super) why: String,
    /// The end of the own stream, before the last acknowledged commit. If it is that commit itself, there is another one in its place.
    pub(super) held: Option<u64>,
}

/// The commits that this engine knows to be durable. Every task that learns it from the server writes it.
pub(crate) struct Acknowledged {
    state: Mutex<AcknowledgedState>,
    /// The newest own writer, once it has ended without a failed append.
    pub(super) over: AtomicU64,
}

pub(super) struct AcknowledgedState {
    pub(super) known: Known,
    /// Ends of other streams that this engine has read.
    pub(super) ended: Vec<Position>,
    /// The timeline on which the writer was first seen.
    pub(super) timeline: Option<String>,
    /// The node that this process is, and its last beat.
    node: Option<(NodeId, u64)>,
    pub(super) rolled_back: Option<String>,
    /// The reason why other engines' knowledge may have changed.
    changed: Option<String>,
    pub(super) losses: Vec<Loss>,
    pub(super) recent: Recent,
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
            state: Mutex::new(AcknowledgedState {
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
    pub(super) fn state(&self) -> MutexGuard<'_, AcknowledgedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a new writer, of which nothing is acknowledged.
    pub(crate) fn begin(&self, writer: WriterId, loss: i64) {
        let state = &mut *self.state();
        let before = state.known.own;
        if before.commit > CommitNo(0) {
            state.ended.push(before);
        }
        state.known.own = Position::new(writer, CommitNo(0));
        (state.known.loss, state.timeline, state.changed) = (loss, None, None);
    }

    /// Forgets everything, because an engine begins anew, or a process joins: nothing depends on what was lost.
    pub(crate) fn begin_anew(&self, node: Option<NodeId>) {
        let state = &mut *self.state();
        state.rolled_back = None;
        if let Some(node) = node {
            (state.node, state.known.version) = (Some((node, 0)), 0);
        }
    }

    /// Notes ended streams that this engine relies on.
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

    /// Notes a counted beat of a node, and the directory's version at that time.
    pub(crate) fn saw(&self, node: NodeId, (beat, version): (u64, u64)) {
        let state = &mut *self.state();
        state.known.version = state.known.version.max(version);
        if let Some((own, last)) = &mut state.node
            && *own == node
        {
            *last = beat;
        }
    }

    /// Returns the contradiction if a beat of this process's node cannot have this number.
    pub(crate) fn refuse_beat(&self, node: NodeId, beat: u64) -> Option<Contradiction> {
        let state = self.state();
        let (_, last) = state.node.filter(|(own, last)| *own == node && beat <= *last)?;
        let why = format!("node {node} has beaten {last} times, and is said to beat for the time {beat}");
        Some(Contradiction { why, held: None })
    }

    /// Returns the contradiction if this process's node cannot be unknown.
    pub(crate) fn refuse_node(&self, node: NodeId, is_known: bool) -> Option<Contradiction> {
        let is_own = self.state().node.is_some_and(|(own, _)| own == node);
        let why =
            (is_own && !is_known).then(|| format!("this process has joined as node {node}, which is not there"))?;
        Some(Contradiction { why, held: None })
    }

    pub(crate) fn known(&self) -> Known {
        self.state().known
    }

    /// Returns the same for a beat. Once the own writer has ended, its stream is checked by its seal instead. Otherwise a node that has
    /// joined again because of it would be told to join again for ever.
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

    /// Returns the error for which this process has to join again, or to open a new writer.
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

    /// Notes the timeline of a writer's server. A changed timeline means another server, so other engines may have lost what this one
    /// relies on.
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

    /// Checks whether another engine has found a loss since the writer was opened.
    pub(crate) fn compare_losses(&self, sent: &Known, found: &ServerAnswer) {
        let state = &mut *self.state();
        if sent.own.writer.0 != 0 && state.known.own.writer == sent.own.writer && found.loss != sent.loss {
            state.changed = Some("another engine has found that commits are lost".into());
            self.over.store(sent.own.writer.0, Ordering::Release);
        }
    }
}

/// The answer of the server about a stream.
pub(crate) async fn find(client: &impl GenericClient, sent: &Known) -> Result<ServerAnswer, tokio_postgres::Error> {
    let (writer, number) = (sent.own.writer.0.cast_signed(), sent.own.commit.0.cast_signed());
    let rows = client
        .query_typed(FOUND, &[typed::number(&writer), typed::number(&number)])
        .await?;
    let found = rows.first().map(|row| ServerAnswer {
        session: row.get(0),
        last: row.get::<_, i64>(1).cast_unsigned(),
        header: row.get(2),
        version: row.get::<_, i64>(3).cast_unsigned(),
        loss: row.get(4),
    });
    Ok(found.unwrap_or_default())
}

impl Known {
    /// Returns the contradiction if the server lacks something.
    pub(crate) fn refuse(&self, found: &ServerAnswer, session: &str) -> Result<(), Contradiction> {
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
        // If history was removed from it, its stamp is left.
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

/// Returns the stamp of a header: writer, number, synced number, and time.
fn stamp(header: &[u8]) -> Option<&[u8]> {
    header.get(8..40)
}
