//! The date in the head of a response, formatted once a second.

use std::{
    cell::{Cell, RefCell},
    time::SystemTime,
};

/// An IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) struct Date {
    second: Cell<u64>,
    text: RefCell<String>,
}

impl Default for Date {
    fn default() -> Self {
        let date = Self {
            second: Cell::new(0),
            text: RefCell::default(),
        };
        date.look();
        date
    }
}

impl Date {
    /// Looks at the clock.
    pub(crate) fn look(&self) {
        let now = SystemTime::now();
        let second = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if self.second.replace(second) != second || self.text.borrow().is_empty() {
            *self.text.borrow_mut() = httpdate::fmt_http_date(now);
        }
    }

    pub(crate) fn with<T>(&self, write: impl FnOnce(&[u8]) -> T) -> T {
        write(self.text.borrow().as_bytes())
    }
}
