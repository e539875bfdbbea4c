//! The queries of a section.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{Moment, Query, View};

use super::{Section, SectionRejection};

/// The default number of students on a page of a roster.
pub const ROSTER_PAGE_DEFAULT: u32 = 1_000;
/// The most students on a page of a roster.
pub const ROSTER_PAGE_MAX: u32 = 10_000;

/// The query `view`: the section's capacity and free seats.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Look {}

/// The answer to [`Look`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SectionView {
    /// The section's id.
    pub section: String,
    /// The number of seats.
    pub capacity: u32,
    /// The number of taken seats.
    pub taken: u32,
    /// The number of free seats.
    pub remaining: u32,
}

impl Query<Section> for Look {
    const NAME: &'static str = View::NAME;
    type Answer = SectionView;

    fn answer(self, section: &Section, moment: &Moment<'_, Section>) -> Result<SectionView, SectionRejection> {
        Ok(SectionView {
            section: moment.id.clone(),
            capacity: section.capacity,
            taken: section.taken(),
            remaining: section.remaining(),
        })
    }
}

/// The query `roster`: the section's students by page, sorted by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetRoster {
    /// Begins after this name; at the first by default.
    #[serde(default)]
    pub after: Option<String>,
    /// The number of students on the page, 1 to 10,000; 1,000 by default.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// A page of a roster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RosterPage {
    /// The students' names, in order.
    pub students: Vec<String>,
    /// The start of the next page; `None` on the last.
    pub after: Option<String>,
}

impl Query<Section> for GetRoster {
    const NAME: &'static str = "roster";
    type Answer = RosterPage;

    fn answer(self, section: &Section, _: &Moment<'_, Section>) -> Result<RosterPage, SectionRejection> {
        let limit = self.limit.unwrap_or(ROSTER_PAGE_DEFAULT).clamp(1, ROSTER_PAGE_MAX) as usize;
        let mut rest = section.roster.after(self.after.as_deref());
        let students: Vec<String> = rest.by_ref().take(limit).map(str::to_owned).collect();
        let after = rest.next().and_then(|_| students.last().cloned());
        Ok(RosterPage { students, after })
    }
}

/// The query `in-roster`: true if a student sits in the section.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InRoster {
    /// The student's name.
    pub student: String,
}

impl Query<Section> for InRoster {
    const NAME: &'static str = "in-roster";
    type Answer = bool;

    fn answer(self, section: &Section, _: &Moment<'_, Section>) -> Result<bool, SectionRejection> {
        Ok(section.roster.contains(&self.student))
    }
}
