//! The task that looks at the bytes the journal takes of the disk.

use super::Epochs;
use std::sync::{Arc, Weak};

/// Begins to look, if there is a bound.
pub(crate) fn start(epochs: &Arc<Epochs>) {
    if epochs.context.options.disk_bytes_max.is_some() {
        epochs.context.host.spawn(Box::pin(task(Arc::downgrade(epochs))));
    }
}

async fn task(epochs: Weak<Epochs>) {
    loop {
        let Some(strong) = epochs.upgrade() else { return };
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
