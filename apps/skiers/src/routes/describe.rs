//! The routes' documentation.

use throng_http::{Described, Route};

use super::{
    answers::ResponseMsg,
    body::{LiftRide, NewSeason},
    resorts::{Hours, ResortSkiers, ResortsList, SeasonsList},
    skiers::{Lift, Lifts, Season, SkierVertical},
};
use crate::statistics::ApiStatistics;

/// Describes the routes' parameters and replies for the API documentation.
#[must_use]
pub fn describe() -> Described {
    let described = Described::new(
        "skiers",
        "Lift rides. `/day/` and `/days/` are the same; below `/Server_war` everything is there once more, with messages as plain text",
    );
    of_resorts(of_skiers(described)).route(
        Route::get("/statistics", "How long the service takes to answer").replies::<ApiStatistics>(
            200,
            "Milliseconds since its start: mean and most, of each URL and operation that was asked",
        ),
    )
}

fn of_skiers(described: Described) -> Described {
    const DAY: &str = "/skiers/{resortID}/seasons/{seasonID}/days/{dayID}/skiers/{skierID}";
    described
        .route(
            skier(day(Route::post(DAY, "Records a ride on a lift")))
                .once()
                .body::<LiftRide>()
                .answers(201, "`Lift ride created!`; durable")
                .replies::<ResponseMsg>(400, "Which parameter is missing or cannot be")
                .replies::<ResponseMsg>(404, "There is no such path"),
        )
        .route(missing(
            skier(day(Route::get(DAY, "The vertical of a skier's day")))
                .replies::<u64>(200, "10 for each lift and its number"),
        ))
        .route(missing(
            skier(day(Route::get(format!("{DAY}/lifts"), "The lifts of a skier's day")))
                .replies::<Lifts>(200, "Rides on each lift that was ridden"),
        ))
        .route(missing(
            skier(season(Route::get(
                "/skiers/{resortID}/seasons/{seasonID}/skiers/{skierID}",
                "A skier's season: days skied, vertical of each",
            )))
            .replies::<Season>(200, "The days with rides"),
        ))
        .route(missing(
            skier(Route::get(
                "/skiers/{skierID}/vertical",
                "The vertical of a skier's seasons",
            ))
            .query::<OfResorts>()
            .replies::<SkierVertical>(200, "All seasons, or those asked for"),
        ))
}

fn of_resorts(described: Described) -> Described {
    const DAY: &str = "/resorts/{resortID}/seasons/{seasonID}/day/{dayID}";
    let of_day = |below: &str, summary: &str| missing(day(Route::get(format!("{DAY}/{below}"), summary)));
    described
        .route(
            Route::get("/resorts", "Lists the resorts")
                .replies::<ResortsList>(200, "Those with a ride or a season; at most 10,000"),
        )
        .route(missing(
            Route::get("/resorts/{resortID}/seasons", "A resort's seasons")
                .part("resortID", "The resort's number")
                .replies::<SeasonsList>(200, "Those added, and those with rides"),
        ))
        .route(
            Route::post(
                "/resorts/{resortID}/seasons",
                "Adds a season to a resort, which may be new",
            )
            .part("resortID", "The resort's number")
            .once()
            .body::<NewSeason>()
            .answers(201, "`Season created!`; durable")
            .replies::<ResponseMsg>(400, "Which parameter is missing or cannot be")
            .replies::<ResponseMsg>(404, "The path cannot be"),
        )
        .route(of_day("skiers", "How many different skiers were there").replies::<ResortSkiers>(200, "As of now"))
        .route(of_day("lifts", "Rides by lift").replies::<Lifts>(200, "The lifts that were ridden"))
        .route(
            of_day("lifts/{liftID}", "Rides on a lift")
                .part("liftID", "The lift's number")
                .replies::<Lift>(200, "How many"),
        )
        .route(of_day("hours", "Rides by hour").replies::<Hours>(200, "Of the seven hours of the ski day"))
}

/// The parameters of `/vertical`.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "read one by one; this documents them")]
struct OfResorts {
    /// A resort's number; may be repeated.
    resort: Vec<u32>,
    /// A season's year; may be repeated. All seasons by default.
    season: Option<Vec<u32>>,
}

fn missing(route: Route) -> Route {
    route
        .replies::<ResponseMsg>(400, "A parameter cannot be")
        .replies::<ResponseMsg>(404, "There is nothing of the kind")
}

fn season(route: Route) -> Route {
    route
        .part("resortID", "The resort's number")
        .part("seasonID", "The season's year")
}

fn day(route: Route) -> Route {
    season(route).part("dayID", "The day of the season, 1 to 366")
}

fn skier(route: Route) -> Route {
    route.part("skierID", "The skier's number")
}
