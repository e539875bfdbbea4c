//! A fence that costs the sender nothing.
//!
//! A sender publishes an item and then checks whether a receiver waits; a receiver announces its wait and then checks for items. For one of
//! the two to see the other, both need a full fence between their store and their load. That costs the sender about 5 ns an item, more than
//! everything else it does. Linux can execute a fence on every core that runs this program (`membarrier`, 1 to 2 µs). Then only the
//! receiver pays, and only when it has nothing to do. On other systems both use a fence.

use crate::sync::{Ordering, fence};
use std::sync::atomic::compiler_fence;

/// The barrier of this process: `membarrier`, or fences on both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Barrier {
    receivers_pay: bool,
}

impl Barrier {
    /// The best this process has.
    pub(crate) fn here() -> Self {
        Self {
            receivers_pay: everywhere::is_available(),
        }
    }

    /// True if a sender needs no more than [`compiler`](Self::compiler).
    pub(crate) fn receivers_pay(self) -> bool {
        self.receivers_pay
    }

    /// Keeps the compiler from moving a sender's load before its store.
    #[inline(always)]
    pub(crate) fn compiler(self) {
        compiler_fence(Ordering::SeqCst);
    }

    /// Orders a sender's store before its load.
    pub(crate) fn sender(self) {
        match self.receivers_pay {
            true => self.compiler(),
            false => fence(Ordering::SeqCst),
        }
    }

    /// Orders a receiver's store before its load.
    pub(crate) fn receiver(self) {
        fence(Ordering::SeqCst);
        if self.receivers_pay {
            everywhere::fence();
        }
    }
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, feature = "loom"))
))]
#[allow(unsafe_code)]
mod everywhere {
    use std::{
        ffi::{c_int, c_long, c_uint},
        sync::OnceLock,
    };

    // SAFETY: the signature is the C library's own, see syscall(2).
    unsafe extern "C" {
        /// The function is in the C library that the standard library links.
        fn syscall(number: c_long, ...) -> c_long;
    }

    const MEMBARRIER: c_long = if cfg!(target_arch = "x86_64") { 324 } else { 283 };
    const PRIVATE_EXPEDITED: c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

    fn membarrier(command: c_int) -> c_long {
        let (flags, cpu): (c_uint, c_int) = (0, 0);
        // SAFETY: the call takes three integers and touches no memory of ours.
        unsafe { syscall(MEMBARRIER, command, flags, cpu) }
    }

    /// True if the kernel has the call and lets this process use it.
    pub(super) fn is_available() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED) == 0)
    }

    /// A full fence on every core that runs a thread of this process.
    pub(super) fn fence() {
        let done = membarrier(PRIVATE_EXPEDITED);
        assert!(
            done == 0,
            "a process that was registered for membarrier can always call it"
        );
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, feature = "loom"))
)))]
mod everywhere {
    pub(super) fn is_available() -> bool {
        false
    }

    pub(super) fn fence() {}
}
