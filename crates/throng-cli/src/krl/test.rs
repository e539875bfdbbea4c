use super::{load, read};
use anyhow::{Result, bail};
use std::path::Path;
use std::sync::Arc;
use throng_krl::testing::{Pico, Script};

/// Runs the script next to a ruleset. The files it names are in the same directory.
pub(super) fn run(file: &Path) -> Result<()> {
    let mut pico = Pico::default();
    pico.install(load(file)?);
    let path = file.with_extension("test");
    let script = Script::parse(&read(&path)?).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    for (name, is_installed) in script.files() {
        let program = load(&path.with_file_name(name))?;
        if is_installed {
            pico.install(program);
        } else {
            pico.offer(Arc::new(program));
        }
    }
    let mismatches = script.run(&mut pico);
    for mismatch in &mismatches {
        eprintln!("{}: {mismatch}", path.display());
    }
    if !mismatches.is_empty() {
        bail!(
            "{}: {} of {} steps did something else",
            path.display(),
            mismatches.len(),
            script.len()
        );
    }
    println!("{}: {} steps, all as expected", path.display(), script.len());
    Ok(())
}
