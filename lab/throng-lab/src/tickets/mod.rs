//! Tickets on sale. Customers hold seats, pay at a provider outside and get a confirmation, and then order again. Some orders are never paid. In the
//! end the seats, the orders and the provider's ledger have to agree. Customers between two steps at the end of the sale leave a hold of ten minutes.
//! Their orders can still be paid then.

mod books;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use std::{
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};
use throng_load::{Options, Report, Target, plan::Plan, report::Summary};

use super::{Common, service::Launch, shows::cpu_of_process, table::Table, units};
use books::Books;

/// The app's own plan, which has the requests. The customers are replaced.
const PLAN: &str = include_str!("../../../../apps/tickets/load.toml");
/// The phases of the plan. `TIME` stands for the time in which customers order.
const PHASES: &str = r#"
[[phase]]
name = "announce"
users = 1
repeat = "concerts"
steps = ["announce", "announce-short"]

[[phase]]
name = "buy"
start = { after = "announce", done = 1.0 }
users = "customers"
for = "TIME"
steps = ["hold", "pay", "confirmed"]

[[phase]]
name = "abandon"
start = { after = "announce", done = 1.0 }
arrivals = [{ rate = "abandoned", for = "seconds" }]
steps = ["hold-short", "expired"]
"#;
/// The seconds after which an unpaid hold ends.
const HOLD: f64 = 2.0;
/// The longest wait for the ledger to agree after the sale.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// The pause between two checks.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

/// The measurement of the sale.
#[derive(Debug, Args)]
pub(super) struct TicketsArguments {
    #[command(flatten)]
    common: Common,
    /// The longest delays of the provider in milliseconds; the average is half of it. Each is measured by itself.
    #[arg(long, value_delimiter = ',', default_value = "0,100")]
    slow_ms: Vec<u64>,
    /// Concerts on sale. Each is measured by itself.
    #[arg(long, value_delimiter = ',', default_value = "1,20")]
    concerts: Vec<u32>,
    /// Customers who order, pay, wait for the seats, and order again.
    #[arg(long, default_value_t = 256)]
    customers: u32,
    /// Orders a second that are never paid.
    #[arg(long, default_value_t = 100)]
    abandoned: u32,
    /// The time in which customers order.
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = units::duration)]
    time: Duration,
}

/// The figures of one run.
#[derive(Debug, Serialize)]
struct Line {
    concerts: u32,
    provider_ms: f64,
    /// Orders that were held, paid and confirmed.
    confirmed: u64,
    confirmed_per_s: f64,
    /// Orders that were held and never paid.
    expired: u64,
    hold_p50_ms: f64,
    hold_p99_ms: f64,
    /// The CPU time of the service for an order: its whole time divided by the number of all orders.
    server_cpu_us: f64,
    /// The number of errors: seats of two orders, seats held too long, confirmed orders that were not paid exactly once, and payments without an
    /// order.
    wrong: u64,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &TicketsArguments) -> anyhow::Result<ExitCode> {
    let mut lines = Vec::new();
    for slow_ms in &arguments.slow_ms {
        for concerts in &arguments.concerts {
            lines.push(measure(arguments, *slow_ms, *concerts)?);
        }
    }
    arguments.common.print(&lines, || text(&lines));
    let wrong = lines.iter().any(|line| line.wrong > 0);
    Ok(ExitCode::from(u8::from(wrong)))
}

fn measure(arguments: &TicketsArguments, slow_ms: u64, concerts: u32) -> anyhow::Result<Line> {
    let scratch = arguments.common.scratch()?;
    let ledger = scratch.0.join("ledger");
    let service = launch(&scratch.0, &ledger, slow_ms).start()?;
    let cpu = || cpu_of_process(&service.id().to_string()).unwrap_or_default();
    let before = cpu();
    let report = sell(arguments, concerts, service.address)?;
    let cpu = cpu() - before;
    let class = |name: &str| report.classes.iter().find(|class| class.name == name);
    let successes = |name: &str| class(name).map_or(0, |class| class.counters.successes);
    let (confirmed, expired) = (successes("buy/confirmed"), successes("abandon/expired"));
    ensure!(confirmed > 0, "no order was confirmed, so there is nothing to measure");
    let hold = class("buy/hold")
        .map(|class| Summary::of(&class.response))
        .unwrap_or_default();
    let wrong = settled(service.address, &ledger)?;
    for wrong in &wrong {
        eprintln!("wrong: {wrong}");
    }
    service.end()?;
    Ok(Line {
        concerts,
        provider_ms: slow_ms as f64 / 2.0,
        confirmed,
        confirmed_per_s: confirmed as f64 / arguments.time.as_secs_f64(),
        expired,
        hold_p50_ms: units::milliseconds(hold.p50),
        hold_p99_ms: units::milliseconds(hold.p99),
        server_cpu_us: cpu * 1e6 / (confirmed + expired) as f64,
        wrong: wrong.len() as u64,
    })
}

/// Waits for payments and messages in flight, and returns the errors that remain.
fn settled(address: SocketAddr, ledger: &Path) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    loop {
        let wrong = Books::read(address, ledger)?.wrong();
        if wrong.is_empty() || begun.elapsed() > SETTLE_MAX {
            return Ok(wrong);
        }
        std::thread::sleep(SETTLE_PAUSE);
    }
}

/// Returns the launch of the app with a provider whose only fault is that it is slow.
fn launch(data: &Path, ledger: &Path, slow_ms: u64) -> Launch {
    let provider = serde_json::json!({ "slow_ms": slow_ms, "lost": 0, "mute": 0, "twice": 0, "ledger": ledger });
    Launch {
        app: "tickets",
        place: format!("file:{}", data.join("journal").display()),
        arguments: ["--role", "trial"].map(String::from).into(),
        environment: vec![("TICKETS_PROVIDER".into(), provider.to_string())],
        log: data.join("log"),
        within: None,
    }
}

fn sell(arguments: &TicketsArguments, concerts: u32, address: SocketAddr) -> anyhow::Result<Report> {
    let requests = PLAN.split_once("[[phase]]").map_or(PLAN, |(requests, _)| requests);
    let variables = "[variables]\ncustomers = 1\nabandoned = 1\n";
    let text = requests.replacen("[variables]\n", variables, 1);
    let time = format!("{}ms", arguments.time.as_millis());
    let text = text + &PHASES.replace("TIME", &time);
    let mut plan = Plan::parse(&text, "tickets", None)?;
    for (name, value) in [
        ("concerts", f64::from(concerts)),
        ("customers", f64::from(arguments.customers)),
        ("abandoned", f64::from(arguments.abandoned)),
        ("seconds", arguments.time.as_secs_f64()),
        ("hold", HOLD),
    ] {
        plan.set(name, value)?;
    }
    let options = Options::new(Target::resolve(&format!("http://{address}"), false)?);
    Ok(plan.run(options, None, 1, |_| {})?)
}

fn text(lines: &[Line]) -> String {
    let mut table = Table::new([
        "concerts",
        "provider ms",
        "confirmed",
        "confirmed/s",
        "expired",
        "hold p50 ms",
        "hold p99 ms",
        "server µs",
        "wrong",
    ]);
    for line in lines {
        table.row([
            line.concerts.to_string(),
            format!("{:.0}", line.provider_ms),
            units::count(line.confirmed),
            units::count(line.confirmed_per_s as u64),
            units::count(line.expired),
            format!("{:.2}", line.hold_p50_ms),
            format!("{:.2}", line.hold_p99_ms),
            format!("{:.0}", line.server_cpu_us),
            line.wrong.to_string(),
        ]);
    }
    table.text()
}
