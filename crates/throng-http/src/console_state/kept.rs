//! Answers that are the same for everybody. While several consoles are open, each is made at most once a second, and shared.

use crate::problem::Answered;
use bytes::Bytes;
use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The greatest age of an answer that is given to another console.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// The most answers that are kept, each of at most `BYTES_MAX`.
const ANSWERS_MAX: usize = 32;
const BYTES_MAX: usize = 1 << 20;

/// The time when it was made, and its bytes. Locked while it is made again, so that all who wait get the same.
type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Bytes)>>>;

/// Answers by the question.
#[derive(Default)]
pub(crate) struct SharedAnswers(Mutex<HashMap<String, Slot>>);

impl SharedAnswers {
    /// Returns a recent answer, or makes a new one.
    pub(crate) async fn get(&self, asked: &str, answer: impl Future<Output = Answered<Bytes>>) -> Answered<Bytes> {
        let place = self.place(asked);
        let mut kept = place.lock().await;
        if let Some((_, answer)) = kept.as_ref().filter(|(at, _)| at.elapsed() < KEPT_FOR) {
            return Ok(answer.clone());
        }
        // An answer ages from before it is made, since its numbers may be that old.
        let at = Instant::now();
        let answer = answer.await?;
        *kept = (answer.len() <= BYTES_MAX).then(|| (at, answer.clone()));
        Ok(answer)
    }

    fn place(&self, asked: &str) -> Slot {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ANSWERS_MAX && !all.contains_key(asked) {
            all.clear();
        }
        all.entry(asked.to_owned()).or_default().clone()
    }

    /// Drops all answers, because they are outdated or no longer needed.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use std::cell::Cell;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn an_answer_is_made_once_for_concurrent_requests() {
        let (kept, made) = (SharedAnswers::default(), Cell::new(0));
        let made_anew = async || {
            made.set(made.get() + 1);
            tokio::task::yield_now().await;
            Ok(made.get().to_string().into())
        };
        block_on(async {
            let all = (0..10).map(|_| kept.get("/admin/trouble", made_anew()));
            for answer in futures_util::future::join_all(all).await {
                assert_eq!(answer.ok().unwrap(), "1");
            }
            assert_eq!(kept.get("/admin/map", made_anew()).await.ok().unwrap(), "2");
            kept.clear();
            assert_eq!(kept.get("/admin/trouble", made_anew()).await.ok().unwrap(), "3");
        });
    }

    #[test]
    fn no_problem_is_kept_nor_anything_large_and_only_so_many() {
        let kept = SharedAnswers::default();
        block_on(async {
            let problem = async { Err(Problem::malformed("no").boxed()) };
            assert!(kept.get("a", problem).await.is_err());
            let large = "x".repeat(BYTES_MAX + 1);
            assert!(kept.get("a", async { Ok(large.into()) }).await.is_ok());
            assert_eq!(kept.get("a", async { Ok("2".into()) }).await.ok().unwrap(), "2");
            for other in 0..100 {
                assert!(kept.get(&other.to_string(), async { Ok("1".into()) }).await.is_ok());
                assert!(kept.0.lock().unwrap().len() <= ANSWERS_MAX);
            }
        });
    }
}
