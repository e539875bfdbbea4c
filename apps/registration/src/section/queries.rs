//! Looking at a section without changing it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{Moment, Query, View};

use super::{Section, SectionRejection};

/// Students on one page of a roster, when the query does not say.
pub const ROSTER_PAGE_DEFAULT: u32 = 1_000;
/// Most students on one page of a roster.
pub const ROSTER_PAGE_MAX: u32 = 10_000;

/// The query `view`: the section's capacity and free seats.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Look {}

/// The answer to [`Look`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SectionView {
    /// The section's id.
    pub section: String,
    /// The seats it was opened with.
    pub capacity: u32,
    /// The seats that are taken.
    pub taken: u32,
    /// The seats that are free.
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

/// The query `roster`: the section's students, page by page in the order of their names.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetRoster {
    /// Begin after this name; without it, at the first.
    #[serde(default)]
    pub after: Option<String>,
    /// Students on the page, 1 to 10,000; 1,000 without it.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// A page of a roster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RosterPage {
    /// The students' names, in their order.
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
    /// The name that is looked for.
    pub student: String,
}

impl Query<Section> for InRoster {
    const NAME: &'static str = "in-roster";
    type Answer = bool;

    fn answer(self, section: &Section, _: &Moment<'_, Section>) -> Result<bool, SectionRejection> {
        Ok(section.roster.contains(&self.student))
    }
}
