//! A source and a target over files of lines, as a user may write them for any other system.
//!
//! `lines IN OUT JOURNAL` hits the counter that each line of the file `IN` names, and writes each hit to the file `OUT`. Lines may be appended to
//! `IN` while it runs. It may be killed at any time: each line counts once, and each hit is written once.

mod files;

use files::{LineFile, Lines};
use std::path::{Path, PathBuf};
use throng::{Engine, model::Entity as _, projection::DurableEvent};
use throng_connectors::{Egress, EntityCommand, Ingress, IngressOptions, Message, Outbound};
use throng_testing::fixtures::{Counter, Hits};

/// Hits as lines.
struct HitLines;

impl Outbound for HitLines {
    const NAME: &'static str = "hits";
    type Of = Counter;
    type Item = String;

    fn map(&self, seen: &DurableEvent<Counter>) -> Option<String> {
        Some(format!("{} {}", seen.id, seen.seq))
    }
}

fn read(message: &Message) -> Result<Vec<EntityCommand>, String> {
    let line = str::from_utf8(&message.body).map_err(|error| error.to_string())?;
    Ok(vec![EntityCommand::new(
        Counter::KIND,
        line.trim_end(),
        "Hit",
        Vec::new(),
    )])
}

/// The service: an engine, and the source. It runs until the ingress is dropped.
pub(crate) async fn start(
    input: &Path,
    output: &Path,
    journal: &Path,
) -> Result<(Engine, Ingress), Box<dyn std::error::Error>> {
    let target = LineFile(output.to_owned());
    let source = Lines {
        path: input.to_owned(),
        position: 0,
    };
    let (log, store) = throng_log::open_embedded(journal, throng_log::Options::default())?;
    let builder = Engine::builder().with::<Counter>().query::<Counter, Hits>();
    let builder = builder.sink(Egress::new(HitLines, target));
    let engine = builder.start_shared(log, store).await?;
    let ingress = Ingress::start(&engine, source, IngressOptions::default(), read)?;
    Ok((engine, ingress))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [input, output, journal] = &paths[..] else {
        return Err("usage: lines IN OUT JOURNAL".into());
    };
    let _service = start(input, output, journal).await?;
    std::future::pending().await
}
