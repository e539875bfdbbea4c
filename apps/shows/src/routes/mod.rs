//! The service's own routes, beside the generic ones: axum handlers that ask a show and answer in words.
//!
//! | route | answers |
//! |---|---|
//! | `POST /shows` `{showId, title, maxSeats}` | 201 `Show created`, 409 `Show already created`, 400 `Show creation failed with: …` |
//! | `GET /shows?available=true&after=&limit=` | 200 `{shows: [{showId, availableSeats}], after}`: the shows with free seats |
//! | `GET /shows/{showId}` | 200 `{id, title, seats: [{number, status, price}]}`, 404 with no body |
//! | `PATCH /shows/{showId}/seats/{number}` `{action: "RESERVE" \| "CANCEL_RESERVATION"}` | 202 `RESERVE successful`, 400 `RESERVE failed with: …` |
//!
//! The original's pages for operators are below `/actuator/`.
//!
//! A path may begin with two slashes and end with one, as in the original. Clients whose base URL ends in a slash send two.
//!
//! The original accepts some incomplete requests: a missing `maxSeats` is 0, and `"action": 0` is the first action. This service refuses them,
//! because a show without seats or an unintended reservation helps nobody. Malformed requests (an id that is no UUID, a number that is none, another
//! action, broken JSON) get 400, and a body that is not JSON gets 415, as problem details.

#![allow(
    clippy::result_large_err,
    reason = "a problem is rare, and handlers return it as it is"
)]

mod actuator;
mod parse;

use axum::{
    Router,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, patch},
};
use schemars::JsonSchema;
use serde::Deserialize;
use throng::{Engine, model::Error};
use throng_http::{
    Behind, Described, Once, Problem, Route,
    extract::{Json, Path, Query},
};

use crate::available::{self, AvailablePage, AvailableShows, PAGE_DEFAULT};
use crate::show::{GetShow, Show, ShowCommand, ShowRejection, ShowView};
use parse::IsJson;

/// Returns the routes, to be mounted on a gateway.
pub fn routes(engine: Engine) -> Router {
    let mut routes = actuator::routes();
    for (begin, end) in [("", ""), ("/", ""), ("", "/"), ("/", "/")] {
        routes = routes
            .route(&format!("{begin}/shows{end}"), get(list).post(create))
            .route(&format!("{begin}/shows/{{show}}{end}"), get(view))
            .route(&format!("{begin}/shows/{{show}}/seats/{{seat}}{end}"), patch(change));
    }
    routes.with_state(engine)
}

/// Describes the routes' parameters and replies for the API documentation.
#[must_use]
pub fn describe() -> Described {
    let of_show = |route: Route| route.part("show", "The show's id, a UUID");
    let described = Described::new("shows", "Shows, and their seats; answers to changes are plain text")
        .route(
            Route::get("/shows", "Lists the shows with seats left")
                .query::<Listing>()
                .replies::<AvailablePage>(200, "A page of them, in the order of their ids; a moment behind"),
        )
        .route(
            Route::post("/shows", "Creates a show")
                .once()
                .body::<Creation>()
                .replies::<String>(201, "`Show created`; durable")
                .replies::<String>(409, "`Show already created`")
                .replies::<String>(400, "`Show creation failed with: TOO_MANY_SEATS`"),
        )
        .route(
            of_show(Route::get("/shows/{show}", "A show with all its seats"))
                .replies::<ShowView>(200, "Its seats as of now")
                .answers(404, "There is no such show; no body"),
        )
        .route(
            of_show(Route::patch("/shows/{show}/seats/{seat}", "Reserves a seat, or gives it back"))
                .part("seat", "The seat's number, from 0")
                .once()
                .body::<Change>()
                .replies::<String>(202, "`RESERVE successful` or `CANCEL_RESERVATION successful`; durable")
                .replies::<String>(400, "`RESERVE failed with: ` and one of SHOW_NOT_EXISTS, SEAT_NOT_EXISTS, SEAT_NOT_AVAILABLE, SEAT_NOT_RESERVED"),
        );
    actuator::describe(described)
}

type Body = Result<Bytes, BytesRejection>;

/// A show to create.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Creation {
    /// The id, a UUID.
    show_id: String,
    /// The show's title.
    title: String,
    /// The number of seats, at most 100. They are numbered from 0.
    max_seats: u32,
}

/// The change of a seat's status.
#[derive(Deserialize, JsonSchema)]
struct Change {
    /// Reserves the seat, or gives it back.
    action: Action,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Action {
    Reserve,
    CancelReservation,
}

/// The parameters of a page.
#[derive(Deserialize, JsonSchema)]
struct Listing {
    /// `true`: only shows with free seats. No other list is available.
    available: bool,
    /// Begins after this show's id; at the first by default.
    after: Option<String>,
    /// The number of shows on the page, 1 to 1,000; 100 by default.
    limit: Option<usize>,
}

async fn list(
    State(engine): State<Engine>,
    Query(asked): Query<Listing>,
) -> Result<(Behind, Json<AvailablePage>), Problem> {
    let Listing {
        available,
        after,
        limit,
    } = asked;
    if !available {
        let all = "Only available=true is listed here; GET /api/show lists all shows.";
        return Err(Problem::malformed(all).at_field("available"));
    }
    let after = after
        .as_deref()
        .map(|after| parse::show_id(after, "after"))
        .transpose()?;
    let page = available::page(&engine, after, limit.unwrap_or(PAGE_DEFAULT)).await;
    let behind = Behind::of(&engine.read_model::<AvailableShows>());
    page.map(|page| (behind, Json(page)))
        .map_err(|error| Problem::of_journal("The list cannot be read.", &error))
}

async fn create(State(engine): State<Engine>, _: IsJson, once: Once, body: Body) -> Result<Response, Problem> {
    let Creation {
        show_id,
        title,
        max_seats,
    } = parse::body(&body)?;
    let show = engine.entity::<Show>(parse::show_id(&show_id, "showId")?);
    let created = once.of(show).ask(ShowCommand::CreateShow { title, max_seats }).await;
    Ok(match created {
        Ok(_) => (StatusCode::CREATED, "Show created").into_response(),
        Err(Error::Rejected(ShowRejection::ShowAlreadyExists)) => {
            (StatusCode::CONFLICT, "Show already created").into_response()
        }
        Err(Error::Rejected(why)) => {
            (StatusCode::BAD_REQUEST, format!("Show creation failed with: {why}")).into_response()
        }
        Err(other) => return Err(other.into()),
    })
}

async fn view(State(engine): State<Engine>, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = parse::show_id(&id, "showId")?;
    match engine.entity::<Show>(id).read(GetShow {}).await {
        Ok(view) => Ok(Json(view).into_response()),
        // The content type keeps the gateway from treating this as a missing route.
        Err(Error::Unknown { .. }) => Ok((
            StatusCode::NOT_FOUND,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        )
            .into_response()),
        Err(other) => Err(other.into()),
    }
}

async fn change(
    State(engine): State<Engine>,
    Path((show, seat)): Path<(String, String)>,
    _: IsJson,
    once: Once,
    body: Body,
) -> Result<Response, Problem> {
    let show = engine.entity::<Show>(parse::show_id(&show, "showId")?);
    let seat = parse::seat(&seat)?;
    let Change { action } = parse::body(&body)?;
    let (command, done, failed) = match action {
        Action::Reserve => (
            ShowCommand::ReserveSeat { seat },
            "RESERVE successful",
            "RESERVE failed with: ",
        ),
        Action::CancelReservation => (
            ShowCommand::CancelSeatReservation { seat },
            "CANCEL_RESERVATION successful",
            "CANCEL_RESERVATION failed with: ",
        ),
    };
    Ok(match once.of(show).ask(command).await {
        Ok(_) => (StatusCode::ACCEPTED, done).into_response(),
        Err(Error::Rejected(why)) => (StatusCode::BAD_REQUEST, format!("{failed}{why}")).into_response(),
        Err(Error::Unknown { .. }) => (StatusCode::BAD_REQUEST, format!("{failed}SHOW_NOT_EXISTS")).into_response(),
        Err(other) => return Err(other.into()),
    })
}
