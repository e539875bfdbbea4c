//! The service's own routes, beside the generic ones: axum handlers that ask an entity and answer.
//!
//! | route | does |
//! |---|---|
//! | `GET /sections?after=&limit=` | lists the sections |
//! | `POST /sections` `{section, capacity}` | opens a section: 201 |
//! | `GET /sections/{id}` | how full it is |
//! | `GET /sections/{id}/roster?after=&limit=` | who sits in it |
//! | `GET /sections/{id}/roster/{student}` | whether a student sits in it |
//! | `POST /sections/{id}/add` `{student}` | asks the section for a seat |
//! | `POST /sections/{id}/drop` `{student}` | gives the seat back |
//! | `POST /requests` `{section, student, operation: "add" \| "drop"}` | the same through the collection, which passes it on |

use axum::{
    Json, Router,
    extract::{
        Path, Query, State,
        rejection::{JsonRejection, PathRejection, QueryRejection},
    },
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use schemars::JsonSchema;
use serde::Deserialize;
use throng::{Engine, model::Entity};
use throng_http::{Described, Once, Problem, Route};

use crate::{
    collection::{Collection, CollectionCommand, HOME, ListSections, SectionsPage},
    section::{
        GetRoster, InRoster, Look, RosterPage, Section, SectionCommand, SectionRejection, SectionReply, SectionView,
    },
};

/// The routes, to be mounted on a gateway.
pub fn routes(engine: Engine) -> Router {
    Router::new()
        .route("/sections", get(list).post(open))
        .route("/sections/{id}", get(view))
        .route("/sections/{id}/roster", get(roster))
        .route("/sections/{id}/roster/{student}", get(in_roster))
        .route("/sections/{id}/add", post(add))
        .route("/sections/{id}/drop", post(drop))
        .route("/requests", post(request))
        .with_state(engine)
}

/// What the routes take and give, for the service's documentation.
#[must_use]
pub fn describe() -> Described {
    let of_section = |route: Route| route.part("id", "Which section, for example `C S 142-1`");
    let of_student = |route: Route| route.part("student", "The student's number");
    let change = |path: &str, summary: &str| {
        of_section(Route::post(path, summary))
            .once()
            .body::<Student>()
            .replies::<SectionReply>(200, "What it did, and the seats left; durable")
            .refuses::<SectionRejection>()
    };
    Described::new("registration", "Sections, and who sits in them")
        .route(
            Route::get("/sections", "Lists the sections")
                .query::<ListSections>()
                .replies::<SectionsPage>(200, "A page of their ids, in order"),
        )
        .route(
            Route::post("/sections", "Opens a section")
                .once()
                .body::<Opening>()
                .replies::<SectionReply>(201, "It is open; durable")
                .refuses::<SectionRejection>(),
        )
        .route(
            of_section(Route::get("/sections/{id}", "How full a section is"))
                .replies::<SectionView>(200, "Its seats as of now"),
        )
        .route(
            of_section(Route::get("/sections/{id}/roster", "Who sits in a section"))
                .query::<GetRoster>()
                .replies::<RosterPage>(200, "A page of its students, in order"),
        )
        .route(
            of_student(of_section(Route::get(
                "/sections/{id}/roster/{student}",
                "Whether a student sits in a section",
            )))
            .replies::<bool>(200, "Does the student sit in it?"),
        )
        .route(change("/sections/{id}/add", "Asks a section for a seat"))
        .route(change("/sections/{id}/drop", "Gives a seat back"))
        .route(
            Route::post(
                "/requests",
                "Asks for a seat or gives it back, through the collection of all sections",
            )
            .once()
            .body::<Request>()
            .replies::<SectionReply>(200, "What it did, and the seats left; durable")
            .refuses::<SectionRejection>(),
        )
}

/// A section to be opened.
#[derive(Deserialize, JsonSchema)]
struct Opening {
    /// The id it is to have.
    section: String,
    /// How many seats it is opened with.
    capacity: u32,
}

/// The student a request is made for.
#[derive(Deserialize, JsonSchema)]
struct Student {
    /// The student's number.
    student: String,
}

/// A request as the collection takes it.
#[derive(Deserialize, JsonSchema)]
struct Request {
    /// The section's id.
    section: String,
    /// The student's number.
    student: String,
    operation: Operation,
}

/// What to do.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Operation {
    /// Ask for a seat.
    Add,
    /// Give it back.
    Drop,
}

type Id = Result<Path<String>, PathRejection>;
type Arguments<T> = Result<Query<T>, QueryRejection>;
type Body<T> = Result<Json<T>, JsonRejection>;

async fn list(State(engine): State<Engine>, arguments: Arguments<ListSections>) -> Result<Json<SectionsPage>, Problem> {
    let query = arguments.map_err(of_query)?.0;
    match engine.entity::<Collection>(HOME).read(query).await {
        // Nobody has opened a section yet.
        Err(throng::model::Error::Unknown { .. }) => Ok(Json(SectionsPage::default())),
        page => Ok(Json(page?)),
    }
}

async fn open(State(engine): State<Engine>, once: Once, body: Body<Opening>) -> Result<Response, Problem> {
    let Opening { section, capacity } = body.map_err(of_body)?.0;
    let command = CollectionCommand::Needed { section, capacity };
    let reply = once.of(engine.entity::<Collection>(HOME)).ask(command).await?;
    Ok((StatusCode::CREATED, Json(reply)).into_response())
}

async fn view(State(engine): State<Engine>, id: Id) -> Result<Json<SectionView>, Problem> {
    let id = id.map_err(of_path)?.0;
    Ok(Json(engine.entity::<Section>(id).read(Look {}).await?))
}

async fn roster(
    State(engine): State<Engine>,
    id: Id,
    arguments: Arguments<GetRoster>,
) -> Result<Json<RosterPage>, Problem> {
    let query = arguments.map_err(of_query)?.0;
    let id = id.map_err(of_path)?.0;
    Ok(Json(engine.entity::<Section>(id).read(query).await?))
}

async fn in_roster(
    State(engine): State<Engine>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<bool>, Problem> {
    let Path((id, student)) = path.map_err(of_path)?;
    Ok(Json(engine.entity::<Section>(id).read(InRoster { student }).await?))
}

async fn add(
    State(engine): State<Engine>,
    id: Id,
    once: Once,
    body: Body<Student>,
) -> Result<Json<SectionReply>, Problem> {
    let section = once.of(engine.entity::<Section>(id.map_err(of_path)?.0));
    let student = body.map_err(of_body)?.0.student;
    Ok(Json(section.ask(SectionCommand::Add { student }).await?))
}

async fn drop(
    State(engine): State<Engine>,
    id: Id,
    once: Once,
    body: Body<Student>,
) -> Result<Json<SectionReply>, Problem> {
    let section = once.of(engine.entity::<Section>(id.map_err(of_path)?.0));
    let student = body.map_err(of_body)?.0.student;
    Ok(Json(section.ask(SectionCommand::Drop { student }).await?))
}

async fn request(State(engine): State<Engine>, once: Once, body: Body<Request>) -> Result<Json<SectionReply>, Problem> {
    let Request {
        section,
        student,
        operation,
    } = body.map_err(of_body)?.0;
    let request = match operation {
        Operation::Add => SectionCommand::Add { student },
        Operation::Drop => SectionCommand::Drop { student },
    };
    let home = once.of(engine.entity::<Collection>(HOME));
    match home
        .ask(CollectionCommand::Route {
            section: section.clone(),
            request,
        })
        .await
    {
        // Without any section there is no collection either; to the asker it is the section that is missing.
        Err(throng::model::Error::Unknown {
            kind: Collection::KIND, ..
        }) => Err(throng::model::Error::Rejected(SectionRejection::NoSection { section }).into()),
        reply => Ok(Json(reply?)),
    }
}

fn of_path(rejection: PathRejection) -> Problem {
    Problem::malformed(rejection.body_text()).at_field("path")
}

fn of_query(rejection: QueryRejection) -> Problem {
    Problem::malformed(rejection.body_text()).at_field("query")
}

fn of_body(rejection: JsonRejection) -> Problem {
    match rejection {
        JsonRejection::MissingJsonContentType(_) => Problem::new(
            "unsupported-media-type",
            415,
            "Not JSON",
            "The body must be JSON: send Content-Type: application/json.",
        )
        .at_field("Content-Type"),
        JsonRejection::BytesRejection(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(
                "too-large",
                413,
                "Too large",
                "The body is larger than its limit. Nothing was done.",
            )
        }
        other => Problem::malformed(other.body_text()),
    }
}
