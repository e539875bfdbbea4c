//! The state of read models, as health checks of a service that answers from them.

use crate::{Error, ReadError, ReadModel, Reader};
use std::{thread, time::Duration};
use throng::services::health::{Health, Reason, Registered, Status};
use tokio::{sync::oneshot, time::sleep};

/// The pause between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at read models until it is dropped.
#[derive(Debug)]
pub struct Watch {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(
        reader: Reader,
        health: &Health,
        models: impl IntoIterator<Item = ReadModel>,
    ) -> Result<Self, Error> {
        let watched = models.into_iter().map(|model| Watched::new(model, health)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("throng-redis-watch".into())
            .spawn(move || runtime.block_on(look_until(reader, watched, stopped)))
            .map_err(Error::Thread)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// A read model that is watched, and its check.
struct Watched {
    model: ReadModel,
    check: Registered,
    was_reached: bool,
}

impl Watched {
    fn new(model: ReadModel, health: &Health) -> Self {
        let check = health.register(format!("read model {}", model.name), None);
        check.fail("Redis was not reached yet");
        Self {
            model,
            check,
            was_reached: false,
        }
    }

    async fn look(&mut self, reader: &Reader) {
        let mut commands = redis::pipe();
        commands.exists(&self.model.place_key).exists(&self.model.filling_key);
        let answer = reader.ask::<(bool, bool)>(&commands).await;
        self.was_reached |= !matches!(answer, Err(ReadError::Unavailable { .. }));
        let trouble = match answer {
            Ok((true, false)) => return self.check.pass(),
            Ok(_) => ReadError::Incomplete { name: self.model.name },
            Err(error) => error,
        };
        let status = if self.was_reached { Status::Warn } else { Status::Fail };
        self.check.check_in(status, Reason::Other(trouble.to_string()));
    }
}

async fn look_until(reader: Reader, mut watched: Vec<Watched>, mut stopped: oneshot::Receiver<()>) {
    loop {
        for watched in &mut watched {
            // A Redis that is silent holds up no end.
            tokio::select! {
                () = watched.look(&reader) => {}
                _ = &mut stopped => return,
            }
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            _ = &mut stopped => return,
        }
    }
}
