//! Checks of files and directories that other users of the machine could read or change.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// The access that only the owner should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarded {
    /// Nobody else may read it: it holds secrets or the whole history.
    Private,
    /// Nobody else may change it: it decides who is let in.
    Unchanged,
}

/// Describes the excess rights and the remedy; `None` if there are none or the file does not exist.
fn openness(path: &Path, guarded: Guarded) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let (bits, wrong, mend) = match guarded {
        Guarded::Private => (0o077, "open to other users of this machine", "go-rwx"),
        Guarded::Unchanged => (0o022, "writable by other users of this machine", "go-w"),
    };
    let path = path.display();
    (mode & bits != 0).then(|| format!("{path} is {wrong} (mode {mode:04o}): chmod {mend} {path}"))
}

/// Warns in the log if others have access to a file.
pub(crate) fn warn_if_open(path: &Path, guarded: Guarded) {
    if let Some(why) = openness(path, guarded) {
        tracing::warn!("{why}");
    }
}

/// Creates a file that only its owner can read, or empties an existing one.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    // The mode of an existing file is kept by the system, so it is set here. A device or pipe has none to set.
    if file.metadata()?.is_file() {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn openness_to_others_is_told_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "x").unwrap();
        for (mode, private, unchanged) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o644, false, true),
            (0o640, false, true),
            (0o666, false, false),
            (0o620, false, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let told = |guarded| openness(&path, guarded);
            assert_eq!(told(Guarded::Private).is_none(), private, "{mode:o}");
            assert_eq!(told(Guarded::Unchanged).is_none(), unchanged, "{mode:o}");
        }
        let told = openness(&path, Guarded::Unchanged).unwrap();
        assert!(told.contains("mode 0620") && told.contains("chmod go-w"), "{told}");
        assert_eq!(openness(&dir.path().join("none"), Guarded::Private), None);
    }

    #[test]
    fn private_file_is_its_owners_even_if_it_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("export");
        drop(create_private(&path).unwrap());
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        drop(create_private(&path).unwrap());
        assert_eq!(mode(&path), 0o600);
    }
}
