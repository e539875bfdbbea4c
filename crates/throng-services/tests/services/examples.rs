//! The examples do what they claim.

#[path = "../../examples/group_commit.rs"]
mod group_commit;

#[test]
fn the_group_commit_writes_every_line() {
    group_commit::main();
}
