//! Subscriptions: events are sent as far as the client has granted credit for them.
//!
//! The events are in the journal, so a subscription that waits for its client holds nothing but its position.

use super::{
    EVENTS_BYTES_MAX,
    message::{After, Id, Subscribe},
    request,
    shared::{Credit, Shared, Subscription},
};
use crate::{
    access::ShownEvents,
    follow,
    problem::{Answered, Problem},
    routes,
    server::LivePlace,
};
use std::{
    future::{Future, poll_fn},
    rc::Rc,
    task::Poll,
};
use throng::{
    Cursor, Engine, FeedError, Follow, Follower,
    journal::{CommitNo, Position, WriterId},
};
use tokio::time::timeout;

/// The events of one message.
const PAGE_EVENTS: u32 = 100;
/// The cursor before the first event, the start of history.
const START: &str = "start";

pub(super) async fn subscribe(shared: &Rc<Shared>, id: Id, asked: Subscribe<'_>) -> Answered<()> {
    let (server, connection) = (&shared.server, &shared.connection);
    let from = request::spend(server, connection).and_then(|()| from(shared, &asked));
    // A refusal takes its part of a batch, too.
    let turn = request::turn(server, connection, &mut None).await;
    let from = from.and_then(|from| turn.map(|()| from))?;
    may_subscribe(shared, &id)?;
    let place = shared.server.live_place()?;
    let credit = Rc::new(Credit::default());
    credit.grant(asked.credit);
    let (_, names) = routes::kind(server, &asked.kind)?;
    let shown = ShownEvents::new(server, connection.caller().as_ref(), names.kind);
    let (engine, commands) = (server.shared().engine.clone(), shared.executed());
    let mut following = Box::pin({
        let shared = shared.clone();
        async move {
            // A command before it may create the entity. A kind is followed from here on, whatever is in flight.
            if matches!(from, From::Entity(_)) {
                shared.answered(commands).await;
            }
            from.follow(&engine).await
        }
    });
    // The position is taken before the next message is executed, so that a kind's follower sees the events of that message.
    let followed = poll_fn(|context| Poll::Ready(following.as_mut().poll(context))).await;
    let task = tokio::task::spawn_local({
        let (shared, id, credit) = (shared.clone(), id.clone(), credit.clone());
        async move {
            let followed = match followed {
                Poll::Ready(followed) => followed,
                Poll::Pending => following.await,
            };
            run(&shared, &id, (&credit, &shown), followed, place).await;
            shared.subscriptions.borrow_mut().remove(&id);
        }
    });
    let task = task.abort_handle();
    let subscription = Subscription { credit, task };
    shared.subscriptions.borrow_mut().insert(id, subscription);
    Ok(())
}

/// Refuses an id that is in use, and a subscription beyond the limit.
fn may_subscribe(shared: &Shared, id: &Id) -> Answered<()> {
    let most = shared.server.limits().socket_subscriptions_max;
    let subscriptions = shared.subscriptions.borrow();
    if subscriptions.contains_key(id) {
        let detail = "There is a subscription of this id already; end it first, or choose another id.";
        return Err(Problem::malformed(detail).at_field("id").boxed());
    }
    if subscriptions.len() >= most {
        let detail = format!("This socket has {most} subscriptions already; end one, or open another socket.");
        return Err(Problem::malformed(detail).boxed());
    }
    Ok(())
}

/// Grants further events.
pub(super) fn grant(shared: &Shared, id: &Id, events: u32) -> Answered<()> {
    match shared.subscriptions.borrow().get(id) {
        Some(subscription) => {
            subscription.credit.grant(events);
            Ok(())
        }
        None => Err(nobody()),
    }
}

/// Ends a subscription at its client's request.
pub(super) fn unsubscribe(shared: &Shared, id: &Id) -> Answered<()> {
    let removed = shared.subscriptions.borrow_mut().remove(id);
    removed.map(drop).ok_or_else(nobody)
}

fn nobody() -> Box<Problem> {
    Problem::malformed("This socket has no subscription of this id; it may have ended.")
        .at_field("id")
        .boxed()
}

/// Returns the entity or kind that a subscription follows, and its beginning, if the caller may follow it.
fn from(shared: &Shared, asked: &Subscribe<'_>) -> Answered<From> {
    let (kind, names) = routes::kind(&shared.server, &asked.kind)?;
    let caller = shared.connection.caller();
    let id = asked.entity.as_deref().map(request::entity).transpose()?;
    routes::may_follow(&shared.server, caller.as_ref(), names, id.as_deref())?;
    let Some(id) = id else {
        let from = match &asked.after {
            Some(After::Cursor(text)) if text != START => text.parse().map(OfKind::At).map_err(|()| not_a_cursor())?,
            Some(After::Seq(0) | After::Cursor(_)) => OfKind::Start,
            Some(After::Seq(_)) => return Err(not_a_cursor()),
            None => OfKind::Now,
        };
        return Ok(From::Kind { kind, from });
    };
    let id = id.into_owned();
    let (after, at) = match &asked.after {
        None => (0, None),
        Some(After::Seq(seq)) => (*seq, None),
        Some(After::Cursor(text)) => entity_cursor(text).ok_or_else(not_a_cursor)?,
    };
    Ok(From::Entity(Follow::Entity { kind, id, after, at }))
}

/// The beginning of a subscription: an entity's or a kind's events.
enum From {
    Entity(Follow),
    Kind { kind: usize, from: OfKind },
}

enum OfKind {
    Start,
    Now,
    At(Cursor),
}

impl From {
    async fn follow(self, engine: &Engine) -> Result<Follower, FeedError> {
        let follow = match self {
            Self::Entity(follow) => follow,
            Self::Kind { kind, from } => Follow::Kind {
                kind,
                from: match from {
                    OfKind::Start => engine.place(true).await?,
                    OfKind::Now => engine.place(false).await?,
                    OfKind::At(cursor) => cursor,
                },
            },
        };
        engine.follow(follow).await
    }
}

/// `start`, `7`, or `7@writer.commit`.
fn entity_cursor(text: &str) -> Option<(u64, Option<Position>)> {
    if text == START {
        return Some((0, None));
    }
    let Some((seq, at)) = text.split_once('@') else {
        return Some((text.parse().ok()?, None));
    };
    let (writer, commit) = at.split_once('.')?;
    let position = Position {
        writer: WriterId(writer.parse().ok()?),
        commit: CommitNo(commit.parse().ok()?),
    };
    Some((seq.parse().ok()?, Some(position)))
}

fn not_a_cursor() -> Box<Problem> {
    let detail = "after is not a cursor this service gave for such a subscription; leave it out, or give \"start\".";
    Problem::malformed(detail).at_field("after").boxed()
}

async fn run(
    shared: &Shared,
    id: &Id,
    (credit, shown): (&Credit, &ShownEvents),
    followed: Result<Follower, FeedError>,
    _place: LivePlace,
) {
    let mut follower = match followed {
        Ok(follower) => follower,
        Err(error) => return shared.tell(|out| out.problem(Some(id), &follow::problem(error))),
    };
    let cursor = |follower: &Follower| follower.place().to_string();
    shared.tell(|out| out.subscribed(id, &cursor(&follower)));
    let ended = tell(shared, id, (credit, shown), &mut follower).await;
    shared.tell(|out| out.ended(id, &ended, &cursor(&follower)));
}

/// Sends events until that fails, and returns the reason.
async fn tell(
    shared: &Shared,
    id: &Id,
    (credit, shown): (&Credit, &ShownEvents),
    follower: &mut Follower,
) -> Box<Problem> {
    let with_entity = matches!(follower.place(), Follow::Kind { .. });
    loop {
        if credit.left.get() == 0
            && let Err(problem) = paused(shared, id, credit, follower).await
        {
            return problem;
        }
        shared.room(EVENTS_BYTES_MAX).await;
        let limit = credit.left.get().min(PAGE_EVENTS);
        let share = &shared.server.shared().held.pages;
        match follow::page(follower, limit as usize, share).await {
            Ok(follow::Page { mut events, charge, .. }) => {
                events.retain(|event| shown.has(&event.id, &event.event));
                if events.is_empty() {
                    continue;
                }
                shared.hold(Some(charge));
                let told = u32::try_from(events.len()).unwrap_or(limit);
                credit.left.set(credit.left.get().saturating_sub(told));
                let cursor = follower.place().to_string();
                shared.tell(|out| out.events(id, &events, with_entity, &cursor));
            }
            Err(error) => return follow::problem(error),
        }
    }
}

/// Waits for credit. A client that leaves events waiting is informed, and after some time its subscription ends.
async fn paused(shared: &Shared, id: &Id, credit: &Credit, follower: &mut Follower) -> Answered<()> {
    let granted = async {
        while credit.left.get() == 0 {
            credit.granted.notified().await;
        }
    };
    let mut granted = std::pin::pin!(granted);
    tokio::select! {
        biased;
        () = &mut granted => return Ok(()),
        ready = follower.ready() => ready.map_err(follow::problem)?,
    }
    shared.tell(|out| out.paused(id, &follower.place().to_string()));
    let wait = shared.server.limits().socket_credit_wait;
    timeout(wait, granted)
        .await
        .map_err(|_| Problem::slow_reader(wait).boxed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_of_an_entity_is_a_number_with_or_without_its_commit() {
        let at = |writer, commit| Position {
            writer: WriterId(writer),
            commit: CommitNo(commit),
        };
        assert_eq!(entity_cursor("7"), Some((7, None)));
        assert_eq!(entity_cursor("7@1.3"), Some((7, Some(at(1, 3)))));
        assert_eq!(entity_cursor("start"), Some((0, None)));
        for wrong in ["", "x", "7@", "7@1", "@1.3", "7@1.3.4", "-1"] {
            assert_eq!(entity_cursor(wrong), None, "{wrong}");
        }
    }
}
