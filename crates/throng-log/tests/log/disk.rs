//! A disk in memory that can lose power, fill up, and fail at a chosen call. After a power loss each unsynced sector survives or not, at random.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};
use throng_log::files::{File, Files};

pub const SECTOR: usize = 512;

/// A seeded stream of choices.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// The calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    Open,
    List,
    Read,
    Write,
    Sync,
    Allocate,
    SetLength,
    SyncDir,
    Remove,
    Lock,
    CreateDir,
}

/// Calls of one kind fail this many times, from the `after`-th call on (0: the next).
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub call: Call,
    pub after: u64,
    pub times: u64,
    pub kind: ErrorKind,
}

impl Fault {
    /// Returns a fault of one call, the one after this many others.
    pub fn once(call: Call, after: u64) -> Self {
        Self {
            call,
            after,
            times: 1,
            kind: ErrorKind::Other,
        }
    }
}

/// A fault at one of a process's calls, of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The call fails.
    Failure,
    /// The process dies before the call.
    Death,
}

#[derive(Debug, Default)]
struct Content {
    /// The bytes that a reader gets.
    cached: Vec<u8>,
    /// The bytes that remain after a power loss.
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// The number of failed write-backs. Each open file reports each of them once.
    failed: u64,
}

type Meanwhile = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Handles of an earlier epoch are dead.
    epoch: u64,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    contents: HashMap<u64, Content>,
    next_file: u64,
    locked: BTreeSet<PathBuf>,
    /// The number of changes made while no lock was held.
    changes_unlocked: u64,
    faults: Vec<Fault>,
    /// The hit, and the number of calls before it.
    hit: Option<(u64, Hit)>,
    calls: BTreeMap<Call, u64>,
    room: Option<u64>,
    /// If a reservation fails for lack of space, it keeps the part it got, as on ext4, and the free space is unknown.
    keeps_what_failed: bool,
    /// Runs during the next sync.
    during_sync: Option<Meanwhile>,
    /// Runs just before the next file is opened.
    before_open: Option<Meanwhile>,
}

/// The disk. Clones share it.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl std::fmt::Debug for Disk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl Disk {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn fail(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Hits the process after this many more calls of any kind.
    pub fn hit_after(&self, calls: u64, hit: Hit) {
        self.state().hit = Some((calls, hit));
    }

    /// Returns true if the hit has happened, or none was set.
    pub fn is_hit(&self) -> bool {
        self.state().hit.is_none()
    }

    /// Runs `work` without hits.
    pub fn spared<T>(&self, work: impl FnOnce() -> T) -> T {
        let hit = self.state().hit.take();
        let done = work();
        self.state().hit = hit;
        done
    }

    pub fn hit_no_more(&self) {
        self.state().hit = None;
    }

    /// Returns the disk for a new process. The handle dies when the process is killed or the power is lost.
    pub fn process(&self) -> Process {
        Process {
            disk: self.clone(),
            epoch: self.state().epoch,
        }
    }

    /// Returns the number of calls of this kind so far.
    pub fn calls(&self, call: Call) -> u64 {
        self.state().calls.get(&call).copied().unwrap_or(0)
    }

    /// Returns the number of changes to files made while no lock was held.
    pub fn changes_unlocked(&self) -> u64 {
        self.state().changes_unlocked
    }

    /// Limits the total bytes of all files. `None`: no limit.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    pub fn during_next_sync(&self, meanwhile: impl FnOnce() + Send + 'static) {
        self.state().during_sync = Some(Box::new(meanwhile));
    }

    pub fn before_next_open(&self, meanwhile: impl FnOnce() + Send + 'static) {
        self.state().before_open = Some(Box::new(meanwhile));
    }

    pub fn keep_what_failed(&self) {
        self.state().keeps_what_failed = true;
    }

    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Loses power. Each unsynced sector survives or not, at random, and every open handle is dead.
    pub fn lose_power(&self, chance: &mut Chance) {
        let mut state = self.state();
        state.epoch += 1;
        state.locked.clear();
        state.faults.clear();
        for content in state.contents.values_mut() {
            if content.cached.len() != content.durable.len() && chance.coin() {
                content.durable.resize(content.cached.len(), 0);
            }
            let Content {
                cached,
                durable,
                dirty,
                failed,
            } = content;
            for sector in std::mem::take(dirty) {
                let range = sector * SECTOR..((sector + 1) * SECTOR).min(cached.len()).min(durable.len());
                if chance.coin() && !range.is_empty() {
                    durable[range.clone()].copy_from_slice(&cached[range]);
                }
            }
            *cached = durable.clone();
            *failed = 0;
        }
        let (names, durable) = (state.names.clone(), state.durable_names.clone());
        let all: BTreeSet<PathBuf> = names.keys().chain(durable.keys()).cloned().collect();
        for path in all {
            let survives = if chance.coin() {
                names.get(&path)
            } else {
                durable.get(&path)
            };
            match survives {
                Some(file) => state.names.insert(path.clone(), *file),
                None => state.names.remove(&path),
            };
        }
        state.durable_names = state.names.clone();
    }

    /// Kills the process while the system lives. No written byte is lost, and every handle is dead.
    pub fn kill_process(&self) {
        let mut state = self.state();
        state.epoch += 1;
        state.locked.clear();
        state.faults.clear();
    }

    /// Returns a file's bytes, for checks and for damage.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let state = self.state();
        state.contents[&state.names[path]].cached.clone()
    }

    pub fn set_bytes(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.state();
        let file = match state.names.get(path) {
            Some(file) => *file,
            None => state.create(path),
        };
        state.durable_names.insert(path.to_owned(), file);
        let content = state.contents.get_mut(&file).unwrap();
        content.durable.clone_from(&bytes);
        content.cached = bytes;
        content.dirty.clear();
    }

    /// Removes a file permanently.
    pub fn remove(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    pub fn segments(&self) -> Vec<PathBuf> {
        let state = self.state();
        state
            .names
            .keys()
            .filter(|path| path.extension().is_some_and(|is| is == "log"))
            .cloned()
            .collect()
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// Copies all files as they are now, without handles.
    pub fn copy(&self) -> Self {
        let state = self.state();
        let mut copied = State {
            names: state.names.clone(),
            durable_names: state.names.clone(),
            next_file: state.next_file,
            ..State::default()
        };
        for (file, content) in &state.contents {
            let cached = content.cached.clone();
            let durable = cached.clone();
            copied.contents.insert(
                *file,
                Content {
                    cached,
                    durable,
                    ..Content::default()
                },
            );
        }
        Self(Arc::new(Mutex::new(copied)))
    }
}

impl State {
    fn used(&self) -> u64 {
        self.names
            .values()
            .map(|file| self.contents[file].cached.len() as u64)
            .sum()
    }

    fn create(&mut self, path: &Path) -> u64 {
        self.next_file += 1;
        let file = self.next_file;
        self.contents.insert(file, Content::default());
        self.names.insert(path.to_owned(), file);
        file
    }

    fn call(&mut self, epoch: u64, call: Call) -> io::Result<()> {
        if epoch != self.epoch {
            return Err(io::Error::other("this process is dead"));
        }
        *self.calls.entry(call).or_default() += 1;
        let is_change = matches!(call, Call::Write | Call::Sync | Call::SetLength | Call::Allocate);
        self.changes_unlocked += u64::from(is_change && self.locked.is_empty());
        match &mut self.hit {
            Some((0, hit)) => {
                let is_death = *hit == Hit::Death;
                self.hit = None;
                if is_death {
                    self.epoch += 1;
                    self.locked.clear();
                }
                return Err(io::Error::other("injected, at any call"));
            }
            Some((calls, _)) => *calls -= 1,
            None => {}
        }
        for fault in &mut self.faults {
            if fault.call != call || fault.times == 0 {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            fault.times -= 1;
            return Err(io::Error::new(fault.kind, format!("injected: {:?}", fault.kind)));
        }
        Ok(())
    }

    fn grow(&mut self, file: u64, length: usize) -> io::Result<()> {
        let now = self.contents[&file].cached.len();
        if length > now {
            let left = self.room.map_or(u64::MAX, |room| room.saturating_sub(self.used()));
            if left < (length - now) as u64 {
                if self.keeps_what_failed {
                    let content = self.contents.get_mut(&file).unwrap();
                    content.cached.resize(now + left as usize, 0);
                }
                return Err(io::Error::new(ErrorKind::StorageFull, "no space left on device"));
            }
            self.contents.get_mut(&file).unwrap().cached.resize(length, 0);
        }
        Ok(())
    }
}

/// The disk as seen by one process, until it dies.
#[derive(Clone, Debug)]
pub struct Process {
    disk: Disk,
    epoch: u64,
}

struct Guard {
    disk: Disk,
    path: PathBuf,
    epoch: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.epoch == self.epoch {
            state.locked.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct Handle {
    disk: Disk,
    file: u64,
    epoch: u64,
    reported: Mutex<u64>,
}

impl Files for Process {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut state = self.disk.state();
        let epoch = self.epoch;
        state.call(epoch, Call::CreateDir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut state = self.disk.state();
        let epoch = self.epoch;
        state.call(epoch, Call::Lock)?;
        if !state.locked.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(Guard {
            disk: self.disk.clone(),
            path: path.to_owned(),
            epoch,
        })))
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>> {
        let meanwhile = self.disk.state().before_open.take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        let mut state = self.disk.state();
        let epoch = self.epoch;
        state.call(epoch, Call::Open)?;
        let file = match state.names.get(path) {
            Some(file) => *file,
            None if create => state.create(path),
            None => return Err(io::Error::new(ErrorKind::NotFound, "no such file")),
        };
        let reported = Mutex::new(state.contents[&file].failed);
        Ok(Arc::new(Handle {
            disk: self.disk.clone(),
            file,
            epoch,
            reported,
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut state = self.disk.state();
        let epoch = self.epoch;
        state.call(epoch, Call::List)?;
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.disk.state();
        state.call(self.epoch, Call::Remove)?;
        let file = state.names.remove(from).ok_or(ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.disk.state();
        let epoch = self.epoch;
        state.call(epoch, Call::Remove)?;
        state
            .names
            .remove(path)
            .map(drop)
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.disk.state();
        if state.keeps_what_failed {
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(state.room.map_or(u64::MAX, |room| room.saturating_sub(state.used())))
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut state = self.disk.state();
        let epoch = self.epoch;
        state.call(epoch, Call::SyncDir)?;
        state.durable_names = state.names.clone();
        Ok(())
    }
}

impl File for Handle {
    fn length(&self) -> io::Result<u64> {
        let state = self.disk.state();
        Ok(state.contents[&self.file].cached.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.call(self.epoch, Call::Read)?;
        let cached = &state.contents[&self.file].cached;
        let from = (offset as usize).min(cached.len());
        let read = into.len().min(cached.len() - from);
        into[..read].copy_from_slice(&cached[from..from + read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let failed = state.call(self.epoch, Call::Write);
        let offset = offset as usize;
        // A failing write may have written a part.
        let bytes = match (&failed, self.epoch == state.epoch) {
            (Ok(()), _) => bytes,
            (Err(_), true) => &bytes[..bytes.len() / 2],
            (Err(_), false) => &[],
        };
        if !bytes.is_empty() {
            state.grow(self.file, offset + bytes.len())?;
            let content = state.contents.get_mut(&self.file).unwrap();
            content.cached[offset..offset + bytes.len()].copy_from_slice(bytes);
            content
                .dirty
                .extend(offset / SECTOR..=(offset + bytes.len() - 1) / SECTOR);
        }
        failed
    }

    fn sync_data(&self) -> io::Result<()> {
        let meanwhile = self.disk.state().during_sync.take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        let mut state = self.disk.state();
        let failed = state.call(self.epoch, Call::Sync);
        if self.epoch != state.epoch {
            return failed;
        }
        let content = state.contents.get_mut(&self.file).unwrap();
        if let Err(error) = failed {
            // Linux marks the pages clean after a failed write-back, though they never reached the disk.
            content.dirty.clear();
            content.failed += 1;
            *self.reported.lock().unwrap() = content.failed;
            return Err(error);
        }
        let mut reported = self.reported.lock().unwrap();
        if *reported < content.failed {
            *reported = content.failed;
            return Err(io::Error::other("an earlier write-back failed"));
        }
        let Content {
            cached, durable, dirty, ..
        } = content;
        durable.resize(cached.len(), 0);
        for sector in std::mem::take(dirty) {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(cached.len());
            if !range.is_empty() {
                durable[range.clone()].copy_from_slice(&cached[range]);
            }
        }
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.call(self.epoch, Call::Allocate)?;
        state.grow(self.file, length as usize)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.call(self.epoch, Call::SetLength)?;
        let length = length as usize;
        state.grow(self.file, length)?;
        let content = state.contents.get_mut(&self.file).unwrap();
        content.cached.truncate(length);
        content.dirty.retain(|sector| sector * SECTOR < length);
        Ok(())
    }
}
