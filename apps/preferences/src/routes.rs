//! The service's own routes, beside the generic ones.
//!
//! | route | answers |
//! |---|---|
//! | `POST /users/{id}/actions` `{actions: [{action: "view" \| "like" \| "buy", item}]}` | 200 `{actions}`: all are durable |
//! | `GET /users/{id}/recommendations?limit=` | 200 `{user, items: [{item, category, score}]}`, 404 for a user who never acted |
//!
//! A malformed request is 400, a body that is not JSON 415, and an impossible request 422, each as problem details.

use axum::{
    Router,
    extract::State,
    routing::{get, post},
};
use schemars::JsonSchema;
use serde::Deserialize;
use throng::Engine;
use throng_http::{
    Described, Once, Problem, Route,
    extract::{Json, Path, Query},
};

use crate::{
    rules::LIMIT_MAX,
    user::{Act, Recommend, Recommendations, User, UserCommand, UserReply},
};

/// Returns the routes, to be mounted on a gateway.
pub fn routes(engine: Engine) -> Router {
    Router::new()
        .route("/users/{user}/actions", post(actions))
        .route("/users/{user}/recommendations", get(recommendations))
        .with_state(engine)
}

/// Describes the routes' parameters and replies for the API documentation.
#[must_use]
pub fn describe() -> Described {
    let of_user = |route: Route| route.part("user", "The user's name, 1 to 256 bytes");
    Described::new("preferences", "What users do, and what they might like")
        .route(
            of_user(Route::post("/users/{user}/actions", "Takes in what a user did"))
                .once()
                .body::<Actions>()
                .description("None is taken, and the answer is 422, if an item is not in the catalogue, or there are no actions, or too many.")
                .replies::<UserReply>(200, "All actions are durable"),
        )
        .route(
            of_user(Route::get("/users/{user}/recommendations", "What the user might like"))
                .query::<Recommend>()
                .description("The answer is 404 if the user has never acted.")
                .replies::<Recommendations>(200, "Best first, computed from all the user did"),
        )
}

/// The actions of one user.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Actions {
    /// The actions in order, 1 to 100. Either all are accepted or none.
    actions: Vec<Act>,
}

async fn actions(
    State(engine): State<Engine>,
    Path(user): Path<String>,
    once: Once,
    Json(Actions { actions }): Json<Actions>,
) -> Result<Json<UserReply>, Problem> {
    let user = once.of(engine.entity::<User>(user));
    Ok(Json(user.ask(UserCommand::Act { actions }).await?))
}

async fn recommendations(
    State(engine): State<Engine>,
    Path(user): Path<String>,
    Query(query): Query<Recommend>,
) -> Result<Json<Recommendations>, Problem> {
    if !(1..=LIMIT_MAX).contains(&query.limit) {
        let detail = format!(
            "A list of {} items cannot be had: limit is 1 to {LIMIT_MAX}.",
            query.limit
        );
        return Err(Problem::malformed(detail).at_field("limit"));
    }
    Ok(Json(engine.entity::<User>(user).read(query).await?))
}
