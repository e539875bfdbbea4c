//! Waits for all, some or the first of several answers until a deadline, for threads without a runtime.
//!
//! Tasks have this already: `futures::future::join_all` and `select_ok` on [`Pending`]s, with `tokio::time::timeout` around them. A service
//! must not wait at all: it uses [`Context::ask`](crate::Context::ask). The page `docs/services.md` of the repository compares the three.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use crate::{
    park,
    reply::{AskError, Pending},
};

/// Waits on this thread for all answers, until a common deadline. They are in the order of the requests.
pub fn wait_all<T>(asked: impl IntoIterator<Item = Pending<T>>, limit: Duration) -> Vec<Result<T, AskError>> {
    let mut asked: Vec<_> = asked.into_iter().map(Some).collect();
    let mut answers: Vec<_> = asked.iter().map(|_| Err(AskError::TimedOut)).collect();
    collect(&mut asked, limit, |place, answer| {
        answers[place] = answer;
        false
    });
    answers
}

/// Waits on this thread until this many have answered, no others can, or the time is over. The answers are in the order they came, each
/// with the number of its request; `count` 1 waits for the fastest.
pub fn wait_some<T>(asked: impl IntoIterator<Item = Pending<T>>, count: usize, limit: Duration) -> Vec<(usize, T)> {
    let mut asked: Vec<_> = asked.into_iter().map(Some).collect();
    let mut answers = Vec::new();
    if count > 0 {
        collect(&mut asked, limit, |place, answer| {
            answers.extend(answer.ok().map(|answer| (place, answer)));
            answers.len() >= count
        });
    }
    answers
}

/// Passes answers to `take` as they come, until it has enough, all have come, or the time is over.
fn collect<T>(
    asked: &mut [Option<Pending<T>>],
    limit: Duration,
    mut take: impl FnMut(usize, Result<T, AskError>) -> bool,
) {
    let until = Instant::now().checked_add(limit);
    let waker = park::waker();
    let mut context = Context::from_waker(&waker);
    loop {
        let mut is_waiting = false;
        for (place, slot) in asked.iter_mut().enumerate() {
            let Some(pending) = slot else { continue };
            match Pin::new(pending).poll(&mut context) {
                Poll::Pending => is_waiting = true,
                Poll::Ready(answer) => {
                    *slot = None;
                    if take(place, answer) {
                        return;
                    }
                }
            }
        }
        if !is_waiting || until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
        park::park_until(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    const LONG: Duration = Duration::from_secs(30);

    fn pairs<const COUNT: usize>() -> ([Option<Reply<u32>>; COUNT], Vec<Pending<u32>>) {
        let (replies, pending): (Vec<_>, Vec<_>) = (0..COUNT).map(|_| Reply::pair()).unzip();
        let mut replies = replies.into_iter();
        (std::array::from_fn(|_| replies.next()), pending)
    }

    #[test]
    fn answers_come_in_order_of_the_asks_and_silence_is_told_apart() {
        let ([first, second, third], pending) = pairs();
        third.unwrap().send(3);
        first.unwrap().send(1);
        drop(second);
        assert_eq!(wait_all(pending, LONG), [Ok(1), Err(AskError::Gone), Ok(3)]);
    }

    #[test]
    fn the_deadline_is_one_for_all() {
        let ([first, _second, _third], pending) = pairs();
        first.unwrap().send(1);
        let answers = wait_all(pending, Duration::ZERO);
        assert_eq!(answers, [Ok(1), Err(AskError::TimedOut), Err(AskError::TimedOut)]);
    }

    #[test]
    fn the_first_answer_is_enough_and_failures_do_not_count() {
        let ([first, second, third], pending) = pairs();
        drop(first);
        let answering = std::thread::spawn(move || third.unwrap().send(3));
        assert_eq!(wait_some(pending, 1, LONG), [(2, 3)]);
        answering.join().unwrap();
        drop(second);
        let ([first, second], pending) = pairs();
        drop((first, second));
        assert_eq!(wait_some(pending, 1, LONG), [], "nobody is left to wait for");
        let ([_first], pending) = pairs();
        assert_eq!(wait_some(pending, 0, LONG), []);
    }
}
