//! The permissions of the journal's files.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
};
use throng_log::{EmbeddedViews, Options, open_embedded};

#[test]
fn directory_and_files_are_private_under_any_umask() {
    let parent = tempfile::tempdir().unwrap();
    // The permissions of the parent directory do not affect new files.
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let dir = parent.path().join("new/data");
    let (log, store) = open_embedded(&dir, Options::default()).unwrap();
    let writer = throng_journal::conformance::block_on(throng_journal::Journal::open(&*log, "local"));
    writer.unwrap();
    let views = EmbeddedViews::open(log.clone()).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let mut seen = Vec::new();
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        seen.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    for name in ["lock", "00000001.log", "store.redb", "views.redb"] {
        assert!(seen.iter().any(|seen| seen == name), "{name}: {seen:?}");
    }
    drop((store, views));
}
