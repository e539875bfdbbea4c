//! The routes below `/skiers`: rides, and a skier's totals.

use axum::{extract::State, http::Uri, response::Response};
use schemars::JsonSchema;
use serde::Serialize;
use throng_http::Once;

use super::{
    answers::Failure,
    body::{self, Body},
    path::SkiersPath,
    site::{Site, json},
};
use crate::{
    number::NUMBER_MAX,
    ride::{LiftRides, Refused},
    skier::{SeasonTotals, SkiDay, SkiSeason},
    statistics::Endpoint,
};

pub(super) const COLLECTION: &str = "/skiers/";

/// The vertical of a skier by season.
#[derive(Serialize, JsonSchema)]
pub(super) struct SkierVertical {
    /// An entry for each season of each requested resort, in the order of the request.
    resorts: Vec<SeasonVertical>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SeasonVertical {
    /// The season's year.
    #[serde(rename = "seasonID")]
    season_id: String,
    /// The vertical of all rides.
    total_vert: u64,
}

/// The lifts ridden on a day.
#[derive(Serialize, JsonSchema)]
pub(super) struct Lifts {
    /// The lifts in the order of their numbers.
    lifts: Vec<Lift>,
}

/// The rides on a lift.
#[derive(Serialize, JsonSchema)]
pub(super) struct Lift {
    /// The lift's number.
    #[serde(rename = "liftID")]
    lift_id: u32,
    /// The number of rides on it.
    rides: u64,
}

/// A skier's season at a resort.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Season {
    /// The number of days skied.
    days_skied: usize,
    /// The number of rides. Identical ones count separately.
    rides: u64,
    /// The vertical of all rides.
    total_vert: u64,
    /// The days skied, in order.
    days: Vec<Day>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Day {
    /// The day of the season.
    #[serde(rename = "dayID")]
    day_id: String,
    /// The number of rides. Identical ones count separately.
    rides: u64,
    /// The vertical of all rides.
    vertical: u64,
}

impl From<Vec<LiftRides>> for Lifts {
    fn from(lifts: Vec<LiftRides>) -> Self {
        Self {
            lifts: lifts.into_iter().map(Lift::from).collect(),
        }
    }
}

impl From<LiftRides> for Lift {
    fn from(LiftRides { lift, rides }: LiftRides) -> Self {
        Self { lift_id: lift, rides }
    }
}

impl From<SkiSeason> for Season {
    fn from(season: SkiSeason) -> Self {
        let SkiSeason { rides, vertical, days } = season;
        let day = |SkiDay {
                       day, rides, vertical, ..
                   }| Day {
            day_id: day.to_string(),
            rides,
            vertical,
        };
        Self {
            days_skied: days.len(),
            rides,
            total_vert: vertical,
            days: days.into_iter().map(day).collect(),
        }
    }
}

pub(super) async fn no_path(State(site): State<Site>) -> Response {
    site.dialect.failed(Failure::not_found("Invalid path"))
}

pub(super) async fn post(State(site): State<Site>, uri: Uri, once: Once, body: Body) -> Response {
    let answer = async {
        let SkiersPath::Day { day, skier } = SkiersPath::parse(site.below(COLLECTION, uri.path()))? else {
            return Err(super::path::PathError::Unknown.into());
        };
        let ride = body::ride(&body, day)?;
        site.service.recorder.record(skier, ride, once).await?;
        Ok(site.dialect.created("Lift ride created!"))
    };
    site.answer(Endpoint::PostRide, answer).await
}

pub(super) async fn get(State(site): State<Site>, uri: Uri) -> Response {
    let path = match SkiersPath::parse(site.below(COLLECTION, uri.path())) {
        Ok(path) => path,
        Err(error) => return site.dialect.failed(error.into()),
    };
    let models = &site.service.models;
    let answer = async {
        match path {
            SkiersPath::Day { day, skier } => json(models.day(skier, day).await?.vertical),
            SkiersPath::Lifts { day, skier } => json(Lifts::from(models.day(skier, day).await?.lifts)),
            SkiersPath::Season { resort, season, skier } => {
                json(Season::from(models.season(skier, resort, season).await?))
            }
            SkiersPath::Vertical { skier } => vertical(&site, skier, uri.query().unwrap_or_default()).await,
        }
    };
    site.answer(path.endpoint(), answer).await
}

async fn vertical(site: &Site, skier: u32, query: &str) -> Result<Response, Failure> {
    let (resorts, seasons) = (numbers(query, "resort")?, numbers(query, "season")?);
    if resorts.is_empty() {
        return Err(Failure::bad("Missing parameter: 'resort'"));
    }
    let found = site.service.models.skier(skier).await?.seasons;
    let is_asked_for = |of: &&SeasonTotals| seasons.is_empty() || seasons.contains(&of.season);
    let of_resort = |resort: &u32| {
        let resort = *resort;
        found.iter().filter(move |of| of.resort == resort).filter(is_asked_for)
    };
    let resorts: Vec<SeasonVertical> = resorts
        .iter()
        .flat_map(of_resort)
        .map(|of| SeasonVertical {
            season_id: of.season.to_string(),
            total_vert: of.vertical,
        })
        .collect();
    if resorts.is_empty() {
        return Err(Failure::not_found("Data not found"));
    }
    json(SkierVertical { resorts })
}

/// Returns all values of a parameter that may be repeated, each once.
fn numbers(query: &str, name: &str) -> Result<Vec<u32>, Failure> {
    let mut numbers = Vec::new();
    for (_, value) in form_urlencoded::parse(query.as_bytes()).filter(|(found, _)| found == name) {
        let number = value.parse().ok().filter(|number| *number <= NUMBER_MAX);
        let Some(number) = number else {
            let shown: String = value.chars().take(64).collect();
            return Err(Failure::bad(Refused::invalid(name, shown).to_string()));
        };
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}
