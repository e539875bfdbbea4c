#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;
use std::convert::Infallible;
use throng::journal::{CommitBuilder, CommitNo, RecordKind, ShardId, Stamp, WriterId};

/// Returns a commit of one turn: its events, the message it took, and the receivers of its messages.
fn commit(number: u64, of: &str, took: Option<(u16, u64)>, sent: &[(u64, &str)]) -> Commit {
    let mut commit = CommitBuilder::default();
    let (own, shard) = (Address::new("account", of), ShardId(1));
    commit.push(RecordKind::Event, shard, &own, number, "moved", 1, b"{}");
    for (message, to) in sent {
        let body = json!({ "to": ["account", to], "command": {} }).to_string();
        commit.push(RecordKind::Sent, shard, &own, *message, "receive", 0, body.as_bytes());
    }
    if let Some((from, message)) = took {
        commit.push(RecordKind::Taken, shard, &own, message, "done", from, b"");
    }
    commit.finish(Stamp::new(WriterId(1), CommitNo(number), 0))
}

fn followed(journal: &[Commit], of: &str, last: usize) -> (Vec<String>, String) {
    let walk = |each: &mut dyn FnMut(&Commit)| -> Result<(), Infallible> {
        journal.iter().for_each(each);
        Ok(())
    };
    let chain = Chain::follow(&Address::new("account", of), last, walk).unwrap();
    let turns = chain.turns.values().map(|turn| format!("{} {}", turn.commit, turn.id));
    (turns.collect(), Shown(&chain).to_string())
}

#[test]
fn chain_leads_back_to_the_cause_and_on_to_all_effects() {
    let journal = [
        commit(1, "ann", None, &[(1, "bob"), (2, "eve")]),
        commit(2, "dan", None, &[(3, "bob")]),
        commit(3, "bob", Some((1, 1)), &[(4, "cem")]),
        commit(4, "eve", Some((1, 2)), &[]),
        commit(5, "cem", Some((1, 4)), &[(5, "ann"), (6, "fay")]),
        commit(6, "ann", Some((1, 5)), &[]),
    ];
    let (turns, shown) = followed(&journal, "bob", 10);
    // Eve's turn has the same cause, but does not come from Bob's.
    assert_eq!(turns, ["1.1 ann", "1.3 bob", "1.5 cem", "1.6 ann"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines,
        [
            "  1970-01-01T00:00:00Z  1.1  account/ann: moved #1",
            "    -> receive to account/bob, message 1.1",
            "*     1970-01-01T00:00:00Z  1.3  account/bob: moved #3",
            "        -> receive to account/cem, message 1.4",
            "          1970-01-01T00:00:00Z  1.5  account/cem: moved #5",
            "            -> receive to account/ann, message 1.5",
            "              1970-01-01T00:00:00Z  1.6  account/ann: moved #6",
            "            -> receive to account/fay, message 1.6  (not followed, or not taken yet)",
            "    -> receive to account/eve, message 1.2  (not followed, or not taken yet)",
        ]
    );
}

#[test]
fn last_turns_are_followed_and_no_others() {
    let journal = [
        commit(1, "ann", None, &[(1, "bob")]),
        commit(2, "bob", Some((1, 1)), &[]),
        commit(3, "ann", None, &[]),
        commit(4, "ann", None, &[]),
    ];
    assert_eq!(followed(&journal, "ann", 2).0, ["1.3 ann", "1.4 ann"]);
    assert_eq!(followed(&journal, "ann", 3).0.len(), 4);
    assert!(followed(&journal, "eve", 3).0.is_empty());
}

#[test]
fn effect_that_is_read_before_its_cause_is_found() {
    // Another node's commits may be read first.
    let journal = [
        commit(4, "cem", Some((1, 2)), &[]),
        commit(3, "bob", Some((1, 1)), &[(2, "cem")]),
        commit(2, "ann", None, &[(1, "bob")]),
    ];
    assert_eq!(followed(&journal, "ann", 1).0, ["1.2 ann", "1.3 bob", "1.4 cem"]);
    assert_eq!(followed(&journal, "cem", 1).0, ["1.2 ann", "1.3 bob", "1.4 cem"]);
}
