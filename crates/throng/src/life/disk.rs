//! The task that looks at the bytes the journal takes of the disk.

use super::Lives;
use std::sync::{Arc, Weak};

/// Begins to look, if there is a bound.
pub(crate) fn start(lives: &Arc<Lives>) {
    if lives.context.options.disk_bytes_max.is_some() {
        lives.context.host.spawn(Box::pin(task(Arc::downgrade(lives))));
    }
}

async fn task(lives: Weak<Lives>) {
    loop {
        let Some(strong) = lives.upgrade() else { return };
        let context = &strong.context;
        if context.is_stopping() {
            return;
        }
        let Some(pause) = context.disk.look(context.journal.disk_bytes(), &context.metrics) else {
            return;
        };
        let (look_early, sleep) = (Arc::clone(&context.disk.look_early), context.host.sleep(pause));
        drop(strong);
        look_early.within(sleep).await;
    }
}
