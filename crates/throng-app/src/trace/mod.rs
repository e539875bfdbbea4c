//! The command `trace`: prints the causes and effects of an entity's last turns.

mod chain;

#[cfg(feature = "s3")]
use crate::objects::Part;
use crate::{
    App,
    journal::address,
    place::{JournalLocation, LocationArguments},
};
use anyhow::bail;
use chain::{Chain, Message, Place, TURNS_MAX, TracedTurn};
use clap::Args;
use serde_json::json;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    process::ExitCode,
};
use throng::journal::{Address, Commit, Error};
#[cfg(feature = "postgres")]
use throng_postgres::tools::HistoryPart;

/// The arguments of `trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArguments {
    /// The entity, as `account/ann`.
    #[arg(value_name = "ENTITY", value_parser = address)]
    entity: Address,
    #[command(flatten)]
    place: LocationArguments,
    /// The number of its turns, the last ones.
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: usize,
    /// Print the turns as one JSON object.
    #[arg(long)]
    json: bool,
}

impl TraceArguments {
    /// Reads the journal of this app, unless another place is named, and prints the chain; also beside a running service.
    ///
    /// # Errors
    /// The journal cannot be read, or has no turn of this entity.
    pub fn run(&self, app: &App) -> anyhow::Result<ExitCode> {
        let defaults = app.read_defaults()?;
        let place = self.place.place_or(app.name(), defaults.journal.as_deref())?;
        let chain = Chain::follow(&self.entity, self.last.max(1), |each| walk(&place, each))?;
        if chain.own.is_empty() {
            bail!("the journal has no turn of {}", self.entity);
        }
        match self.json {
            true => println!(
                "{}",
                json!({ "turns": chain.turns.values().collect::<Vec<_>>(), "is_cut": chain.is_cut })
            ),
            false => print!("{}", Shown(&chain)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn walk(place: &JournalLocation, each: &mut dyn FnMut(&Commit)) -> anyhow::Result<()> {
    match place {
        JournalLocation::Memory => bail!("what is in memory is gone: name a directory or a database"),
        JournalLocation::Directory(directory) => {
            let mut commit = |commit: &Commit| -> Result<(), Error> {
                each(commit);
                Ok(())
            };
            throng_log::tools::for_each_commit(&throng_log::Options::default(), directory, &mut commit)?;
        }
        #[cfg(feature = "postgres")]
        JournalLocation::Postgres(options) => throng_postgres::tools::walk(options, &mut |seen| match seen {
            HistoryPart::Commit(found) => {
                each(found);
                Ok(())
            }
            HistoryPart::Damage(damage) => Err(damage),
            HistoryPart::Writer { .. } => Ok(()),
        })?,
        #[cfg(feature = "s3")]
        JournalLocation::Objects(location) => crate::objects::walk(location, &mut |part| {
            if let Part::Commit(found) = part {
                each(found);
            }
            Ok(())
        })?,
    }
    Ok(())
}

/// A chain as a tree: each turn with the turns that took its messages below it.
struct Shown<'a>(&'a Chain);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(chain) = self;
        let takers = chain
            .turns
            .iter()
            .filter_map(|(place, turn)| Some((turn.taken.as_ref()?.message, *place)));
        let mut tree = Tree {
            chain,
            takers: takers.collect(),
            shown: HashSet::new(),
        };
        let sent = chain.turns.values().flat_map(|turn| &turn.sent);
        let sent: HashSet<Message> = sent.map(|sent| sent.message).collect();
        let is_first = |turn: &TracedTurn| turn.taken.as_ref().is_none_or(|taken| !sent.contains(&taken.message));
        for (place, _) in chain.turns.iter().filter(|(_, turn)| is_first(turn)) {
            tree.show(f, *place, 0)?;
        }
        if chain.is_cut {
            writeln!(
                f,
                "There is more: a chain is followed over {TURNS_MAX} turns at most, and not without end."
            )?;
        }
        Ok(())
    }
}

struct Tree<'a> {
    chain: &'a Chain,
    /// The turn that took each message.
    takers: HashMap<Message, Place>,
    shown: HashSet<Place>,
}

impl Tree<'_> {
    fn show(&mut self, f: &mut fmt::Formatter<'_>, place: Place, depth: usize) -> fmt::Result {
        let Some(turn) = self.chain.turns.get(&place).filter(|_| self.shown.insert(place)) else {
            return Ok(());
        };
        let indent = "  ".repeat(depth);
        let at = jiff::Timestamp::from_microsecond(turn.at_micros).unwrap_or_default();
        let own = if self.chain.own.contains(&place) { "*" } else { " " };
        writeln!(
            f,
            "{own} {indent}{at}  {}  {}/{}{}",
            turn.commit,
            turn.kind,
            turn.id,
            Effects(turn)
        )?;
        for sent in &turn.sent {
            let to = sent
                .to
                .as_ref()
                .map_or_else(|| "?".to_owned(), |(kind, id)| format!("{kind}/{id}"));
            let (shard, number) = sent.message;
            let taker = self.takers.get(&sent.message).copied();
            let told = if taker.is_some() {
                ""
            } else {
                "  (not followed, or not taken yet)"
            };
            writeln!(
                f,
                "  {indent}  -> {} to {to}, message {shard}.{number}{told}",
                sent.command
            )?;
            if let Some(taker) = taker {
                self.show(f, taker, depth + 2)?;
            }
        }
        Ok(())
    }
}

/// The effects of a turn, without its messages.
struct Effects<'a>(&'a TracedTurn);

impl fmt::Display for Effects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(turn) = self;
        let mut parts = Vec::new();
        parts.extend(turn.command.iter().map(|command| format!("command {command}")));
        if let Some(taken) = turn.taken.as_ref().filter(|taken| taken.outcome != "done") {
            parts.push(taken.outcome.clone());
        }
        parts.extend(turn.events.iter().map(|(name, seq)| format!("{name} #{seq}")));
        let timer =
            |(name, is_set): &(String, bool)| format!("timer {name} {}", if *is_set { "set" } else { "cleared" });
        parts.extend(turn.timers.iter().map(timer));
        if !parts.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests;
