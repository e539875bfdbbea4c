//! A directory that an import or a backup is filling. It is no journal until that has ended.

use crate::{
    Options,
    directory::{self, Lock, STORE_NAME},
    files::Files,
    place::is_marked_copy,
    recovery, rewrite,
};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};
use throng_journal::Error;

/// The file that marks a directory with only a part of a journal.
const UNFINISHED_NAME: &str = "unfinished";
/// The file that exists while staged segments are being renamed into a copy.
const ADDING_NAME: &str = "adding";

/// A directory being filled. If this is dropped before it is [finished](Self::finish), the directory stays refused.
pub(crate) struct Unfinished<'a> {
    files: &'a dyn Files,
    dir: &'a Path,
}

impl<'a> Unfinished<'a> {
    /// Marks a directory that holds no log, or only the leftover of an earlier attempt, which is deleted. The caller holds the returned
    /// lock while it fills the directory.
    pub(crate) fn begin(options: &'a Options, dir: &'a Path) -> Result<(Self, Lock), Error> {
        let files = &*options.files;
        let creating = || Error::io(format!("creating the directory {}", dir.display()));
        files.create_dir(dir).map_err(creating())?;
        let (begun, lock) = (Self { files, dir }, directory::lock(options, dir)?);
        match is_unfinished(files, dir)? {
            true => begun.remove_leftovers()?,
            false => require_no_log(options, dir)?,
        }
        files.open(&begun.path(), true).map_err(creating())?;
        files.sync_dir(dir).map_err(creating())?;
        Ok((begun, lock))
    }

    /// Ends the filling. Everything must be durable.
    pub(crate) fn finish(self) -> Result<(), Error> {
        finish(self.files, self.dir)
    }

    fn path(&self) -> PathBuf {
        self.dir.join(UNFINISHED_NAME)
    }

    fn remove_leftovers(&self) -> Result<(), Error> {
        let names = self.files.list(self.dir).unwrap_or_default();
        let is_ours = |name: &&String| crate::header::number_of(name).is_some() || **name == STORE_NAME;
        for name in names.iter().filter(is_ours) {
            let path = self.dir.join(name);
            self.files
                .remove(&path)
                .map_err(Error::io(format!("removing {}", path.display())))?;
        }
        Ok(())
    }
}

/// Ends the filling. Everything must be durable.
pub(crate) fn finish(files: &dyn Files, dir: &Path) -> Result<(), Error> {
    let finishing = || Error::io(format!("finishing the directory {}", dir.display()));
    files.sync_dir(dir).map_err(finishing())?;
    files.remove(&dir.join(UNFINISHED_NAME)).map_err(finishing())?;
    files.sync_dir(dir).map_err(finishing())
}

pub(crate) fn is_unfinished(files: &dyn Files, dir: &Path) -> Result<bool, Error> {
    has(files, dir, UNFINISHED_NAME)
}

fn has(files: &dyn Files, dir: &Path, name: &str) -> Result<bool, Error> {
    let names = match files.list(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        names => names.map_err(Error::io(format!("listing the directory {}", dir.display())))?,
    };
    Ok(names.iter().any(|other| other == name))
}

/// Refuses a backup in the wrong direction: from a copy, or from a place without a log, to a log that is no copy.
pub(crate) fn refuse_swap(files: &dyn Files, from: &Path, to: &Path) -> Result<(), Error> {
    let has_log = |dir| !recovery::list(files, dir).unwrap_or_default().is_empty();
    let is_copy = |dir| is_marked_copy(files, dir);
    let is_backup = is_copy(from);
    if (!is_backup && has_log(from)) || !has_log(to) || is_copy(to) {
        return Ok(());
    }
    let (source, target) = (from.display(), to.display());
    let what = if is_backup { "is a copy" } else { "holds no log" };
    Err(Error::backend(
        format!("copying {source} to {target}"),
        format!(
            "{source} {what}, and {target} holds a log and is no copy: name the journal first, then where its backup goes"
        ),
    ))
}

/// Adds the segments that are staged beside a copy, durably: all of them, even after an interruption.
pub(crate) fn add_staged(files: &dyn Files, dir: &Path) -> Result<(), Error> {
    let adding = || Error::io(format!("adding to the copy in {}", dir.display()));
    files.open(&dir.join(ADDING_NAME), true).map_err(adding())?;
    files.sync_dir(dir).map_err(adding())?;
    settle(files, dir)
}

/// Completes an interrupted addition of staged segments to this copy. The caller holds the directory's lock.
pub(crate) fn settle(files: &dyn Files, dir: &Path) -> Result<(), Error> {
    if !has(files, dir, ADDING_NAME)? {
        return Ok(());
    }
    let adding = || Error::io(format!("adding to the copy in {}", dir.display()));
    let names = files.list(dir).map_err(adding())?;
    for name in names.iter().filter(|name| rewrite::is_leftover(name)) {
        let segment = dir.join(name).with_extension("");
        files.rename(&dir.join(name), &segment).map_err(adding())?;
    }
    files.sync_dir(dir).map_err(adding())?;
    files.remove(&dir.join(ADDING_NAME)).map_err(adding())?;
    files.sync_dir(dir).map_err(adding())
}

/// Works like [`settle`], unless another process has the directory's lock: that one does it.
pub(crate) fn settle_unused(options: &Options, dir: &Path) -> Result<(), Error> {
    if !has(&*options.files, dir, ADDING_NAME)? {
        return Ok(());
    }
    match directory::lock(options, dir) {
        Ok(_lock) => settle(&*options.files, dir),
        Err(Error::InUse { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Refuses a directory in which an import or a backup has not ended.
pub(crate) fn refuse_unfinished(files: &dyn Files, dir: &Path) -> Result<(), Error> {
    if !is_unfinished(files, dir)? {
        return Ok(());
    }
    Err(Error::backend(
        format!("reading {}", dir.display()),
        "an import or a backup into this directory did not end, so it holds a part at most; run it again, or remove the \
         directory",
    ))
}

/// Checks that the directory holds no log yet, or does not exist; otherwise returns an error.
pub(crate) fn require_no_log(options: &Options, dir: &Path) -> Result<(), Error> {
    match recovery::list(&*options.files, dir) {
        Ok(segments) if !segments.is_empty() => Err(Error::backend(
            format!("writing to {}", dir.display()),
            "there is a log in this directory already; choose an empty one",
        )),
        _ => Ok(()),
    }
}
