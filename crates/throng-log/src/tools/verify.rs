//! Checking everything a directory holds.

use super::walk::{HistoryPart, walk};
use crate::{
    Log, Options,
    directory::{self, STORE_NAME},
    store,
};
use std::{path::Path, sync::Arc};
use throng_journal::{
    CommitNo, Error, Position, WriterId,
    tools::{Finding, Verification},
};

/// Checks every header, every commit's checksum and padding, that commits are consecutive, and that each entity's events are; also the
/// store, if no engine is using the directory. Keeps one entry for each entity in memory.
///
/// # Errors
/// [`Error::Backend`]: there is no log. [`Error::OtherVersion`]: another format. [`Error::Io`] of the file system. Damage is a finding, not
/// an error.
pub fn verify(options: &Options, dir: &Path) -> Result<Verification, Error> {
    let options = &options.to_read(dir);
    let mut found = Verification::default();
    let mut segments = 0;
    let mut last_writer = WriterId(0);
    let (mut end, mut replaced_by) = (Position::default(), None);
    walk(options, dir, &mut |seen| {
        match seen {
            HistoryPart::Segment { header, .. } => {
                segments += 1;
                found.writers += u64::from(header.writer != last_writer);
                last_writer = header.writer;
            }
            HistoryPart::Commit { commit } => {
                end = commit.position();
                replaced_by = commit
                    .removal()
                    .and_then(|removal| removal.replaced_by)
                    .max(replaced_by);
                found.commit(commit);
            }
            HistoryPart::Damage { position, place, why } => found.damages.push(Finding {
                position: position.to_string(),
                place,
                why,
            }),
            HistoryPart::Note { place, why } => found.notes.push(Finding {
                position: "0.0".into(),
                place,
                why,
            }),
        }
        Ok(())
    })?;
    found.finish();
    if let Some(by) = replaced_by.filter(|by| *by > end) {
        let finding = Finding {
            position: by.to_string(),
            place: dir.display().to_string(),
            why: format!("history was removed that commit {by} replaces, and the log ends at commit {end}"),
        };
        // A running service may have removed some since the segments were listed.
        match directory::lock(options, dir) {
            Ok(_) => found.damages.push(finding),
            Err(_) => found.notes.push(finding),
        }
    }
    found.segments = Some(segments);
    found.store = verify_store(options, dir, &mut found.damages);
    Ok(found)
}

/// The store's own checksums, and that it fits the log.
fn verify_store(options: &Options, dir: &Path, damages: &mut Vec<Finding>) -> String {
    let path = dir.join(STORE_NAME);
    let names = options.files.list(dir).unwrap_or_default();
    if !names.iter().any(|name| name == STORE_NAME) {
        return "there is none; it is rebuilt from the journal".into();
    }
    let log = match Log::open(dir, options.clone()) {
        Ok(log) => Arc::new(log),
        Err(Error::InUse { what }) => return format!("not checked: {what} is in use"),
        Err(_) => return "not checked: the log is damaged".into(),
    };
    match store::check(&log, &path) {
        Ok(covers) if covers.commit == CommitNo(0) && covers.writer == WriterId(0) => {
            "sound; it covers nothing yet".into()
        }
        Ok(covers) => format!("sound; it covers everything up to commit {covers}"),
        Err(error @ Error::Lost { .. }) => {
            damages.push(error.into());
            "sound; it covers commits that the log has lost".into()
        }
        Err(error) => {
            damages.push(Finding {
                position: "0.0".into(),
                place: path.display().to_string(),
                why: format!("{error}; remove it while nothing runs: it is rebuilt from the journal"),
            });
            "damaged".into()
        }
    }
}
