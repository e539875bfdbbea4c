use super::*;
use proptest::prelude::*;
use throng::{Subject, model::Timestamp};

fn acted(action: ActionKind, item: u32, at_s: i64) -> UserEvent {
    let category = Catalogue::get().category(item);
    UserEvent::Acted {
        action,
        item,
        category,
        at_s,
    }
}

fn act(action: ActionKind, item: u32) -> Act {
    Act { action, item }
}

#[test]
fn each_action_of_a_command_is_an_event_with_category_and_time() {
    let mut user = Subject::<User>::given("anna", []);
    user.now = Timestamp { micros: 5_999_999 };
    let actions = vec![act(ActionKind::View, 7), act(ActionKind::Buy, 8)];
    let done = user.when(UserCommand::Act { actions }).unwrap();
    assert_eq!(
        done.effects.events,
        [acted(ActionKind::View, 7, 5), acted(ActionKind::Buy, 8, 5)]
    );
    assert_eq!(done.reply, Some(UserReply { actions: 2 }));
}

#[test]
fn a_list_with_one_action_that_cannot_be_changes_nothing() {
    let mut user = Subject::<User>::given("anna", []);
    let beyond = ITEMS as u32;
    for (actions, rejection) in [
        (vec![], UserRejection::NoActions),
        (
            vec![act(ActionKind::View, 1); 101],
            UserRejection::TooManyActions { count: 101 },
        ),
        (
            vec![act(ActionKind::View, 1), act(ActionKind::View, beyond)],
            UserRejection::NoSuchItem { item: beyond },
        ),
    ] {
        let refused = user.when(UserCommand::Act { actions });
        assert!(
            matches!(refused, Err(throng::model::Error::Rejected(found)) if found == rejection),
            "{rejection}"
        );
        assert_eq!(user.state, User::default());
    }
    let most = vec![act(ActionKind::View, beyond - 1); ACTIONS_MAX];
    assert!(user.when(UserCommand::Act { actions: most }).is_ok());
}

#[test]
fn an_action_one_half_life_older_counts_half() {
    let (old, new) = (acted(ActionKind::Like, 0, 0), acted(ActionKind::Like, 1, HALF_LIFE_S));
    let user = Subject::<User>::given("anna", [old, new]).state;
    let weight = |item| {
        let category = Catalogue::get().category(item);
        user.summary().interests().find(|(of, _)| *of == category).unwrap().1
    };
    assert_ne!(Catalogue::get().category(0), Catalogue::get().category(1));
    assert_eq!((weight(0), weight(1)), (2.0, 4.0));
}

#[test]
fn a_summary_stays_small_however_much_was_done() {
    let items = ITEMS as u32;
    let events = (0..10 * items).map(|n| acted(ActionKind::Buy, n % items, i64::from(n)));
    let user = Subject::<User>::given("anna", events).state;
    assert_eq!(user.summary().recent().count(), RECENT_MAX);
    assert_eq!(user.summary().bought().count(), BOUGHT_MAX);
    assert!(user.heap_bytes() < 3 * 1024, "{}", user.heap_bytes());
}

proptest! {
    #[test]
    fn a_stored_summary_is_the_same_when_it_comes_back(
        actions in prop::collection::vec((0..3_u8, 0..ITEMS as u32, 0..1_000_000_i64), 0..300)
    ) {
        let kinds = [ActionKind::View, ActionKind::Like, ActionKind::Buy];
        let events = actions.into_iter().map(|(kind, item, at_s)| acted(kinds[usize::from(kind)], item, at_s));
        let user = Subject::<User>::given("anna", events).state;
        let stored = serde_json::to_vec(&user).unwrap();
        let back: User = serde_json::from_slice(&stored).unwrap();
        prop_assert_eq!(&back, &user);
    }
}
