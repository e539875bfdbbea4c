//! The routes below `/resorts`: resorts, their seasons, and the totals of a day.

use axum::{extract::State, http::Uri, response::Response};
use schemars::JsonSchema;
use serde::Serialize;
use throng_http::Once;

use super::{
    answers::Failure,
    body::{self, Body},
    path::{PathError, ResortsPath},
    site::{Site, json},
    skiers::{Lift, Lifts},
};
use crate::{
    no_answer::NoAnswer,
    number::Number,
    resort::{Resort, ResortCommand},
    ride::{HOURS, LiftRides},
    statistics::Endpoint,
};

pub(super) const COLLECTION: &str = "/resorts/";

/// The list of resorts.
#[derive(Serialize, JsonSchema)]
pub(super) struct ResortsList {
    /// The resorts in the order of their numbers.
    resorts: Vec<ResortEntry>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResortEntry {
    /// The resort's name.
    resort_name: String,
    /// The resort's number, as in paths.
    #[serde(rename = "resortID")]
    resort_id: u32,
}

/// The seasons of a resort.
#[derive(Serialize, JsonSchema)]
pub(super) struct SeasonsList {
    /// The years, in order.
    seasons: Vec<String>,
}

/// The number of skiers at a resort.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResortSkiers {
    /// The time of the count, in UTC.
    time: String,
    /// The number of different skiers on the day.
    num_skiers: u64,
}

/// The rides at a resort by hour.
#[derive(Serialize, JsonSchema)]
pub(super) struct Hours {
    /// The rides by hour, from minutes 1 to 60 of the ski day to minutes 361 to 420.
    hours: [u64; HOURS],
}

pub(super) async fn list(State(site): State<Site>) -> Response {
    let answer = async {
        let numbers = site.service.models.resorts().await?;
        let resorts = numbers.into_iter().map(|resort_id| ResortEntry {
            resort_name: format!("Resort {resort_id}"),
            resort_id,
        });
        json(ResortsList {
            resorts: resorts.collect(),
        })
    };
    site.answer(Endpoint::GetResorts, answer).await
}

pub(super) async fn post(State(site): State<Site>, uri: Uri, once: Once, body: Body) -> Response {
    let answer = async {
        let ResortsPath::Seasons { resort } = ResortsPath::parse(site.below(COLLECTION, uri.path()))? else {
            return Err(PathError::Unknown.into());
        };
        let season = body::season(&body)?;
        let resort = once.of(site.service.engine.entity::<Resort>(Number(resort)));
        match resort.ask(ResortCommand::AddSeason { season }).await {
            Ok(_) => Ok(site.dialect.created("Season created!")),
            Err(error) => Err(Failure::Problem(Box::new(error.into()))),
        }
    };
    site.answer(Endpoint::PostSeason, answer).await
}

pub(super) async fn get(State(site): State<Site>, uri: Uri) -> Response {
    let path = match ResortsPath::parse(site.below(COLLECTION, uri.path())) {
        Ok(path) => path,
        Err(error) => return site.dialect.failed(error.into()),
    };
    let models = &site.service.models;
    let answer = async {
        match path {
            ResortsPath::Seasons { resort } => {
                let seasons = models.resort(resort).await.map_err(of_resort)?.seasons;
                json(SeasonsList {
                    seasons: seasons.iter().map(u32::to_string).collect(),
                })
            }
            ResortsPath::Skiers(day) => {
                let num_skiers = models.resort_day(day).await.map_err(of_resort)?.skiers;
                let time = jiff::Timestamp::now().to_string();
                json(ResortSkiers { time, num_skiers })
            }
            ResortsPath::Lifts(day) => json(Lifts::from(models.resort_day(day).await.map_err(of_resort)?.lifts)),
            ResortsPath::Lift { day, lift } => {
                let rides = models.resort_day(day).await.map_err(of_resort)?.rides_on(lift);
                json(Lift::from(LiftRides { lift, rides }))
            }
            ResortsPath::Hours(day) => {
                let hours = models.resort_day(day).await.map_err(of_resort)?.hours;
                json(Hours { hours })
            }
        }
    };
    site.answer(path.endpoint(), answer).await
}

fn of_resort(none: NoAnswer) -> Failure {
    match none {
        NoAnswer::NotFound => Failure::not_found("Resort not found"),
        other => other.into(),
    }
}
