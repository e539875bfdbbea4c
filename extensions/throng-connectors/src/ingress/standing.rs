//! The state of a source, in the service's readiness.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};
use throng::services::health::{Health, Reason, Registered, Status};

/// A check of the service, named after the source.
pub(super) struct Standing {
    check: Registered,
    place: String,
    /// The source was open once: what is wrong now may pass. Written by the ingress, when it opens the source.
    was_open: AtomicBool,
}

impl Standing {
    pub(super) fn new(health: &Health, name: &str, place: String) -> Self {
        Self {
            check: health.register(name, None),
            place,
            was_open: AtomicBool::new(false),
        }
    }

    /// The source is open, though something may trouble it.
    pub(super) fn is_open(&self, trouble: Option<String>) {
        self.was_open.store(true, Ordering::Release);
        match trouble {
            None => self.check.pass(),
            Some(trouble) => self.check.check_in(Status::Warn, Reason::Other(trouble)),
        }
    }

    /// Nothing comes for now, and something may have troubled the source before.
    pub(super) fn is_lost(&self, why: &dyn fmt::Display, trouble: Option<String>) {
        let trouble = trouble.map_or_else(String::new, |trouble| format!("; {trouble}"));
        let why = format!("{} is not consumed: {why}{trouble}", self.place);
        let status = match self.was_open.load(Ordering::Acquire) {
            true => Status::Warn,
            false => Status::Fail,
        };
        self.check.check_in(status, Reason::Other(why));
    }

    pub(super) fn end(&self) {
        self.check.clone().unregister();
    }
}
