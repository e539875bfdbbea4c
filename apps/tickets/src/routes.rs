//! The service's own routes, beside the generic ones.
//!
//! | route | does |
//! |---|---|
//! | `POST /orders/{order}` | asks for seats, or for a place on the waiting list |
//! | `POST /orders/{order}/payment` | pays for the held seats |
//! | `POST /orders/{order}/cancel` | gives seats back, or leaves the waiting list |
//! | `GET /orders/{order}` | returns the order |
//! | `GET /orders/{order}/events` | streams the order's events |
//! | `GET /customers/{customer}` | returns a customer's orders and limit |
//! | `GET /concerts/{concert}/seats` | streams the free seats of each zone |
//! | `GET /best-sellers` | returns the best sellers by hour |

#![allow(
    clippy::result_large_err,
    reason = "a problem is rare, and handlers return it as it is"
)]

use crate::{
    access::{Counter, Role},
    best_sellers::{self, BestSellersPage, Page},
    concert::{Concert, GetConcert},
    customer::{Customer, CustomerView, GetCustomer, TICKETS_MAX},
    order::{GetOrder, Order, OrderCommand, OrderRejection, OrderView, Stage},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{ops::ControlFlow, time::Duration};
use throng_app::{
    Engine, EntityEvent, Follow, Handle,
    axum::{
        Router,
        extract::State,
        http::{HeaderMap, StatusCode},
        routing::{get, post},
    },
    http::{
        Caller, Described, LiveEvents, Once, Problem, Route,
        extract::{Json, Path, Query},
    },
    model::{Entity, Error, TextId},
};

/// The pauses between looks at a new order, while its customer and its concert answer. After the last one the order is returned as it is.
const PAUSES_MILLIS: [u64; 8] = [1, 2, 5, 10, 50, 100, 300, 1_000];

#[derive(Clone)]
struct Desk {
    engine: Engine,
    counter: Counter,
}

/// Returns the routes, to be mounted on a gateway.
pub fn routes(engine: Engine, counter: Counter) -> Router {
    Router::new()
        .route("/orders/{order}", get(view).post(place))
        .route("/orders/{order}/payment", post(pay))
        .route("/orders/{order}/cancel", post(cancel))
        .route("/orders/{order}/events", get(follow))
        .route("/customers/{customer}", get(customer))
        .route("/concerts/{concert}/seats", get(seats))
        .route("/best-sellers", get(best))
        .with_state(Desk { engine, counter })
}

/// Describes the routes' parameters and replies for the API documentation.
#[must_use]
pub fn describe() -> Described {
    let of_order = |route: Route| route.part("order", "The order's id, which its customer chooses");
    let change = |path: &str, summary: &str| {
        of_order(Route::post(path, summary))
            .once()
            .replies::<OrderView>(200, "The order; durable")
            .refuses::<OrderRejection>()
    };
    Described::new("tickets", "Orders, and what is on sale")
        .route(
            of_order(Route::post(
                "/orders/{order}",
                "Asks for seats, or for a place in the waiting list",
            ))
            .once()
            .body::<Placing>()
            .replies::<OrderView>(201, "The order as it stands: `held` if it has seats; durable")
            .refuses::<OrderRejection>(),
        )
        .route(change("/orders/{order}/payment", "Pays for the held seats").body::<Paying>())
        .route(change(
            "/orders/{order}/cancel",
            "Gives the seats back, or leaves the waiting list",
        ))
        .route(of_order(Route::get("/orders/{order}", "An order")).replies::<OrderView>(200, "The order as of now"))
        .route(
            of_order(Route::get("/orders/{order}/events", "The events of an order, live"))
                .streams::<OrderStep>("An event each"),
        )
        .route(
            Route::get("/customers/{customer}", "The orders of a customer")
                .part("customer", "The customer's name")
                .replies::<CustomerView>(200, "The orders that count, and the limit"),
        )
        .route(
            Route::get("/concerts/{concert}/seats", "The free seats of each zone, live")
                .part("concert", "The concert's id")
                .streams::<FreeSeats>("A zone each time its free seats change"),
        )
        .route(
            Route::get("/best-sellers", "Lists what was sold, by hour")
                .query::<Page>()
                .replies::<BestSellersPage>(200, "The newest hour first; a moment behind"),
        )
}

/// An order to place.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Placing {
    /// The concert's id.
    concert: TextId,
    /// The zone's name.
    zone: String,
    /// The number of seats.
    tickets: u32,
    /// True if the order waits when too few seats are free.
    #[serde(default)]
    waits: bool,
    /// The customer. Only the box office orders for others.
    #[serde(default)]
    customer: Option<TextId>,
}

/// The body of a request to pay.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Paying {
    /// The provider's token for the means of payment.
    token: String,
}

/// The free seats of a zone.
#[derive(Serialize, Deserialize, JsonSchema)]
struct FreeSeats {
    /// The zone's name.
    zone: String,
    /// The number of free seats.
    free: u32,
}

/// An event of an order.
#[derive(Serialize, JsonSchema)]
struct OrderStep {
    /// The event's name.
    name: String,
    /// The event's content.
    payload: serde_json::Value,
}

impl Desk {
    /// Returns an order, asked in the caller's role. A customer asks by name, so that the order itself refuses others.
    fn order(&self, id: &str, role: &Role) -> Handle<Order> {
        let order = self.engine.entity::<Order>(id);
        match role {
            Role::BoxOffice => order,
            Role::Customer(name) => order.caller(name),
        }
    }

    async fn ask(&self, asked: (String, Role), once: Once, command: OrderCommand) -> Result<Json<OrderView>, Problem> {
        let (id, role) = asked;
        once.of(self.order(&id, &role)).ask(command).await?;
        Ok(Json(self.order(&id, &role).read(GetOrder {}).await?))
    }
}

async fn place(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    caller: Option<Caller>,
    once: Once,
    Json(asked): Json<Placing>,
) -> Result<(StatusCode, Json<OrderView>), Problem> {
    let role = desk.counter.role(caller.as_ref())?;
    let customer = match (&role, asked.customer) {
        (Role::BoxOffice, Some(customer)) => customer,
        (Role::BoxOffice, None) => return Err(Problem::malformed("Name the customer.").at_field("customer")),
        (Role::Customer(name), Some(other)) if other.as_str() != name => {
            return Err(Problem::forbidden("Only the box office orders for others."));
        }
        (Role::Customer(name), _) => {
            TextId::try_from(name.clone()).map_err(|why| Problem::malformed(why.to_string()))?
        }
    };
    let command = OrderCommand::Place {
        customer,
        concert: asked.concert,
        zone: asked.zone,
        tickets: asked.tickets,
        waits: asked.waits,
    };
    once.of(desk.order(&id, &role)).ask(command).await?;
    let mut pauses = PAUSES_MILLIS.into_iter();
    let order = loop {
        let order = desk.order(&id, &role).read(GetOrder {}).await?;
        match pauses.next() {
            Some(millis) if order.stage == Stage::Asked => tokio::time::sleep(Duration::from_millis(millis)).await,
            _ => break order,
        }
    };
    Ok((StatusCode::CREATED, Json(order)))
}

async fn pay(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    caller: Option<Caller>,
    once: Once,
    Json(Paying { token }): Json<Paying>,
) -> Result<Json<OrderView>, Problem> {
    let role = desk.counter.role(caller.as_ref())?;
    desk.ask((id, role), once, OrderCommand::Pay { token }).await
}

async fn cancel(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    caller: Option<Caller>,
    once: Once,
) -> Result<Json<OrderView>, Problem> {
    let role = desk.counter.role(caller.as_ref())?;
    desk.ask((id, role), once, OrderCommand::Cancel {}).await
}

async fn view(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    caller: Option<Caller>,
) -> Result<Json<OrderView>, Problem> {
    let role = desk.counter.role(caller.as_ref())?;
    Ok(Json(desk.order(&id, &role).read(GetOrder {}).await?))
}

async fn follow(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    caller: Option<Caller>,
    headers: HeaderMap,
) -> Result<LiveEvents, Problem> {
    let role = desk.counter.role(caller.as_ref())?;
    desk.order(&id, &role).read(GetOrder {}).await?;
    let entity = Follow::Entity {
        kind: desk.engine.kind(Order::KIND).unwrap_or_default(),
        id,
        after: LiveEvents::last_seen(&headers).map_err(|why| *why)?.unwrap_or(0),
        at: None,
    };
    let show = |event: &EntityEvent| {
        let step = OrderStep {
            name: event.event.name.to_string(),
            payload: serde_json::from_slice(&event.event.payload).unwrap_or_default(),
        };
        ControlFlow::Continue(serde_json::to_string(&step).ok())
    };
    LiveEvents::follow(&desk.engine, entity, show).await
}

async fn customer(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    caller: Option<Caller>,
) -> Result<Json<CustomerView>, Problem> {
    match desk.counter.role(caller.as_ref())? {
        Role::Customer(own) if own != name => return Err(Problem::forbidden("That is another customer.")),
        _ => {}
    }
    match desk.engine.entity::<Customer>(name).read(GetCustomer {}).await {
        // The customer has ordered nothing yet.
        Err(Error::Unknown { .. }) => Ok(Json(CustomerView {
            limit: TICKETS_MAX,
            ..CustomerView::default()
        })),
        found => Ok(Json(found?)),
    }
}

/// Streams a zone's free seats at each change. It reveals no orders.
async fn seats(
    State(desk): State<Desk>,
    Path(concert): Path<String>,
    headers: HeaderMap,
) -> Result<LiveEvents, Problem> {
    let seen = LiveEvents::last_seen(&headers).map_err(|why| *why)?;
    let now = desk
        .engine
        .entity::<Concert>(concert.as_str())
        .read(GetConcert {})
        .await?;
    let entity = Follow::Entity {
        kind: desk.engine.kind(Concert::KIND).unwrap_or_default(),
        id: concert,
        after: seen.unwrap_or(now.as_of),
        at: None,
    };
    let show = |event: &EntityEvent| {
        let free = match &*event.event.name {
            "seats_held" | "released" => serde_json::from_slice::<FreeSeats>(&event.event.payload).ok(),
            _ => None,
        };
        ControlFlow::Continue(free.and_then(|free| serde_json::to_string(&free).ok()))
    };
    LiveEvents::follow(&desk.engine, entity, show).await
}

async fn best(State(desk): State<Desk>, Query(asked): Query<Page>) -> Result<Json<BestSellersPage>, Problem> {
    Ok(Json(best_sellers::page(&desk.engine, asked).await?))
}
