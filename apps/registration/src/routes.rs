//! The service's own routes, beside the generic ones: axum handlers that ask an entity and answer.
//!
//! | route | does |
//! |---|---|
//! | `GET /sections?after=&limit=` | lists the sections |
//! | `POST /sections` `{section, capacity}` | opens a section: 201 |
//! | `GET /sections/{id}` | returns the section's seats, taken and free |
//! | `GET /sections/{id}/roster?after=&limit=` | lists the section's students |
//! | `GET /sections/{id}/roster/{student}` | tells if a student is in the section |
//! | `POST /sections/{id}/add` `{student}` | asks the section for a seat |
//! | `POST /sections/{id}/drop` `{student}` | gives the seat back |
//! | `POST /requests` `{section, student, operation: "add" \| "drop"}` | the same through the collection, which passes it on |

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use schemars::JsonSchema;
use serde::Deserialize;
use throng::{Engine, model::Entity};
use throng_http::{
    Described, Once, Problem, Route,
    extract::{Json, Path, Query},
};

use crate::{
    collection::{Collection, CollectionCommand, HOME, ListSections, SectionsPage},
    section::{
        GetRoster, InRoster, Look, RosterPage, Section, SectionCommand, SectionRejection, SectionReply, SectionView,
    },
};

/// Returns the routes, to be mounted on a gateway.
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

/// Describes the routes' parameters and replies for the API documentation.
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

/// A section to open.
#[derive(Deserialize, JsonSchema)]
struct Opening {
    /// The section's id.
    section: String,
    /// The number of its seats.
    capacity: u32,
}

/// The student of a request.
#[derive(Deserialize, JsonSchema)]
struct Student {
    /// The student's number.
    student: String,
}

/// A request to the collection.
#[derive(Deserialize, JsonSchema)]
struct Request {
    /// The section's id.
    section: String,
    /// The student's number.
    student: String,
    operation: Operation,
}

/// The operation of a request.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Operation {
    /// Asks for a seat.
    Add,
    /// Gives the seat back.
    Drop,
}

async fn list(State(engine): State<Engine>, Query(query): Query<ListSections>) -> Result<Json<SectionsPage>, Problem> {
    match engine.entity::<Collection>(HOME).read(query).await {
        // No section has been opened yet.
        Err(throng::model::Error::Unknown { .. }) => Ok(Json(SectionsPage::default())),
        page => Ok(Json(page?)),
    }
}

async fn open(State(engine): State<Engine>, once: Once, Json(asked): Json<Opening>) -> Result<Response, Problem> {
    let Opening { section, capacity } = asked;
    let command = CollectionCommand::Needed { section, capacity };
    let reply = once.of(engine.entity::<Collection>(HOME)).ask(command).await?;
    Ok((StatusCode::CREATED, Json(reply)).into_response())
}

async fn view(State(engine): State<Engine>, Path(id): Path<String>) -> Result<Json<SectionView>, Problem> {
    Ok(Json(engine.entity::<Section>(id).read(Look {}).await?))
}

async fn roster(
    State(engine): State<Engine>,
    Path(id): Path<String>,
    Query(query): Query<GetRoster>,
) -> Result<Json<RosterPage>, Problem> {
    Ok(Json(engine.entity::<Section>(id).read(query).await?))
}

async fn in_roster(
    State(engine): State<Engine>,
    Path((id, student)): Path<(String, String)>,
) -> Result<Json<bool>, Problem> {
    Ok(Json(engine.entity::<Section>(id).read(InRoster { student }).await?))
}

async fn add(
    State(engine): State<Engine>,
    Path(id): Path<String>,
    once: Once,
    Json(Student { student }): Json<Student>,
) -> Result<Json<SectionReply>, Problem> {
    let section = once.of(engine.entity::<Section>(id));
    Ok(Json(section.ask(SectionCommand::Add { student }).await?))
}

async fn drop(
    State(engine): State<Engine>,
    Path(id): Path<String>,
    once: Once,
    Json(Student { student }): Json<Student>,
) -> Result<Json<SectionReply>, Problem> {
    let section = once.of(engine.entity::<Section>(id));
    Ok(Json(section.ask(SectionCommand::Drop { student }).await?))
}

async fn request(
    State(engine): State<Engine>,
    once: Once,
    Json(asked): Json<Request>,
) -> Result<Json<SectionReply>, Problem> {
    let Request {
        section,
        student,
        operation,
    } = asked;
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
        // Without any section there is no collection. The caller should hear that the section is missing.
        Err(throng::model::Error::Unknown {
            kind: Collection::KIND, ..
        }) => Err(throng::model::Error::Rejected(SectionRejection::NoSection { section }).into()),
        reply => Ok(Json(reply?)),
    }
}
