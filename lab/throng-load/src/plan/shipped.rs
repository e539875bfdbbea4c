//! The plans in the program, which can be run by name.

const PLANS: [(&str, &str); 9] = [
    ("primes", include_str!("../../plans/primes.toml")),
    ("registration", include_str!("../../plans/registration.toml")),
    ("shows-concurrent", include_str!("../../plans/shows-concurrent.toml")),
    ("shows-hot", include_str!("../../plans/shows-hot.toml")),
    ("shows-serial", include_str!("../../plans/shows-serial.toml")),
    ("skiers", include_str!("../../plans/skiers.toml")),
    ("skiers-read", include_str!("../../plans/skiers-read.toml")),
    ("transfers", include_str!("../../plans/transfers.toml")),
    ("constant", include_str!("../../plans/constant.toml")),
];

const DATA: [(&str, &str); 1] = [(
    "registration-sections.csv",
    include_str!("../../plans/registration-sections.csv"),
)];

/// Returns the text of the shipped plan with this name.
pub fn text(name: &str) -> Option<&'static str> {
    PLANS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the text of a CSV file of the shipped plans.
pub fn data(name: &str) -> Option<&'static str> {
    DATA.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the names of all shipped plans.
pub fn names() -> Vec<&'static str> {
    PLANS.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use crate::Target;
    use crate::plan::Plan;

    fn expected(name: &str, variables: &[(&str, f64)]) -> Option<u64> {
        let target = Target::resolve("http://127.0.0.1:9", false).unwrap();
        let mut plan = Plan::open(name).unwrap();
        for (variable, value) in variables {
            plan.set(variable, *value).unwrap();
        }
        plan.requests_expected(&target).unwrap()
    }

    #[test]
    fn every_shipped_plan_can_be_read() {
        let target = Target::resolve("http://127.0.0.1:9", false).unwrap();
        for name in super::names() {
            let plan = Plan::open(name).unwrap();
            if plan.head_to_head().is_none() {
                plan.requests_expected(&target).unwrap();
            }
            assert!(!plan.description().is_empty(), "{name} says what it is for");
        }
    }

    #[test]
    fn the_skier_client_makes_exactly_the_requests_of_the_original() {
        for (threads, requests) in [
            (32, 160_003),
            (64, 159_814),
            (128, 159_820),
            (256, 159_769),
            (512, 159_795),
        ] {
            assert_eq!(expected("skiers", &[("threads", f64::from(threads))]), Some(requests));
        }
    }

    #[test]
    fn registration_makes_the_published_requests_at_any_pace() {
        for pace in [1.0, 60.0, 7.0] {
            assert_eq!(
                expected("registration", &[("pace", pace)]),
                Some(5_393 + 44_504),
                "{pace}"
            );
        }
        assert_eq!(expected("registration", &[("sections", 0.0)]), Some(44_504));
        assert_eq!(
            super::data("registration-sections.csv").unwrap().lines().count(),
            1 + 5_393
        );
    }

    #[test]
    fn transfers_open_and_fund_each_account_once() {
        let opening = [("accounts", 1_000.0), ("transferring", 0.0)];
        assert_eq!(expected("transfers", &opening), Some(2_000));
        assert_eq!(expected("transfers", &[]), None, "time decides");
    }

    #[test]
    fn a_serial_user_makes_one_show_and_reserves_every_seat() {
        let ramp_and_plateau = 1.0 * 15.0 + 9.0 * 15.0 / 2.0 + 10.0 * 300.0;
        let requests = expected("shows-serial", &[]).unwrap();
        assert_eq!(requests % 51, 0);
        assert!((requests as f64 / 51.0 - ramp_and_plateau).abs() <= 1.0, "{requests}");
    }
}
