//! Readiness, by epoll.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};

use crate::error::{Doing as _, Result};

pub(crate) use rustix::event::epoll::EventFlags;

/// A set of sockets to be woken for, each under a number.
pub(crate) struct Poll {
    epoll: OwnedFd,
    pub(crate) events: Vec<epoll::Event>,
}

impl Poll {
    pub(crate) fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).doing(|| "create an epoll instance".into())?;
        Ok(Poll {
            epoll,
            events: Vec::with_capacity(512),
        })
    }

    pub(crate) fn add(&self, socket: impl AsFd, number: u64, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(number), flags)
    }

    pub(crate) fn modify(&self, socket: impl AsFd, number: u64, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(number), flags)
    }

    /// Waits at most so long; what is ready stands in `events` then.
    pub(crate) fn wait(&mut self, nanos: u64) -> Result<()> {
        self.events.clear();
        let timeout = Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as _,
        };
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).doing(|| "wait for sockets".into()),
        }
    }
}
