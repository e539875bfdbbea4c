//! The journals of the diaries: the embedded log on a disk in memory, and PostgreSQL.

use crate::{
    at_once::AtOnce,
    disk::{Chance, Disk, Hit},
    step::End,
};
use servers::{Postgres, PostgresOptions};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use throng::journal::{Error, Journal, Store};
use throng_log::{Options, open_embedded, tools};
use throng_postgres::open_postgres;

type Opened = (Arc<dyn Journal>, Arc<dyn Store>);

/// The longest time for which the directory's last user may still hold it.
const IN_USE_MAX: Duration = Duration::from_mins(1);

/// The journal and the store of a service, and the faults that hit them.
pub(crate) trait Backend: Send + Sync {
    fn open(&self) -> Result<Opened, Error>;
    /// Disconnects all running processes from it.
    fn end(&self, end: End);
    fn hit_after(&self, calls: u64, hit: Hit);
    /// Returns true if a fault has killed the process.
    fn is_dead(&self) -> bool;
    /// Removes the fault, so that the next process meets none.
    fn spare(&self);
    fn lose_store(&self);
    /// Returns the embedded log, for steps that only a log has.
    fn log(&self) -> Option<&DiskLog> {
        None
    }
}

/// A directory on a disk, with its related directories.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) disk: Disk,
    pub(crate) dir: PathBuf,
    pub(crate) archive: PathBuf,
    pub(crate) copy: PathBuf,
}

impl Place {
    pub(crate) fn of(disk: Disk, number: u64) -> Self {
        let path = |of: &str| PathBuf::from(format!("{of}-{number}"));
        Self {
            disk,
            dir: path("data"),
            archive: path("archive"),
            copy: path("copy"),
        }
    }
}

/// The embedded log.
pub(crate) struct DiskLog {
    segment_bytes: u64,
    place: Mutex<Place>,
    is_armed: AtomicBool,
    follower: Mutex<Option<tools::LiveBackup>>,
}

impl DiskLog {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            segment_bytes: [4, 8, 16][(seed % 3) as usize] << 10,
            place: Mutex::new(Place::of(Disk::new(), 0)),
            is_armed: AtomicBool::new(false),
            follower: Mutex::default(),
        }
    }

    pub(crate) fn place(&self) -> Place {
        self.place.lock().unwrap().clone()
    }

    /// Moves the next process to this place. Returns the place before.
    pub(crate) fn move_to(&self, place: Place) -> Place {
        std::mem::replace(&mut *self.place.lock().unwrap(), place)
    }

    pub(crate) fn follower(&self) -> MutexGuard<'_, Option<tools::LiveBackup>> {
        self.follower.lock().unwrap()
    }

    pub(crate) fn options(&self, disk: &Disk) -> Options {
        Options {
            files: Arc::new(disk.process()),
            segment_bytes: self.segment_bytes,
            reserve_bytes: 0,
            ..Options::default()
        }
    }

    pub(crate) fn backup(&self) -> Result<tools::BackedUp, Error> {
        let Place { disk, dir, copy, .. } = self.place();
        tools::backup(&self.options(&disk), &dir, &copy)
    }

    pub(crate) fn catch_up(&self) -> Result<(), Error> {
        let Place { disk, dir, copy, .. } = self.place();
        let mut follower = self.follower();
        if follower.is_none() {
            *follower = Some(tools::LiveBackup::begin(&self.options(&disk), &dir, &copy)?);
        }
        let caught_up = follower.as_mut().map(tools::LiveBackup::catch_up).transpose();
        if caught_up.is_err() {
            *follower = None;
        }
        caught_up.map(drop)
    }

    pub(crate) fn verify(&self, disk: &Disk, dir: &Path) -> Result<(), String> {
        let found = tools::verify(&self.options(disk), dir).map_err(|error| error.to_string())?;
        found.is_sound().then_some(()).ok_or_else(|| found.to_string())
    }
}

impl Backend for DiskLog {
    fn open(&self) -> Result<Opened, Error> {
        let Place { disk, dir, archive, .. } = self.place();
        let begun = Instant::now();
        loop {
            match open_embedded(&dir, self.options(&disk)) {
                Err(Error::InUse { .. }) if begun.elapsed() < IN_USE_MAX => std::thread::yield_now(),
                Err(error) => return Err(error),
                Ok((log, store)) => {
                    log.set_archive(Some(archive));
                    return Ok((Arc::new(AtOnce(log)), Arc::new(AtOnce(store))));
                }
            }
        }
    }

    fn end(&self, end: End) {
        // The process may have died while it stopped.
        let end = if self.is_dead() { End::Kill } else { end };
        let disk = self.place().disk;
        disk.hit_no_more();
        match end {
            End::Stop => {}
            End::Kill => disk.kill_process(),
            End::PowerLoss(seed) => disk.lose_power(&mut Chance::new(seed)),
        }
        if !matches!(end, End::Stop) {
            *self.follower() = None;
        }
        self.is_armed.store(false, Ordering::Relaxed);
    }

    fn hit_after(&self, calls: u64, hit: Hit) {
        self.place().disk.hit_after(calls, hit);
        self.is_armed.store(hit == Hit::Death, Ordering::Relaxed);
    }

    fn is_dead(&self) -> bool {
        self.is_armed.load(Ordering::Relaxed) && self.place().disk.is_hit()
    }

    fn spare(&self) {
        self.place().disk.hit_no_more();
        self.is_armed.store(false, Ordering::Relaxed);
    }

    fn lose_store(&self) {
        let Place { disk, dir, .. } = self.place();
        disk.remove(&dir.join("store.redb"));
    }

    fn log(&self) -> Option<&DiskLog> {
        Some(self)
    }
}

static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(PostgresOptions::default()).unwrap());

/// A schema of a private PostgreSQL. A fault at a statement ends the statement's session.
pub(crate) struct Schema {
    name: String,
    is_begun: AtomicBool,
}

impl Schema {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self {
            name: format!("combinations_{}", COUNT.fetch_add(1, Ordering::Relaxed)),
            is_begun: AtomicBool::new(false),
        }
    }

    fn sql(&self, statement: &str) {
        SERVER.sql(&statement.replace("{}", &self.name)).unwrap();
    }

    /// Counts every statement that writes.
    fn begin(&self) {
        self.sql(
            "CREATE SEQUENCE {}.statements; CREATE TABLE {}.strikes (at bigint); INSERT INTO {}.strikes VALUES (0); \
             CREATE FUNCTION {}.strike() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF nextval('{}.statements') = (SELECT at FROM {}.strikes) THEN \
             PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$; \
             DO $$ DECLARE t text; BEGIN FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = '{}' AND \
             tablename <> 'strikes' LOOP EXECUTE format('CREATE TRIGGER strike BEFORE INSERT OR UPDATE OR DELETE ON \
             {}.%I FOR EACH STATEMENT EXECUTE FUNCTION {}.strike()', t); END LOOP; END $$",
        );
    }
}

impl Backend for Schema {
    fn open(&self) -> Result<Opened, Error> {
        // Leases are measured in real time, so the engine must not wait for them.
        let url = format!("{}?schema={}&lease=0", SERVER.url("postgres"), self.name);
        let opened = open_postgres(url.parse().unwrap())?;
        if !self.is_begun.swap(true, Ordering::Relaxed) {
            self.begin();
        }
        Ok((Arc::new(AtOnce(opened.journal)), Arc::new(AtOnce(opened.store))))
    }

    fn end(&self, end: End) {
        if !matches!(end, End::Stop) {
            self.sql(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'throng {} %'",
            );
        }
    }

    fn hit_after(&self, calls: u64, _: Hit) {
        let set = format!("UPDATE {{}}.strikes SET at = {}; ", 1 + calls / 10);
        self.sql(&(set + "SELECT setval('{}.statements', 1, false)"));
    }

    fn is_dead(&self) -> bool {
        false
    }

    fn spare(&self) {
        self.sql("UPDATE {}.strikes SET at = 0");
    }

    fn lose_store(&self) {}
}

impl Drop for Schema {
    fn drop(&mut self) {
        self.end(End::Kill);
        self.sql("DROP SCHEMA IF EXISTS {} CASCADE");
    }
}
