//! Loops on separate threads, stepped by the test: which loop commits, and which takes over when that one is busy or gone.

use crate::stepped::{Step, World};

#[test]
fn leadership_alternates_between_two_busy_loops() {
    let world = World::new();
    let loops = [world.new_loop("a"), world.new_loop("b")];
    loops.iter().for_each(|own| own.run(Step::poll_committer));
    loops[0].run(|own| own.hit("0"));
    for round in 1..=6 {
        let (leads, stages) = (&loops[(round + 1) % 2], &loops[round % 2]);
        let asks = stages.clone();
        world.journal.during_the_next_append(move || {
            asks.run(move |own| {
                own.hit(&round.to_string());
                own.poll_committer();
            });
        });
        let woken = stages.woken();
        leads.run(Step::poll_committer);
        assert_eq!(world.journal.leaders().len(), round, "one commit a lead");
        assert!(stages.woken() > woken, "leadership is handed over");
    }
    assert_eq!(world.journal.leaders(), ["a", "b", "a", "b", "a", "b"]);
    loops[0].run(Step::poll_committer);
    loops.iter().for_each(|own| own.run(Step::check_that_all_are_answered));
}

#[test]
fn a_busy_loop_does_not_hold_up_the_commits_of_others() {
    let world = World::new();
    let (busy, other) = (world.new_loop("busy"), world.new_loop("other"));
    busy.run(Step::poll_committer);
    other.run(Step::poll_committer);
    other.run(|own| own.hit("first"));
    let asks = busy.clone();
    world.journal.during_the_next_append(move || {
        asks.run(|own| {
            own.hit("second");
            own.poll_committer();
        });
    });
    other.run(Step::poll_committer);
    // From here on `busy` never polls its committer.
    for more in ["third", "fourth"] {
        other.run(|own| own.hit(more));
        other.run(Step::poll_woken_committer);
    }
    assert_eq!(world.journal.leaders(), ["other"; 3]);
    other.run(Step::check_that_all_are_answered);
    busy.run(Step::check_that_all_are_answered);
}

#[test]
fn staged_records_are_committed_when_their_loop_ends() {
    let world = World::new();
    world.run_woken_tasks();
    let ends = world.new_loop("ends");
    ends.run(Step::poll_committer);
    ends.run(|own| own.hit("staged"));
    world.run_woken_tasks();
    assert_eq!(world.journal.leaders().len(), 0, "it is this loop's to commit");
    ends.run(Step::end);
    world.run_woken_tasks();
    assert_eq!(world.journal.leaders().len(), 1);
    ends.run(Step::check_that_all_are_answered);
}

#[test]
fn a_loop_that_ends_before_its_turn_to_lead_still_commits() {
    let world = World::new();
    world.run_woken_tasks();
    let (leads, ends) = (world.new_loop("leads"), world.new_loop("ends"));
    leads.run(Step::poll_committer);
    ends.run(Step::poll_committer);
    leads.run(|own| own.hit("first"));
    let asks = ends.clone();
    world.journal.during_the_next_append(move || {
        asks.run(|own| {
            own.hit("second");
            own.poll_committer();
            own.end();
        });
    });
    leads.run(Step::poll_committer);
    leads.run(Step::poll_woken_committer);
    world.run_woken_tasks();
    assert_eq!(world.journal.leaders().len(), 2);
    ends.run(Step::check_that_all_are_answered);
}
