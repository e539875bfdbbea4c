//! The examples do what they say.

#[path = "../../examples/group_commit.rs"]
mod group_commit;

#[test]
fn the_group_commit_writes_every_line() {
    group_commit::main();
}
