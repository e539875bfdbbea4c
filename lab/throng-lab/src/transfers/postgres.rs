//! A private PostgreSQL with a sync at each commit: a function that locks both accounts, called by `pgbench`.

use anyhow::{Context as _, ensure};
use servers::{Postgres, PostgresOptions, Stop};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_postgres::{Client, NoTls};

use super::{
    CENTS, Clients, Contender, HeldLoad, Load,
    losses::{CLIENTS, Tally, accounts_of},
};
pub(super) const NAME: &str = "PostgreSQL function";

/// The accounts, and a transfer between two of them. It locks in the order of the ids, because otherwise two transfers could deadlock.
const SCHEMA: &str = "
CREATE TABLE accounts (id integer PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0)) WITH (fillfactor = 50);
CREATE FUNCTION transfer(sender integer, receiver integer, amount bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM accounts WHERE id IN (sender, receiver) ORDER BY id FOR UPDATE;
    UPDATE accounts SET cents = cents - amount WHERE id = sender;
    UPDATE accounts SET cents = cents + amount WHERE id = receiver;
END $$;";

pub(super) struct Database {
    server: Postgres,
    /// The file for pgbench's scripts.
    script: PathBuf,
}

impl Database {
    pub(super) fn start(place: &Path) -> anyhow::Result<Self> {
        let server = Postgres::start(PostgresOptions {
            directory: Some(place.to_owned()),
            ..PostgresOptions::default()
        })?;
        server.run("psql", &["-q", "-d", "postgres", "-c", SCHEMA])?;
        Ok(Self {
            server,
            script: place.join("transfers.sql"),
        })
    }

    /// Returns the result of a query, which is one number.
    fn number(&self, query: &str) -> anyhow::Result<u64> {
        let text = self.server.run("psql", &["-At", "-d", "postgres", "-c", query])?;
        let text = String::from_utf8(text)?;
        text.trim().parse().with_context(|| format!("{query} gave {text}"))
    }
}

/// Returns the script of a client: one transfer, or several in a pipeline, each in its own transaction.
fn script(load: &Load) -> String {
    let last = load.accounts;
    let draw = match load.exponent {
        0.0 => format!("random(1, {last})"),
        exponent => format!("random_zipfian(1, {last}, {exponent})"),
    };
    let mut text = String::new();
    let is_pipelined = load.in_flight > 1;
    if is_pipelined {
        text += "\\startpipeline\nBEGIN;\n";
    }
    for number in 1..=load.in_flight {
        let _ = writeln!(text, "\\set from {draw}\n\\set to {draw}");
        for _ in 0..3 {
            let _ = writeln!(text, "\\set to case when :to = :from then {draw} else :to end");
        }
        let _ = writeln!(
            text,
            "\\set to case when :to = :from then 1 + :to % {last} else :to end"
        );
        text += "SELECT transfer(:from, :to, 1);\n";
        if is_pipelined {
            let is_last = number == load.in_flight;
            text += if is_last { "COMMIT;\n" } else { "COMMIT AND CHAIN;\n" };
        }
    }
    if is_pipelined {
        text += "\\endpipeline\n";
    }
    text
}

/// Returns the number after these words in the output of pgbench.
fn told(text: &str, words: &str) -> anyhow::Result<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(words));
    let number = rest.and_then(|rest| rest.split_ascii_whitespace().next());
    let number = number.and_then(|number| number.split('/').next()?.parse().ok());
    number.with_context(|| format!("pgbench does not say {words:?}: {text}"))
}

impl Contender for Database {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&mut self, accounts: u32) -> anyhow::Result<()> {
        let fill = format!("INSERT INTO accounts SELECT id, {CENTS} FROM generate_series(1, {accounts}) AS id");
        let commands = ["-q", "-d", "postgres", "-c", &fill, "-c", "VACUUM ANALYZE accounts"];
        self.server.run("psql", &commands)?;
        Ok(())
    }

    fn hold(&mut self, load: &Load) -> anyhow::Result<HeldLoad> {
        fs::write(&self.script, script(load))?;
        let script = self.script.display().to_string();
        let (clients, seconds) = (load.connections.to_string(), load.hold.as_secs().max(1).to_string());
        let arguments = [
            "-n", "-M", "prepared", "-j", "1", "-c", &clients, "-T", &seconds, "-f", &script, "postgres",
        ];
        let said = String::from_utf8(self.server.run("pgbench", &arguments)?)?;
        ensure!(
            told(&said, "number of failed transactions: ")? == 0.0,
            "transfers failed: {said}"
        );
        let scripts = told(&said, "number of transactions actually processed: ")?;
        let rate = told(&said, "tps = ")?;
        Ok(HeldLoad {
            transfers: scripts as u64 * load.in_flight as u64,
            seconds: scripts / rate,
            settled_s: 0.0,
            conflicts: 0,
        })
    }

    fn check(&mut self, accounts: u32) -> anyhow::Result<()> {
        let (sum, expected) = (
            self.number("SELECT sum(cents) FROM accounts")?,
            u64::from(accounts) * CENTS,
        );
        ensure!(sum == expected, "it holds {sum} cents instead of {expected}");
        Ok(())
    }

    fn processes(&self) -> Vec<u32> {
        self.server.processes()
    }

    fn clients(&mut self, tally: Arc<Tally>) -> anyhow::Result<Clients> {
        let url = self.server.url("postgres");
        Ok(Box::new(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut transfers = Vec::new();
                for client in 0..CLIENTS {
                    let (connected, connection) = tokio_postgres::connect(&url, NoTls).await?;
                    tokio::spawn(connection);
                    transfers.push(transfer(connected, client, &tally));
                }
                futures_util::future::join_all(transfers).await;
                Ok(())
            })
        }))
    }

    fn wait_for_end(&mut self) -> anyhow::Result<()> {
        // All its processes are dead already. This waits for their end.
        self.server.stop(Stop::Immediate);
        Ok(())
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        Ok(self.server.resume()?)
    }

    fn moved(&mut self, from: u32, to: u32) -> anyhow::Result<[u64; 2]> {
        let left = self.number(&format!("SELECT {CENTS} - cents FROM accounts WHERE id = {from}"))?;
        let came = self.number(&format!("SELECT cents - {CENTS} FROM accounts WHERE id = {to}"))?;
        Ok([left, came])
    }
}

/// Moves cents until a transfer fails.
async fn transfer(connected: Client, client: u32, tally: &Tally) {
    let (from, to) = accounts_of(client);
    let call = format!("SELECT transfer({from}, {to}, 1)");
    loop {
        let is_acknowledged = connected.batch_execute(&call).await.is_ok();
        tally.count(client, is_acknowledged);
        if !is_acknowledged {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Load, script, told};
    use std::time::Duration;

    #[test]
    fn pipelined_transfers_are_transactions_of_their_own() {
        let load = Load {
            accounts: 9,
            exponent: 1.5,
            connections: 1,
            in_flight: 3,
            hold: Duration::from_secs(1),
        };
        let text = script(&load);
        assert_eq!(text.matches("SELECT transfer").count(), 3);
        assert_eq!(text.matches("COMMIT AND CHAIN").count(), 2);
        assert!(text.contains("random_zipfian(1, 9, 1.5)") && text.ends_with("COMMIT;\n\\endpipeline\n"));
        let alone = script(&Load {
            in_flight: 1,
            exponent: 0.0,
            ..load
        });
        assert!(!alone.contains("COMMIT") && alone.contains("random(1, 9)"));
    }

    #[test]
    fn figures_of_pgbench_are_read() {
        let said = "number of failed transactions: 0 (0.000%)\ntps = 1234.5 (without initial connection time)\n";
        assert_eq!(told(said, "tps = ").unwrap(), 1234.5);
        assert_eq!(told(said, "number of failed transactions: ").unwrap(), 0.0);
        assert!(told(said, "latency = ").is_err());
    }
}
