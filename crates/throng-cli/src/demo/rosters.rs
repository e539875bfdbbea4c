//! Every roster, read back by queries.

use anyhow::bail;
use registration::{
    reference::Rosters,
    section::{ROSTER_PAGE_MAX, RosterPage},
    trace::Trace,
};
use std::{collections::HashMap, sync::Arc};

use super::answers;
use crate::{client::Client, percent, progress::Progress};

/// Reads the roster of every section of the trace over HTTP, page by page.
pub fn read(client: &Client, trace: &Trace) -> anyhow::Result<Rosters> {
    let mut students: Vec<Vec<Arc<str>>> = vec![Vec::new(); trace.sections.len()];
    let mut wanted: Vec<(usize, Option<String>)> = (0..trace.sections.len()).map(|section| (section, None)).collect();
    while !wanted.is_empty() {
        let mut requests = throng_load::Trace::new();
        for (section, after) in &wanted {
            let id = percent::segment(&trace.sections[*section].id);
            let after = after
                .as_deref()
                .map_or(String::new(), |after| format!("&after={}", percent::segment(after)));
            let path = format!("/api/section/{id}/roster?limit={ROSTER_PAGE_MAX}{after}");
            requests.push(
                section.to_le_bytes(),
                None,
                0,
                throng_load::Request::get(client.authority(), &path).bytes(),
            );
        }
        let (mut rest, mut first_wrong) = (Vec::new(), None);
        let progress = Progress::new("comparing", requests.len() as u64);
        client.send(Arc::new(requests), 0.0, Some(progress), |index, outcome| {
            let (section, _) = wanted[index];
            let page = match &outcome.result {
                Ok(answer) if answer.status == 200 => {
                    serde_json::from_slice::<RosterPage>(answer.body).map_err(|error| error.to_string())
                }
                Ok(answer) => Err(answers::said(answer)),
                Err(kind) => Err(kind.name().to_string()),
            };
            match page {
                Ok(page) => {
                    students[section].extend(page.students.into_iter().map(Arc::from));
                    rest.extend(page.after.map(|after| (section, Some(after))));
                    true
                }
                Err(found) => {
                    let id = &trace.sections[section].id;
                    first_wrong.get_or_insert_with(|| format!("the roster of `{id}` cannot be read: {found}"));
                    false
                }
            }
        })?;
        if let Some(wrong) = first_wrong {
            bail!(wrong);
        }
        wanted = rest;
    }
    let mut rosters = Rosters::default();
    for (section, students) in trace.sections.iter().zip(students) {
        rosters.set(section.id.clone(), students);
    }
    Ok(rosters)
}

/// The sections with more students than seats.
pub fn overfull(trace: &Trace, found: &Rosters) -> Vec<Arc<str>> {
    let capacities: HashMap<&str, usize> = trace
        .sections
        .iter()
        .map(|section| (&*section.id, section.capacity as usize))
        .collect();
    let is_over = |id: &Arc<str>| found.students(id).count() > capacities.get(&**id).copied().unwrap_or(0);
    trace
        .sections
        .iter()
        .map(|section| &section.id)
        .filter(|id| is_over(id))
        .cloned()
        .collect()
}
