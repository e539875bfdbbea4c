//! The threads that sync for the appender while syncs are slow.
//!
//! Each opens the segment itself. Linux reports a failed write-back once for each open file, so one thread's failure cannot be hidden by
//! another's success.

use super::state::Shared;
use crate::{
    files::{File, Files},
    pace::MANY,
    recovery::segment_path,
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

#[derive(Debug, Default)]
pub(super) struct Syncers {
    threads: Vec<JoinHandle<()>>,
}

impl Syncers {
    /// Starts the threads at first need.
    pub(super) fn start(
        &mut self,
        shared: &Arc<Shared>,
        files: &Arc<dyn Files>,
        dir: &Path,
        sync_delay: Duration,
    ) -> io::Result<()> {
        while self.threads.len() < MANY {
            let syncer = Syncer {
                shared: Arc::clone(shared),
                files: Arc::clone(files),
                dir: dir.to_owned(),
                sync_delay,
                open: None,
            };
            let thread = std::thread::Builder::new()
                .name("throng-log-sync".into())
                .spawn(move || syncer.work())?;
            self.threads.push(thread);
        }
        Ok(())
    }

    pub(super) fn started(&self) -> bool {
        self.threads.len() == MANY
    }
}

impl Drop for Syncers {
    /// The shared state must say stop before this.
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic there has been reported already; nothing depends on the thread's result.
            let _ = thread.join();
        }
    }
}

struct Syncer {
    shared: Arc<Shared>,
    files: Arc<dyn Files>,
    dir: PathBuf,
    sync_delay: Duration,
    open: Option<(u64, Arc<dyn File>)>,
}

impl Syncer {
    fn work(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        loop {
            while state.wanted == 0 && !state.stop {
                state = shared.wait_for_work(state);
            }
            if state.stop {
                return;
            }
            state.wanted -= 1;
            let Some(live) = state
                .live
                .as_ref()
                .filter(|live| live.over.is_none() && live.durable < live.written)
            else {
                continue;
            };
            let (writer, segment, upto) = (live.writer, live.segment, live.written);
            state.syncing += 1;
            drop(state);
            let began = Instant::now();
            let result = self.sync(segment);
            let took = began.elapsed();
            state = shared.state();
            state.syncing -= 1;
            let answers = match (&state.live, result) {
                (Some(live), Ok(())) if live.writer == writer && live.over.is_none() => {
                    Some(shared.synced(&mut state, upto, took))
                }
                (Some(live), Err(error)) if live.writer == writer => {
                    let path = segment_path(&self.dir, segment);
                    Some(state.fail(format!("syncing {} failed: {error}", path.display())))
                }
                _ => None,
            };
            shared.changed.notify_all();
            drop(state);
            if let Some(answers) = answers {
                answers.send();
            }
            state = shared.state();
        }
    }

    fn sync(&mut self, segment: u64) -> io::Result<()> {
        let file = match self.open.take() {
            Some((open, file)) if open == segment => file,
            _ => self.files.open(&segment_path(&self.dir, segment), false)?,
        };
        file.sync_data()?;
        if !self.sync_delay.is_zero() {
            std::thread::sleep(self.sync_delay);
        }
        self.open = Some((segment, file));
        Ok(())
    }
}
