//! I/O errors by a shared object that is loaded into the service. The C compiler makes it from `shim.c`.

use anyhow::{Context as _, ensure};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};

const SOURCE: &str = include_str!("shim.c");

/// The codes of errors in `shim.c`.
const EIO: u32 = 1;
const ENOSPC: u32 = 2;
const SHORT: u32 = 4;

/// Returns the reason if this machine cannot have it.
pub(super) fn unavailable() -> Option<String> {
    let is_there = Command::new("cc").arg("--version").output().is_ok();
    (!is_there).then(|| "needs cc, the C compiler, which makes what is preloaded".into())
}

/// The number of errors in a thousand calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) log: u32,
    pub(super) store: u32,
    /// True for a full disk and short writes besides EIO.
    pub(super) is_mixed: bool,
}

pub(super) struct Shim {
    object: PathBuf,
    control: PathBuf,
    file: File,
}

impl Shim {
    pub(super) fn build(scratch: &Path) -> anyhow::Result<Self> {
        let (source, object) = (scratch.join("shim.c"), scratch.join("shim.so"));
        fs::write(&source, SOURCE)?;
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
            .args([&object, &source])
            .arg("-ldl");
        let output = compiler.output().context("cannot run cc, the C compiler")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cc does not compile the shim: {said}");
        let control = scratch.join("shim.control");
        let file = File::create(&control)?;
        file.write_all_at(&[0; 12], 0)?;
        Ok(Self { object, control, file })
    }

    /// Returns the environment for starting the service.
    pub(super) fn environment(&self) -> anyhow::Result<Vec<(String, String)>> {
        let whole = |path: &Path| anyhow::Ok(fs::canonicalize(path)?.display().to_string());
        Ok(vec![
            ("LD_PRELOAD".into(), whole(&self.object)?),
            ("THRONG_FAULTS".into(), whole(&self.control)?),
        ])
    }

    pub(super) fn set(&self, rates: Rates) -> anyhow::Result<()> {
        let kinds = if rates.is_mixed { EIO | ENOSPC | SHORT } else { EIO };
        let numbers = [rates.log, rates.store, kinds].map(u32::to_ne_bytes);
        Ok(self.file.write_all_at(numbers.as_flattened(), 0)?)
    }
}
