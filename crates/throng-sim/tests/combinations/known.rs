//! Short lists of steps at which the product once failed.

use crate::{
    disk::Hit,
    journals::DiskLog,
    run,
    step::{Action, End, Step, Until},
};
use std::sync::Arc;

fn end(end: End, is_store_lost: bool) -> Step {
    Step::of(Action::End { end, is_store_lost })
}

fn write(of: (usize, u64), times: u64, sends: bool) -> Step {
    Step::of(Action::Write { of, times, sends })
}

fn restore_copy(is_adopted: bool) -> Step {
    Step::of(Action::Restore {
        is_of_copy: true,
        until: Until::End,
        with_archive: false,
        is_adopted,
    })
}

fn restore_at(is_of_copy: bool, part: usize, is_adopted: bool) -> Step {
    Step::of(Action::Restore {
        is_of_copy,
        until: Until::Time(part),
        with_archive: false,
        is_adopted,
    })
}

fn backup_in_pass() -> Step {
    Step::of(Action::BackupAmid {
        erases: None,
        syncs: 0,
        is_killed: false,
    })
}

fn hold(seed: u64, steps: &[Step]) {
    if let Err(failure) = run(seed, steps, Arc::new(DiskLog::new(seed)), true) {
        panic!("{failure}");
    }
}

#[test]
fn ended_entity_does_not_come_back() {
    let steps = [
        write((2, 0), 8, true),
        end(End::PowerLoss(6_194_114_667_295_219_192), true),
        backup_in_pass(),
        Step::of(Action::Jump { millis: 814 }),
        write((2, 1), 5, true),
        Step::of(Action::Close((2, 1))),
        write((1, 1), 2, false).hit(23, Hit::Death),
        Step::of(Action::Pass),
        backup_in_pass().hit(9, Hit::Failure),
        restore_copy(true),
        restore_at(false, 129, false),
    ];
    hold(131, &steps);
}

#[test]
fn history_goes_on_behind_the_commits_a_copy_lacks() {
    let steps = [
        write((1, 0), 1, true),
        Step::of(Action::Follow),
        write((1, 0), 6, false).hit(56, Hit::Death),
        Step::of(Action::Erase((1, 0))),
        Step::of(Action::Backup),
        restore_copy(true),
        write((1, 0), 3, true),
        Step::of(Action::Checkpoint),
        end(End::Stop, false),
        write((1, 0), 3, true),
    ];
    hold(178, &steps);
}

#[test]
fn entity_that_was_erased_twice_is_not_quarantined() {
    let steps = [
        write((1, 1), 1, true).hit(9, Hit::Death),
        backup_in_pass(),
        write((1, 0), 1, false),
        Step::of(Action::Erase((1, 0))),
        write((1, 0), 3, false),
        Step::of(Action::Backup),
        Step::of(Action::Erase((1, 0))),
        Step::of(Action::Backup),
        Step::of(Action::Close((0, 1))),
        restore_at(true, 836, true),
    ];
    hold(207, &steps);
}

#[test]
fn first_events_in_a_copy_go_with_those_behind_them() {
    let lose = || end(End::Stop, true);
    let steps = [
        write((2, 1), 3, false),
        Step::of(Action::Backup),
        write((2, 1), 8, false),
        end(End::Stop, false),
        Step::of(Action::Pass),
        write((2, 1), 8, false),
        Step::of(Action::Backup),
        restore_copy(true),
        Step::of(Action::Checkpoint),
        end(End::Stop, false),
        Step::of(Action::Checkpoint),
        lose(),
        write((2, 1), 8, false),
    ];
    hold(1, &steps);
}

#[test]
fn end_in_a_commit_with_removed_events_is_told_to_a_new_store() {
    let steps = [
        Step::of(Action::Close((2, 1))),
        end(End::Stop, false),
        Step::of(Action::Pass),
        end(End::Stop, true),
        Step::of(Action::Rebuild { are_rows_lost: true }),
    ];
    hold(1, &steps);
}

#[test]
fn unfinished_backup_is_known_where_the_disk_fails() {
    let steps = [
        end(End::PowerLoss(13_810_088_741_073_446_764), false).hit(7, Hit::Death),
        write((0, 0), 3, false),
        Step::of(Action::Restore {
            is_of_copy: false,
            until: Until::Time(481),
            with_archive: true,
            is_adopted: false,
        }),
        Step::of(Action::Backup).hit(46, Hit::Death),
        Step::of(Action::Follow).hit(5, Hit::Failure),
        restore_copy(true),
    ];
    hold(430, &steps);
}
