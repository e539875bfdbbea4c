//! The division of requests over clients. Each section belongs to one client.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use super::Request;

/// Assigns whole sections to `count` lanes (at least one): largest first, always to the shortest lane.
pub(super) fn split(requests: &[Request], count: usize) -> Vec<Vec<usize>> {
    let mut by_section: Vec<Vec<usize>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (index, request) in requests.iter().enumerate() {
        let place = *places.entry(&request.section).or_insert_with(|| {
            by_section.push(Vec::new());
            by_section.len() - 1
        });
        by_section[place].push(index);
    }
    by_section.sort_by_key(|indices| Reverse(indices.len()));

    let mut lanes = vec![Vec::new(); count.max(1)];
    let mut shortest: BinaryHeap<_> = (0..lanes.len()).map(|lane| Reverse((0, lane))).collect();
    for indices in by_section {
        if let Some(mut entry) = shortest.peek_mut() {
            let Reverse((length, lane)) = &mut *entry;
            *length += indices.len();
            lanes[*lane].extend(indices);
        }
    }
    for lane in &mut lanes {
        lane.sort_unstable();
    }
    lanes
}
