//! The thread that prepares the next segment, and gives back the unused room of a finished one.
//!
//! Writing to blocks that already hold zeros syncs faster than growing a file, because only data goes to the disk. So the next segment is
//! filled with zeros ahead, in small steps, while the current one is being written.

use crate::{
    files::{File, Files, storage_full},
    recovery::segment_path,
    reserve::Reserve,
};
use std::{
    io::{self, ErrorKind},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The bytes of zeros written between two checks whether an append waits for the segment.
const STEP_BYTES: usize = 1 << 20;
/// The most finished segments waiting to be truncated. Further ones stay as they are.
const FINISHED_MAX: usize = 8;

/// Less room than this is not made ready ahead.
const AHEAD_BYTES_MIN: u64 = 256 << 10;
/// The time between two attempts to have the reserve again.
const RESERVE_RETRY: Duration = Duration::from_millis(250);

/// A segment's file with room in it.
#[derive(Debug)]
pub(super) struct Room {
    pub file: Arc<dyn File>,
    pub bytes: u64,
}

/// A request for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub segment: u64,
    pub bytes: u64,
    /// The least room that suffices.
    pub bytes_min: u64,
    /// Fill it with zeros: pays for small commits.
    pub zeros: bool,
}

#[derive(Debug, Default)]
struct Desk {
    wanted: Option<Want>,
    busy: Option<u64>,
    hurry: bool,
    ready: Option<(u64, Room)>,
    finished: Vec<(Arc<dyn File>, u64)>,
    stop: bool,
}

#[derive(Debug)]
struct Shared {
    files: Arc<dyn Files>,
    dir: PathBuf,
    reserve: Arc<Reserve>,
    desk: Mutex<Desk>,
    changed: Condvar,
}

/// The thread's handle.
#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn start(files: Arc<dyn Files>, dir: PathBuf, reserve: Arc<Reserve>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            files,
            dir,
            reserve,
            desk: Mutex::default(),
            changed: Condvar::new(),
        });
        let thread = std::thread::Builder::new().name("throng-log-room".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.work()
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Requests the next segment to be prepared.
    pub(super) fn want(&self, want: Want) {
        self.shared.desk().wanted = Some(want);
        self.shared.changed.notify_all();
    }

    /// Gives back the room of a finished segment beyond `used` bytes.
    pub(super) fn finish(&self, file: Arc<dyn File>, used: u64) {
        let mut desk = self.shared.desk();
        if desk.finished.len() < FINISHED_MAX {
            desk.finished.push((file, used));
            self.shared.changed.notify_all();
        }
    }

    /// Gives the prepared segment the following number, because the next one is a small one, made without it.
    pub(super) fn postpone(&self, segment: u64) {
        let mut desk = self.shared.desk();
        if let Some(wanted) = &mut desk.wanted
            && wanted.segment == segment
        {
            wanted.segment += 1;
        }
        while desk.busy == Some(segment) {
            desk.hurry = true;
            desk = self.shared.wait(desk);
        }
        let Some((number, _)) = &mut desk.ready else { return };
        if *number != segment {
            return;
        }
        let paths = [segment, segment + 1].map(|segment| segment_path(&self.shared.dir, segment));
        match self.shared.files.rename(&paths[0], &paths[1]) {
            Ok(()) => *number += 1,
            // It stays where it is, and is taken as it is.
            Err(error) => tracing::debug!(%error, "the next segment keeps its name"),
        }
    }

    /// Returns the segment, complete or as far as it was prepared; prepares it now if that has not begun.
    pub(super) fn take(&self, want: Want) -> io::Result<Room> {
        let mut desk = self.shared.desk();
        desk.wanted = None;
        while desk.busy == Some(want.segment) {
            desk.hurry = true;
            desk = self.shared.wait(desk);
        }
        let ready = desk.ready.take_if(|(number, _)| *number == want.segment);
        drop(desk);
        match ready {
            Some((_, room)) if room.bytes >= want.bytes_min => Ok(room),
            _ => self.shared.make_at_last(want),
        }
    }

    /// Reserves room in an existing file, as much as there is.
    pub(super) fn extend(&self, file: &dyn File, want: Want) -> io::Result<u64> {
        let extend = || self.shared.allocate(file, want);
        self.shared.reserve.with(extend)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.desk().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported already; nothing depends on the thread's result.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        self.changed.wait(desk).unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut keep_at = Instant::now();
        let mut desk = self.desk();
        loop {
            if let Some((file, used)) = desk.finished.pop() {
                drop(desk);
                if let Err(error) = file.set_length(used) {
                    tracing::warn!(%error, "a finished segment keeps its unused room");
                }
                desk = self.desk();
            } else if desk.stop {
                return;
            } else if let Some(want) = desk.wanted.take() {
                // A postponed segment has this number by now. If it were created again and that failed, it would lose its name.
                if desk.ready.as_ref().is_some_and(|(number, _)| *number == want.segment) {
                    continue;
                }
                desk.busy = Some(want.segment);
                desk.hurry = false;
                drop(desk);
                let made = self.make(want, &|| {
                    let desk = self.desk();
                    desk.hurry || desk.stop
                });
                desk = self.desk();
                desk.busy = None;
                match made {
                    Ok(room) => desk.ready = Some((want.segment, room)),
                    Err(error) => tracing::warn!(%error, segment = want.segment, "no room ahead for the next segment"),
                }
                self.changed.notify_all();
            } else if !self.reserve.has_room() && keep_at <= Instant::now() {
                drop(desk);
                self.reserve.keep();
                keep_at = Instant::now() + RESERVE_RETRY;
                desk = self.desk();
            } else {
                // Deleting the reserve wakes nobody.
                let waited = self.changed.wait_timeout(desk, RESERVE_RETRY);
                (desk, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Creates a segment that is needed now, deleting the reserve if necessary.
    fn make_at_last(&self, want: Want) -> io::Result<Room> {
        match self.make(want, &|| false) {
            Err(error) if error.kind() == ErrorKind::StorageFull && self.reserve.give() => {
                let bytes = want.bytes.min(self.reserve.part_bytes()).max(want.bytes_min);
                self.make(Want { bytes, ..want }, &|| false)
            }
            made => made,
        }
    }

    /// Creates a segment's file with room and a durable name. It is deleted again if there is no room.
    fn make(&self, want: Want, enough: &dyn Fn() -> bool) -> io::Result<Room> {
        let path = segment_path(&self.dir, want.segment);
        let file = self.files.open(&path, true)?;
        let made = self.fill(&*file, want, enough);
        if made.is_err() {
            // Best effort: the next start finds and deletes an empty segment that was never begun.
            let _ = self.files.remove(&path);
        }
        made.map(|bytes| Room { file, bytes })
    }

    fn fill(&self, file: &dyn File, want: Want, enough: &dyn Fn() -> bool) -> io::Result<u64> {
        let there = file.length()?;
        if there >= want.bytes_min.max(want.bytes.min(STEP_BYTES as u64)) {
            self.files.sync_dir(&self.dir)?;
            return Ok(there);
        }
        let bytes = self.allocate(file, want)?;
        self.files.sync_dir(&self.dir)?;
        if want.zeros {
            let zeros = vec![0; STEP_BYTES.min(usize::try_from(bytes).unwrap_or(STEP_BYTES))];
            let mut at = 0;
            while at < bytes && !enough() {
                let step = (bytes - at).min(zeros.len() as u64);
                file.write_at(&zeros[..usize::try_from(step).unwrap_or(0)], at)?;
                at += step;
                file.sync_data()?;
            }
        }
        Ok(bytes)
    }

    /// Reserves as much as requested, or half of it, or a quarter, …; returns the length.
    fn allocate(&self, file: &dyn File, want: Want) -> io::Result<u64> {
        let there = file.length()?;
        let least = match want.bytes_min {
            0 => AHEAD_BYTES_MIN.min(want.bytes),
            least => least,
        };
        let mut bytes = want.bytes.max(least);
        loop {
            let free = self.files.free_bytes(&self.dir).unwrap_or(u64::MAX);
            let error = if bytes.saturating_sub(there) > free {
                storage_full()
            } else {
                match file.allocate(bytes) {
                    Ok(()) => return Ok(bytes.max(there)),
                    Err(error) => error,
                }
            };
            // On some file systems a failed reservation keeps what it has got so far.
            file.set_length(there)?;
            if error.kind() != ErrorKind::StorageFull || bytes == least {
                return Err(error);
            }
            bytes = (bytes / 2).max(least);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::files::Disk;
    use std::{
        path::Path,
        sync::atomic::{AtomicBool, Ordering},
    };

    const ROOM_BYTES: u64 = 64 << 10;

    /// A disk whose directory syncs fail on demand.
    #[derive(Debug, Default)]
    struct Failing {
        sync_dir: AtomicBool,
    }

    impl Files for Failing {
        fn create_dir(&self, dir: &Path) -> io::Result<()> {
            Disk.create_dir(dir)
        }

        fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
            Disk.lock(path)
        }

        fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>> {
            Disk.open(path, create)
        }

        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            Disk.list(dir)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            Disk.rename(from, to)
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            Disk.remove(path)
        }

        fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
            Disk.free_bytes(dir)
        }

        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            if self.sync_dir.load(Ordering::SeqCst) {
                return Err(io::Error::other("told to fail"));
            }
            Disk.sync_dir(dir)
        }
    }

    fn room(segment: u64, bytes_min: u64) -> Want {
        Want {
            segment,
            bytes: ROOM_BYTES,
            bytes_min,
            zeros: false,
        }
    }

    fn keeper(files: &Arc<Failing>, dir: &Path) -> Keeper {
        let files = Arc::clone(files) as Arc<dyn Files>;
        let reserve = Arc::new(Reserve::new(Arc::clone(&files), dir, 0));
        Keeper::start(files, dir.into(), reserve).unwrap()
    }

    fn settle(keeper: &Keeper) {
        let mut desk = keeper.shared.desk();
        while desk.wanted.is_some() || desk.busy.is_some() {
            let (next, _) = keeper
                .shared
                .changed
                .wait_timeout(desk, std::time::Duration::from_millis(1))
                .unwrap_or_else(PoisonError::into_inner);
            desk = next;
        }
    }

    /// Checks that the room has its name: bytes written into it are found under the segment's path.
    fn assert_named(keeper: &Keeper, segment: u64, room: &Room) {
        room.file.write_at(b"found", 0).unwrap();
        let there = std::fs::read(segment_path(&keeper.shared.dir, segment)).unwrap();
        assert_eq!(&there[..5], b"found");
        assert!(room.bytes >= ROOM_BYTES && there.len() as u64 >= room.bytes);
    }

    #[test]
    fn postponed_room_keeps_its_name_when_wanted_again() {
        let dir = tempfile::tempdir().unwrap();
        let files = Arc::new(Failing::default());
        let keeper = keeper(&files, dir.path());
        keeper.want(room(4, 0));
        settle(&keeper);
        keeper.postpone(4);
        files.sync_dir.store(true, Ordering::SeqCst);
        keeper.want(room(5, 0));
        settle(&keeper);
        let taken = keeper.take(room(5, 0)).unwrap();
        assert_named(&keeper, 5, &taken);
    }

    #[test]
    fn room_too_small_is_made_larger_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let files = Arc::new(Failing::default());
        let keeper = keeper(&files, dir.path());
        let small = Want {
            bytes: 4 << 10,
            ..room(4, 0)
        };
        keeper.want(small);
        settle(&keeper);
        let taken = keeper.take(room(4, ROOM_BYTES)).unwrap();
        assert_named(&keeper, 4, &taken);
        assert!(keeper.shared.desk().ready.is_none());
        keeper.want(small);
        settle(&keeper);
        files.sync_dir.store(true, Ordering::SeqCst);
        assert!(keeper.take(room(4, ROOM_BYTES * 2)).is_err());
        assert!(
            keeper.shared.desk().ready.is_none(),
            "what has lost its name is not handed out"
        );
    }
}
