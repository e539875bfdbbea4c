//! The client, outgoing and incoming webhooks, over sockets.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod client;
mod incoming;
mod outgoing;
mod provider;
#[allow(dead_code, reason = "its main is the example's")]
#[path = "../../examples/webhooks.rs"]
mod shop;

/// The page shows the code that is compiled.
#[test]
fn page_shows_the_example() {
    let (page, example) = (
        include_str!("../../../../docs/webhooks.md"),
        include_str!("../../examples/webhooks.rs"),
    );
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let shown: Vec<&str> = blocks
        .iter()
        .filter_map(|block| block.strip_prefix("rust,ignore\n"))
        .collect();
    assert!(shown.len() >= 3);
    for part in shown.iter().flat_map(|block| block.split("\n\n")) {
        let in_example = example.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        let part = part.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        assert!(in_example.contains(part.trim()), "not in examples/webhooks.rs:\n{part}");
    }
}
