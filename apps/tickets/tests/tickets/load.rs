//! A test of the load plan in a small size, against the real service: every request fits the plan.

use crate::service::Service;
use std::path::Path;
use throng_load::{Options, Target, plan::Plan};
use tickets::access::Counter;

#[test]
fn load_plan_holds_pays_confirms_and_lets_holds_expire() {
    let service = Service::start(Counter::Open);
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("load.toml");
    let mut plan = Plan::open(&plan.display().to_string()).unwrap();
    for (name, value) in [("concerts", 2.0), ("rate", 20.0), ("seconds", 1.0), ("hold", 1.0)] {
        plan.set(name, value).unwrap();
    }
    let target = Target::resolve(&format!("http://{}", service.address()), false).unwrap();
    let report = plan.run(Options::new(target), Some(16), 1, |_| {}).unwrap();
    let successes = |class: &str| {
        let class = report.classes.iter().find(|one| one.name == class);
        class.unwrap_or_else(|| panic!("no class {class:?}")).counters.successes
    };
    assert_eq!((successes("buy/hold"), successes("buy/confirmed")), (18, 18));
    assert_eq!((successes("abandon/hold-short"), successes("abandon/expired")), (2, 2));
    let zones = |concert: &str| service.get("", &format!("/api/concert/{concert}")).1["zones"][0].clone();
    let sold = ["load-1", "load-2"].map(|concert| zones(concert)["sold"].as_u64().unwrap());
    assert_eq!(sold.iter().sum::<u64>(), 18);
}
