//! Finds a server's programs and the user to run them as.

use crate::Error;
use std::{
    env, fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Searches these directories in order, then the `PATH`. All programs must stand in the same directory.
pub(crate) fn find(
    programs: &'static [&'static str],
    first: &[PathBuf],
    install: &'static str,
) -> Result<PathBuf, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    let along: Vec<PathBuf> = first.iter().cloned().chain(env::split_paths(&path)).collect();
    along
        .iter()
        .find(|directory| programs.iter().all(|program| is_program(&directory.join(program))))
        .cloned()
        .ok_or_else(|| Error::Missing {
            program: programs[0],
            looked: along
                .iter()
                .map(|directory| directory.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
            install,
        })
}

/// Returns the sub-directories of a directory that match `NUMBER/bin`, the greatest number first.
pub(crate) fn versions(of: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(of)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, entry.path().join("bin")))
        })
        .collect();
    found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Returns the parent of a process.
pub(crate) fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The state and the parent follow the name, which may contain any character.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A user without rights, for servers that refuse to run as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) group: u32,
}

impl User {
    /// Returns `None` if this process is not root's; then programs run as its own user. Otherwise returns the first of these names that exists, or
    /// `nobody`.
    pub(crate) fn unprivileged(names: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let known = |name: &str| {
            passwd.lines().find_map(|line| {
                let mut fields = line.split(':');
                if fields.next() != Some(name) {
                    return None;
                }
                let id = fields.nth(1)?.parse().ok()?;
                let group = fields.next()?.parse().ok()?;
                Some(Self { id, group })
            })
        };
        let found = names.iter().chain(&["nobody"]).find_map(|name| known(name));
        Some(found.unwrap_or(Self {
            id: 65_534,
            group: 65_534,
        }))
    }

    /// Sets the user of a command.
    pub(crate) fn of(this: Option<Self>, command: &mut Command) -> &mut Command {
        if let Some(user) = this {
            command.uid(user.id).gid(user.group);
        }
        command
    }
}
