//! The queries of a user.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{Moment, Query, View};

use super::{User, UserRejection};
use crate::rules::{self, Recommended};

/// The default number of items in a list.
const LIMIT_DEFAULT: usize = 10;

/// The query `view`: the summary of the user.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetSummary {}

/// The answer to [`GetSummary`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SummaryView {
    /// The user's id, as in the path.
    pub user: String,
    /// The number of actions so far.
    pub actions: u64,
    /// The interest in each category with actions, in the order of the categories' numbers.
    pub interests: Vec<Interest>,
}

/// The interest of a user in a category.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interest {
    /// The category's number in the catalogue.
    pub category: u8,
    /// The weighted sum of the actions in it. An action 30 days older than the newest one counts half.
    pub weight: f32,
}

impl Query<User> for GetSummary {
    const NAME: &'static str = View::NAME;
    type Answer = SummaryView;

    fn answer(self, user: &User, moment: &Moment<'_, User>) -> Result<SummaryView, UserRejection> {
        let interests = user.summary().interests();
        Ok(SummaryView {
            user: moment.id.clone(),
            actions: user.summary().actions(),
            interests: interests
                .map(|(category, weight)| Interest { category, weight })
                .collect(),
        })
    }
}

/// The query for items that the user might like. It is computed for each request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Recommend {
    /// The number of items in the list, at most 50; 10 by default.
    #[serde(default = "limit_default")]
    pub limit: usize,
}

fn limit_default() -> usize {
    LIMIT_DEFAULT
}

impl Default for Recommend {
    fn default() -> Self {
        Self { limit: LIMIT_DEFAULT }
    }
}

/// The answer to [`Recommend`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recommendations {
    /// The user's id, as in the path.
    pub user: String,
    /// The items, best first.
    pub items: Vec<Recommended>,
}

impl Query<User> for Recommend {
    const NAME: &'static str = "recommendations";
    type Answer = Recommendations;

    fn answer(self, user: &User, moment: &Moment<'_, User>) -> Result<Recommendations, UserRejection> {
        Ok(Recommendations {
            user: moment.id.clone(),
            items: rules::recommend(user.summary(), self.limit),
        })
    }
}
