//! A test of the read model of free seats: it always agrees with the shows.

use crate::service::Service;
use proptest::prelude::*;
use serde_json::{Value, json};
use shows::{
    available::{AvailablePage, AvailableShows, PAGE_MAX, page},
    show::{GetShow, SeatStatus, Show, ShowCommand, ShowId},
};
use std::{collections::BTreeMap, sync::Arc};
use throng::{
    Engine, Options,
    journal::{MemoryJournal, MemoryStore, MemoryViews},
};

fn id(number: u8) -> ShowId {
    format!("0b31ab76-c5a3-4d3c-9f3f-6f6ad9a5a3{number:02x}")
        .parse()
        .unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

struct World {
    journal: MemoryJournal,
    store: MemoryStore,
    views: MemoryViews,
}

impl World {
    fn new() -> Self {
        let journal = MemoryJournal::new();
        Self {
            store: MemoryStore::new(journal.clone()),
            journal,
            views: MemoryViews::new(),
        }
    }

    async fn start(&self) -> Engine {
        shows::kinds(Engine::builder())
            .views(Arc::new(self.views.clone()))
            .options(Options::default())
            .start_shared(Arc::new(self.journal.clone()), Arc::new(self.store.clone()))
            .await
            .unwrap()
    }
}

/// Reads the free seats from the shows.
async fn of_shows(engine: &Engine) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for number in 0..=u8::MAX {
        let Ok(view) = engine.entity::<Show>(id(number)).read(GetShow {}).await else {
            continue;
        };
        let free = view
            .seats
            .iter()
            .filter(|seat| seat.status == SeatStatus::Available)
            .count();
        if free > 0 {
            found.insert(view.id, u32::try_from(free).unwrap());
        }
    }
    found
}

/// Reads the free seats from the read model, page by page.
async fn of_view(engine: &Engine, limit: usize) -> BTreeMap<String, u32> {
    assert!(
        engine.read_model::<AvailableShows>().caught_up().await,
        "{:?}",
        engine.projections()
    );
    let (mut found, mut after) = (BTreeMap::new(), None);
    loop {
        let AvailablePage { shows, after: next } = page(engine, after, limit).await.unwrap();
        assert!(shows.len() <= limit);
        found.extend(shows.into_iter().map(|show| (show.show_id, show.available_seats)));
        match next {
            None => return found,
            Some(next) => after = Some(next.parse().unwrap()),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u8, ShowCommand),
    /// Kills the engine at once, and starts the next one from the journal.
    Kill,
    Stop,
    /// Waits for the read model.
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    let show = 0..6_u8;
    let seat = -1..5_i32;
    prop_oneof![
        4 => (show.clone(), 0..5_u32).prop_map(|(show, max_seats)| {
            Step::Ask(show, ShowCommand::CreateShow { title: "Hamlet".into(), max_seats })
        }),
        10 => (show.clone(), seat.clone()).prop_map(|(show, seat)| Step::Ask(show, ShowCommand::ReserveSeat { seat })),
        8 => (show, seat).prop_map(|(show, seat)| Step::Ask(show, ShowCommand::CancelSeatReservation { seat })),
        1 => Just(Step::Kill),
        1 => Just(Step::Stop),
        1 => Just(Step::Look),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn the_list_equals_the_shows_after_restarts_and_a_rebuild(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        runtime().block_on(async {
            let world = World::new();
            let mut engine = world.start().await;
            for step in steps {
                match step {
                    Step::Ask(show, command) => {
                        // A refusal changes nothing, neither in the engine nor in the model.
                        let _ = engine.entity::<Show>(id(show)).ask(command).await;
                    }
                    Step::Kill => {
                        drop(engine);
                        engine = world.start().await;
                    }
                    Step::Stop => {
                        engine.stop().await;
                        engine = world.start().await;
                    }
                    Step::Look => assert_eq!(of_view(&engine, 2).await, of_shows(&engine).await),
                }
            }
            let expected = of_shows(&engine).await;
            assert_eq!(of_view(&engine, 1).await, expected);
            assert!(engine.rebuild_projection("available-shows"));
            assert_eq!(of_view(&engine, PAGE_MAX).await, expected, "a rebuild comes to the same");
            engine.stop().await;
        });
    }
}

#[test]
fn a_show_is_listed_while_it_has_seats_left() {
    let service = Service::start();
    let ids = [id(1).to_string(), id(2).to_string(), id(3).to_string()];
    for (id, seats) in ids.iter().zip([1, 2, 0]) {
        let body = json!({ "showId": id, "title": "Hamlet", "maxSeats": seats });
        assert_eq!(service.post("/shows", &body.to_string()).0, 201);
    }
    let listed = |query: &str| -> Value {
        service.caught_up();
        let (status, body) = service.get(&format!("/shows?available=true{query}"));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let row = |show: usize, seats: u32| json!({ "showId": ids[show], "availableSeats": seats });
    assert_eq!(listed(""), json!({ "shows": [row(0, 1), row(1, 2)], "after": null }));
    assert_eq!(listed("&limit=1"), json!({ "shows": [row(0, 1)], "after": ids[0] }));
    assert_eq!(
        listed(&format!("&limit=1&after={}", ids[0])),
        json!({ "shows": [row(1, 2)], "after": null })
    );
    service.change(&ids[0], 0, "RESERVE");
    service.change(&ids[1], 1, "RESERVE");
    assert_eq!(listed(""), json!({ "shows": [row(1, 1)], "after": null }));
    service.change(&ids[0], 0, "CANCEL_RESERVATION");
    assert_eq!(
        listed(""),
        json!({ "shows": [row(0, 1), row(1, 1)], "after": null }),
        "a cancellation adds one"
    );
    let (_, metrics) = service.get("/metrics");
    assert!(
        metrics.contains("throng_projection_lag_commits{projection=\"available-shows\"} 0"),
        "{metrics}"
    );
}

#[test]
fn an_invalid_listing_is_400() {
    let service = Service::start();
    for query in [
        "",
        "?available=false",
        "?available=yes",
        "?available=true&limit=-1",
        "?available=true&after=7",
    ] {
        let (status, body) = service.get(&format!("/shows{query}"));
        assert!(
            status == 400 && body.contains("/problems/malformed"),
            "{query}: {status} {body}"
        );
    }
}
