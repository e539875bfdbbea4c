//! The bank, as `bank serve` starts it, under the shipped plan `transfers`. A transfer is answered when the sender's commit is durable.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use throng_load::{Options, Outcome, Report, Target, plan::Plan, run};

use super::{
    CENTS, Clients, Contender, HeldLoad, Load,
    losses::{CLIENTS, PairRequests, PairSource, Tally, accounts_of},
};
use crate::{
    http_client::{self, ANSWER_WAIT, Connection, get, metric, metrics, post},
    service::{Launch, Service},
};

pub(super) const NAME: &str = "Throng's bank";
/// The messages of a transfer: the money to the receiver, and the outcome back.
const MESSAGES: f64 = 2.0;
/// The longest time for messages to be delivered.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Bank {
    launch: Launch,
    service: Option<Service>,
    /// The listener of its metrics.
    admin: SocketAddr,
}

impl Bank {
    pub(super) fn start(place: &Path) -> anyhow::Result<Self> {
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, servers::free_port()?));
        let launch = Launch {
            app: "bank",
            place: format!("file:{}", place.join("bank").display()),
            arguments: vec!["--admin-listen".into(), admin.to_string()],
            environment: Vec::new(),
            log: place.join("bank.log"),
            within: None,
        };
        let service = Some(launch.start()?);
        Ok(Self { launch, service, admin })
    }

    fn service(&self) -> anyhow::Result<&Service> {
        self.service.as_ref().context("the bank runs")
    }

    fn target(&self) -> anyhow::Result<Target> {
        Ok(Target::resolve(&format!("http://{}", self.service()?.address), false)?)
    }

    fn connect(&self) -> anyhow::Result<Connection> {
        Ok(Connection::open(self.service()?.address, ANSWER_WAIT)?)
    }

    /// Runs the plan. All requests must succeed.
    fn run_plan(&self, variables: &[(&str, f64)], hold: Option<Duration>) -> anyhow::Result<Report> {
        let mut plan = Plan::open("transfers")?;
        for (name, value) in variables {
            plan.set(name, *value)?;
        }
        let mut options = Options::new(self.target()?);
        options.duration = hold;
        options.pipeline = plan.pipeline()?;
        let report = plan.run(options, None, 1, |_| {})?;
        let counters = &report.counters;
        ensure!(
            counters.failures == 0,
            "requests failed: {:?}, {:?}",
            counters.statuses,
            counters.errors
        );
        Ok(report)
    }

    fn messages(&self) -> anyhow::Result<f64> {
        let mut connection = Connection::open(self.admin, ANSWER_WAIT)?;
        Ok(metric(&metrics(&mut connection)?, "throng_messages_total"))
    }

    fn account(connection: &mut Connection, account: u32) -> anyhow::Result<Value> {
        let text = http_client::told(connection, &get(&format!("/api/account/{account}")))?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn cents(balance: &Value) -> anyhow::Result<u64> {
    balance["cents"].as_u64().context("a balance has cents")
}

fn is_settled(balance: &Value) -> bool {
    balance["on_the_way"].as_object().is_some_and(serde_json::Map::is_empty)
}

impl Contender for Bank {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&mut self, accounts: u32) -> anyhow::Result<()> {
        let variables = [
            ("accounts", f64::from(accounts)),
            ("cents", CENTS as f64),
            ("transferring", 0.0),
        ];
        self.run_plan(&variables, None).map(drop)
    }

    fn hold(&mut self, load: &Load) -> anyhow::Result<HeldLoad> {
        let before = self.messages()?;
        let variables = [
            ("accounts", f64::from(load.accounts)),
            ("exponent", load.exponent),
            ("connections", load.connections as f64),
            ("in_flight", load.in_flight as f64),
            ("opening", 0.0),
        ];
        let report = self.run_plan(&variables, Some(load.hold))?;
        let answered = Instant::now();
        let transfers = report.counters.successes;
        let wanted = before + MESSAGES * transfers as f64;
        while self.messages()? < wanted {
            ensure!(answered.elapsed() < PATIENCE, "messages are not delivered");
            thread::sleep(PAUSE);
        }
        let settled_s = answered.elapsed().as_secs_f64();
        Ok(HeldLoad {
            transfers,
            seconds: report.elapsed_nanos as f64 / 1e9 + settled_s,
            settled_s,
            conflicts: 0,
        })
    }

    fn check(&mut self, accounts: u32) -> anyhow::Result<()> {
        let mut connection = self.connect()?;
        let mut sum = 0;
        for account in 1..=accounts {
            let balance = Self::account(&mut connection, account)?;
            ensure!(is_settled(&balance), "account {account} is not settled: {balance}");
            sum += cents(&balance)?;
        }
        let expected = u64::from(accounts) * CENTS;
        ensure!(sum == expected, "it holds {sum} cents instead of {expected}");
        Ok(())
    }

    fn processes(&self) -> Vec<u32> {
        self.service.iter().map(Service::id).collect()
    }

    fn clients(&mut self, tally: Arc<Tally>) -> anyhow::Result<Clients> {
        let mut options = Options::new(self.target()?);
        options.connections = CLIENTS as usize;
        Ok(Box::new(move || {
            run(&options, vec![PairSource::new(PairTransfers, tally)])?;
            Ok(())
        }))
    }

    fn wait_for_end(&mut self) -> anyhow::Result<()> {
        self.service.take().context("the bank runs")?.kill();
        Ok(())
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        self.service = Some(self.launch.start()?);
        Ok(())
    }

    fn moved(&mut self, from: u32, to: u32) -> anyhow::Result<[u64; 2]> {
        let mut connection = self.connect()?;
        let begun = Instant::now();
        let sender = loop {
            let balance = Self::account(&mut connection, from)?;
            if is_settled(&balance) {
                break balance;
            }
            ensure!(begun.elapsed() < PATIENCE, "account {from} is not settled: {balance}");
            thread::sleep(PAUSE);
        };
        let receiver = Self::account(&mut connection, to)?;
        Ok([
            CENTS.saturating_sub(cents(&sender)?),
            cents(&receiver)?.saturating_sub(CENTS),
        ])
    }
}

/// Transfers of clients that have two accounts each.
struct PairTransfers;

impl PairRequests for PairTransfers {
    fn write(&mut self, client: u32, bytes: &mut Vec<u8>) {
        let (from, to) = accounts_of(client);
        let body = format!(r#"{{"to":"{to}","cents":1}}"#);
        bytes.extend_from_slice(&post(&format!("/api/account/{from}/transfer"), None, &body));
    }

    fn is_acknowledged(&mut self, _: u32, outcome: &Outcome<'_>) -> bool {
        outcome.status() == 200
    }
}
