//! Pages of history that are limited by their bytes.

use crate::support::{Client, engine_with};
use serde_json::json;
use std::time::Duration;
use throng::Options;
use throng_http::{Gateway, Running};

const EVENTS: usize = 10;
const BYTES: usize = 1_000_000;

fn with_checkpoints(every: Duration) -> Running {
    let options = Options {
        checkpoint_every: every,
        ..Options::default()
    };
    Gateway::builder(engine_with(options)).start().unwrap()
}

/// Creates an entity with ten events of a megabyte each, after the first.
fn fill(client: &mut Client) {
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    for number in 0..EVENTS {
        let title = format!("{number}{}", "x".repeat(BYTES));
        let named = client.post("/api/section/S1/rename", &json!({ "title": title }).to_string());
        assert_eq!(named.status, 200, "{}", named.text());
    }
}

/// Checks that every event comes once, that no page has all of them, and that only the last page has no `next`.
#[track_caller]
fn comes_in_pages(client: &mut Client) {
    let (mut seqs, mut after, mut pages) = (Vec::new(), 0, 0);
    loop {
        let answer = client.get(&format!("/api/section/S1/events?after={after}"));
        assert!(answer.body.len() < 5 * BYTES, "a page of {} bytes", answer.body.len());
        let page = answer.json();
        let events = page["events"].as_array().unwrap();
        assert!(!events.is_empty(), "`next` said that there is more");
        seqs.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
        pages += 1;
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seqs, (1..=EVENTS as u64 + 1).collect::<Vec<_>>());
    assert!(pages > 1, "all of it in one page");
}

#[test]
fn a_page_cut_by_its_bytes_says_that_there_is_more() {
    let gateway = with_checkpoints(Duration::from_secs(3_600));
    let mut client = Client::new(&gateway);
    fill(&mut client);
    comes_in_pages(&mut client);
}

#[test]
fn a_page_from_the_store_or_from_both_says_so() {
    let gateway = with_checkpoints(Duration::from_millis(20));
    let mut client = Client::new(&gateway);
    fill(&mut client);
    // Waits for two more checkpoints, because the first may have begun before the last event.
    let checkpoints = |client: &mut Client| {
        let text = client.get("/metrics").text().to_owned();
        let line = text.lines().find(|line| line.starts_with("throng_checkpoints_total "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .unwrap()
    };
    let begun = checkpoints(&mut client);
    while checkpoints(&mut client) < begun + 2 {
        // A checkpoint needs a new event.
        client.post("/api/section/S2/open", r#"{"capacity":9}"#);
        comes_in_pages(&mut client);
    }
    comes_in_pages(&mut client);
}
