//! Readiness, by epoll.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll};

use crate::error::{Doing as _, Result};

pub(crate) use rustix::event::epoll::EventFlags;

/// The wait from which on a precision of a millisecond is enough.
const COARSE_NANOS: u64 = 20_000_000;

/// A set of sockets to wait for, each under a number.
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

    /// Waits at most this long. Afterwards `events` holds the ready sockets.
    ///
    /// `epoll_wait` counts in milliseconds. If a request is due sooner, `ppoll` waits for the set as a whole, to the nanosecond. That is one more
    /// system call, and it is made only while there is time to spare.
    pub(crate) fn wait(&mut self, nanos: u64) -> Result<()> {
        self.events.clear();
        let mut nanos = nanos;
        if nanos > 0 && nanos < COARSE_NANOS {
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: nanos as _,
            };
            match rustix::event::poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => nanos = 0,
                Err(error) => return Err(error).doing(|| "wait for sockets".into()),
            }
        }
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
