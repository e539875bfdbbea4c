//! UmaDB over gRPC: the load generator's HTTP/2, with a transfer as one conditional append.

use anyhow::{Context as _, ensure};
use servers::{Stop, Umadb};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};
use throng_load::{Next, Options, Outcome, Shot, Source, Target, Verdict, run};

use super::{
    CENTS, Clients, Contender, HeldLoad, Load,
    appends::{Appends, PairAppends, begin, event, position, query},
    losses::{CLIENTS, PairSource, Tally},
    protobuf::{Value, fields, frame, frames},
};

pub(super) const NAME: &str = "UmaDB";
/// The number of accounts that one append opens.
const OPENED_AT_ONCE: u32 = 1_000;

pub(super) struct Events {
    server: Umadb,
    /// The position of the last event of each account.
    known: Vec<u64>,
    transfers: u64,
}

impl Events {
    pub(super) fn start(place: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            server: Umadb::start(Some(place))?,
            known: Vec::new(),
            transfers: 0,
        })
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.server.port()))
    }

    fn options(&self, connections: usize, streams: usize) -> anyhow::Result<Options> {
        let mut options = Options::new(Target::resolve(&format!("http://{}", self.address()), false)?);
        options.connections = connections;
        options.http2 = Some(streams);
        Ok(options)
    }

    /// Makes one request and returns the body of the answer.
    fn ask(&self, method: &str, message: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut request = Vec::new();
        begin(&mut request, self.address(), method);
        frame(&mut request, message);
        let once = Once {
            request,
            is_sent: false,
            told: Err(anyhow::anyhow!("it was not asked")),
        };
        let finished = run(&self.options(1, 1)?, vec![once])?;
        let once = finished.sources.into_iter().next().context("the source comes back")?;
        once.told.with_context(|| format!("UmaDB's {method}"))
    }

    fn head(&self) -> anyhow::Result<u64> {
        Ok(position(&self.ask("Head", &[])?).unwrap_or(0))
    }
}

/// A load of one request that keeps the body of its answer.
struct Once {
    request: Vec<u8>,
    is_sent: bool,
    told: anyhow::Result<Vec<u8>>,
}

impl Source for Once {
    fn next(&mut self, _: u64) -> Next<'_> {
        match std::mem::replace(&mut self.is_sent, true) {
            true => Next::Done,
            false => Next::Send(Shot::new(&self.request, 0)),
        }
    }

    fn answered(&mut self, _: u64, outcome: &Outcome<'_>) -> Verdict {
        self.told = match &outcome.result {
            Ok(answer) if matches!(answer.header("grpc-status"), None | Some("0")) => Ok(answer.body.to_vec()),
            Ok(answer) => Err(anyhow::anyhow!("{}", String::from_utf8_lossy(answer.head).trim())),
            Err(error) => Err(anyhow::anyhow!("{error:?}")),
        };
        Verdict::ByStatus
    }
}

impl Contender for Events {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&mut self, accounts: u32) -> anyhow::Result<()> {
        for first in (1..=accounts).step_by(OPENED_AT_ONCE as usize) {
            let mut message = Vec::new();
            for account in first..(first + OPENED_AT_ONCE).min(accounts + 1) {
                event(&mut message, "opened", &[account], &format!(r#"{{"cents":{CENTS}}}"#));
            }
            self.ask("Append", &message)?;
        }
        self.known = vec![self.head()?; accounts as usize];
        Ok(())
    }

    fn hold(&mut self, load: &Load) -> anyhow::Result<HeldLoad> {
        let mut options = self.options(load.connections, load.in_flight)?;
        options.duration = Some(load.hold);
        let appends = Appends::new(self.address(), load.exponent, std::mem::take(&mut self.known));
        let finished = run(&options, vec![appends])?;
        let source = finished.sources.into_iter().next().context("the source comes back")?;
        let counters = &finished.report.counters;
        ensure!(
            counters.failures == 0,
            "appends failed: {:?}, {:?}",
            counters.statuses,
            counters.errors
        );
        self.transfers += counters.successes;
        self.known = source.known;
        Ok(HeldLoad {
            transfers: counters.successes,
            seconds: finished.report.elapsed_nanos as f64 / 1e9,
            settled_s: 0.0,
            conflicts: counters.retried,
        })
    }

    fn check(&mut self, accounts: u32) -> anyhow::Result<()> {
        let (head, expected) = (self.head()?, u64::from(accounts) + self.transfers);
        ensure!(head == expected, "it holds {head} events instead of {expected}");
        Ok(())
    }

    fn processes(&self) -> Vec<u32> {
        self.server.process_id().into_iter().collect()
    }

    fn clients(&mut self, tally: Arc<Tally>) -> anyhow::Result<Clients> {
        let requests = PairAppends {
            address: self.address(),
            known: [self.head()?; CLIENTS as usize],
        };
        let options = self.options(CLIENTS as usize, 1)?;
        Ok(Box::new(move || {
            run(&options, vec![PairSource::new(requests, tally)])?;
            Ok(())
        }))
    }

    fn wait_for_end(&mut self) -> anyhow::Result<()> {
        self.server.stop(Stop::Immediate);
        Ok(())
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        Ok(self.server.resume()?)
    }

    fn moved(&mut self, from: u32, to: u32) -> anyhow::Result<[u64; 2]> {
        let mut counts = [0; 2];
        for (count, account) in counts.iter_mut().zip([from, to]) {
            let mut message = Vec::new();
            query(&mut message, 1, account);
            let body = self.ask("Read", &message)?;
            let events = frames(&body).flat_map(fields);
            *count = events.filter(|field| matches!(field, (1, Value::Bytes(_)))).count() as u64;
        }
        Ok(counts)
    }
}
