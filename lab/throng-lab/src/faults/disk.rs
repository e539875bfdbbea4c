//! A small ext4 in a file, mounted for one run. It can be filled, and it can lose its power.

use anyhow::{Context as _, bail, ensure};
use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    io::Errno,
    ioctl,
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// The longest wait for other processes to release a file system before it is unmounted.
const UNMOUNT_WAIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct SmallDisk {
    image: PathBuf,
    /// The mount point.
    pub(crate) root: PathBuf,
}

/// Returns the reason if this machine cannot have one.
pub(crate) fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root, for a file system of its own".into());
    }
    let missing = ["mkfs.ext4", "mount", "umount"]
        .into_iter()
        .find(|program| Command::new(program).arg("-V").output().is_err())?;
    Some(format!("needs {missing}, for a file system of its own"))
}

impl SmallDisk {
    pub(crate) fn create(scratch: &Path, megabytes: u64) -> anyhow::Result<Self> {
        let disk = Self {
            image: scratch.join("disk.img"),
            root: scratch.join("disk"),
        };
        fs::create_dir_all(&disk.root)?;
        File::create(&disk.image)?.set_len(megabytes << 20)?;
        // Keeps no blocks for root. The service may run as root here, and would then not find the disk full.
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&disk.image))?;
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> anyhow::Result<()> {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .args([&self.image, &self.root]))
    }

    /// Fills the disk up to this many free bytes. A second call takes what is left.
    pub(super) fn fill(&self, leave: u64) -> anyhow::Result<()> {
        let found = statvfs(&self.root)?;
        let mut bytes = (found.f_bavail * found.f_frsize).saturating_sub(leave);
        let directory = self.ballast();
        fs::create_dir_all(&directory)?;
        let number = fs::read_dir(&directory)?.count();
        let ballast = File::create(directory.join(number.to_string()))?;
        while bytes > 0 {
            match fallocate(&ballast, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => break,
                // Metadata of the file takes room as well, and other writers take some meanwhile.
                Err(Errno::NOSPC) => bytes -= bytes.min(256 << 10),
                Err(errno) => bail!("filling the small disk failed: {errno}"),
            }
        }
        Ok(())
    }

    pub(super) fn make_room(&self) -> anyhow::Result<()> {
        fs::remove_dir_all(self.ballast()).context("making room failed")
    }

    fn ballast(&self) -> PathBuf {
        self.root.join("ballast")
    }

    /// Cuts the power. From then on every access is an error, and nothing unsynced is on the disk.
    #[expect(unsafe_code, reason = "there is no other way to say it to the file system")]
    pub(crate) fn lose_power(&self) -> anyhow::Result<()> {
        /// The code `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`.
        const SHUTDOWN: ioctl::Opcode = ioctl::opcode::read::<u32>(b'X', 125);
        /// The flag `EXT4_GOING_FLAGS_NOLOGFLUSH`: even the file system's own journal is not written.
        const NO_LOG_FLUSH: u32 = 2;
        let root = File::open(&self.root)?;
        // SAFETY: the code is that of a call which takes a pointer to a u32.
        let shutdown = unsafe { ioctl::Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH) };
        // SAFETY: the kernel reads the u32 that the pointer leads to, and nothing is changed by it.
        let done = unsafe { ioctl::ioctl(&root, shutdown) };
        done.context("the file system cannot be shut down (EXT4_IOC_SHUTDOWN)")
    }

    /// Restores the power. No file of the disk may be open.
    pub(crate) fn power_on(&self) -> anyhow::Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn unmount(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            match run(Command::new("umount").arg(&self.root)) {
                Ok(()) => return Ok(()),
                Err(error) if begun.elapsed() > UNMOUNT_WAIT => return Err(error),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("note: {} stays mounted: {error:#}", self.root.display());
        }
        let _ = fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", said.trim());
    Ok(())
}
