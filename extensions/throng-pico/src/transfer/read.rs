//! Reads an export twice: first to check that it is complete, then to import it.

use super::{
    LINE_BYTES_MAX,
    line::{End, FORM, Sum, TransferLine},
    rename::{Kin, Names},
};
use crate::{
    id::{PicoId, Secret},
    outside::LEVELS_MAX,
    pico::{Body, Change, Child, Children, Imported, PAGE_CHILDREN, PageId, Portion},
    rulesets::Version,
};
use axum::body::Bytes;
use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, Cursor, Read as _},
    path::PathBuf,
    sync::Arc,
};
use throng::journal::byte_order_mark;

/// The most picos of an import. Each takes 64 bytes of memory.
pub(super) const PICOS_MAX: usize = 4_000_000;
/// The most lines of a portion, and below, its approximate bytes.
const PORTION_LINES: usize = 500;
const PORTION_BYTES: usize = 256 << 10;

#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The body of the request, in memory.
    Body(Bytes),
    /// A file on the server. It is read twice and never held in memory.
    File(PathBuf),
}

impl Source {
    fn open(&self) -> Result<Box<dyn BufRead>, String> {
        Ok(match self {
            Self::Body(bytes) => Box::new(Cursor::new(bytes.clone())),
            Self::File(path) => {
                let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
                Box::new(BufReader::new(file))
            }
        })
    }
}

/// The lines of an export. Each is checked against its sum.
struct Lines {
    input: Box<dyn BufRead>,
    sum: Sum,
    number: u64,
    bytes: usize,
}

impl Lines {
    fn of(source: &Source) -> Result<Self, String> {
        Ok(Self {
            input: source.open()?,
            sum: Sum::default(),
            number: 0,
            bytes: 0,
        })
    }

    fn refused(&self, why: impl std::fmt::Display) -> String {
        format!("line {}: {why}", self.number)
    }

    /// Returns the next line as JSON. An error names the line and its fault.
    fn next(&mut self) -> Result<serde_json::Value, String> {
        let mut text = String::new();
        self.number += 1;
        let read = (&mut self.input).take(LINE_BYTES_MAX as u64 + 1).read_line(&mut text);
        self.bytes = read.map_err(|error| self.refused(error))?;
        if self.bytes == 0 {
            self.number -= 1;
            return Err(format!(
                "the export was cut after line {}: its last line, which says how much there is, is missing",
                self.number
            ));
        }
        let Some(line) = text.strip_suffix('\n') else {
            return Err(self.refused("it is cut, or too long"));
        };
        if let Some(why) = byte_order_mark(line.as_bytes()) {
            return Err(self.refused(why));
        }
        let line = self.sum.check(line).map_err(|why| self.refused(why))?;
        serde_json::from_str(&line).map_err(|error| self.refused(error))
    }

    fn next_line(&mut self) -> Result<TransferLine, String> {
        let json = self.next()?;
        self.line(json)
    }

    fn line(&self, json: serde_json::Value) -> Result<TransferLine, String> {
        serde_json::from_value(json).map_err(|_| self.refused("it is none of the lines that an export has"))
    }

    /// Checks that nothing follows the last line.
    fn ends(&mut self) -> Result<(), String> {
        match self.input.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(format!("line {}: it stands behind the last line", self.number + 1)),
            Err(error) => Err(self.refused(error)),
        }
    }
}

/// The contents of a complete export.
#[derive(Debug)]
pub(super) struct ExportContents {
    pub(super) picos: HashMap<PicoId, Kin>,
    pub(super) top: PicoId,
    pub(super) realm: Secret,
    pub(super) rulesets: Vec<Version>,
}

/// Reads a whole export. Refuses it if anything is wrong.
pub(super) fn check(source: &Source) -> Result<ExportContents, String> {
    let mut lines = Lines::of(source)?;
    let top = match lines.next_line()? {
        TransferLine::Begin {
            throng_picos: FORM,
            top,
        } => top,
        TransferLine::Begin { throng_picos, .. } => {
            return Err(lines.refused(format!("the form {throng_picos} is not known, expected {FORM}")));
        }
        _ => return Err(lines.refused("the export does not begin here")),
    };
    let mut seen = ExportContents {
        picos: HashMap::new(),
        top,
        realm: Secret::default(),
        rulesets: Vec::new(),
    };
    let mut above: Vec<Body> = Vec::new();
    loop {
        match lines.next_line()? {
            TransferLine::Pico { pico } => {
                place(&mut above, &mut seen, *pico).map_err(|why| lines.refused(why))?;
            }
            _ if seen.picos.is_empty() => return Err(lines.refused("the top pico is expected here")),
            TransferLine::Ruleset { ruleset } => seen.rulesets.push(ruleset),
            TransferLine::Change { change } if is_portable(&change) => {}
            TransferLine::Waiting { .. } => {}
            TransferLine::End { end } => {
                let found = End {
                    picos: seen.picos.len() as u64,
                    lines: lines.number - 1,
                };
                if end != found {
                    return Err(lines.refused(format!("there are {found:?}, and it says {end:?}")));
                }
                lines.ends()?;
                return Ok(seen);
            }
            _ => return Err(lines.refused("it is none of the lines that may stand here")),
        }
    }
}

/// True for a change that may stand in an export. All others make sense only within the exporting engine.
fn is_portable(change: &Change) -> bool {
    matches!(
        change,
        Change::Channel(_) | Change::Put { .. } | Change::Ruleset(_) | Change::Schedule(_)
    )
}

/// Checks that the next pico is a child of one that is still open, with a higher number than its siblings.
fn place(above: &mut Vec<Body>, seen: &mut ExportContents, pico: Body) -> Result<(), String> {
    let parent = pico.parent.map(|parent| parent.pico);
    if seen.picos.is_empty() {
        if pico.id != seen.top {
            return Err(format!("the top pico is {}, found {}", seen.top, pico.id));
        }
        seen.realm = pico.realm;
    } else {
        while above.last().is_some_and(|body| Some(body.id) != parent) {
            above.pop();
        }
        let Some(parent) = above.last() else {
            return Err(format!("the pico {} stands below none that is open here", pico.id));
        };
        if pico.number >= parent.children.next_number() {
            return Err(format!("{} is no number of a child", pico.number));
        }
    }
    let kin = Kin {
        key: pico.key,
        parent,
        number: pico.number,
    };
    if seen.picos.insert(pico.id, kin).is_some() {
        return Err(format!("the pico {} stands there twice", pico.id));
    }
    if seen.picos.len() > PICOS_MAX || above.len() >= LEVELS_MAX {
        return Err(format!(
            "at most {PICOS_MAX} picos are imported, at most {LEVELS_MAX} one above the other"
        ));
    }
    above.push(pico);
    Ok(())
}

pub(super) enum ImportStep {
    /// Creates a pico.
    Pico(Box<Imported>),
    /// Adds a portion to a pico.
    More(PicoId, Portion),
    /// Fills a page of a pico's children.
    Page(PageId, Vec<Child>),
}

/// A pico whose children are being read.
struct Level {
    old: PicoId,
    new: PicoId,
    made: u32,
    sealed: u32,
    count: u32,
    page: u32,
    here: Vec<Child>,
}

/// The second reading, which yields the steps of the import.
pub(super) struct Plan<'a> {
    lines: Lines,
    names: &'a Names,
    /// The new URLs of rulesets, by their old ones.
    urls: &'a HashMap<Arc<str>, Arc<str>>,
    replaces: bool,
    levels: Vec<Level>,
    /// The pico being read, until its first step is done.
    body: Option<Body>,
    portion: Portion,
    size: (usize, usize),
}

impl<'a> Plan<'a> {
    pub(super) fn of(source: &Source, names: &'a Names, urls: &'a HashMap<Arc<str>, Arc<str>>) -> Result<Self, String> {
        Ok(Self {
            lines: Lines::of(source)?,
            names,
            urls,
            replaces: names.seed.is_none(),
            levels: Vec::new(),
            body: None,
            portion: Portion::default(),
            size: (0, 0),
        })
    }

    /// Reads to the end, and passes each step to `take`. Stops if `take` fails.
    pub(super) fn run(mut self, mut take: impl FnMut(ImportStep) -> Result<(), String>) -> Result<(), String> {
        loop {
            let mut json = self.lines.next()?;
            for part in ["change", "waiting"] {
                json.get_mut(part).into_iter().for_each(|part| self.names.texts(part));
            }
            match self.lines.line(json)? {
                TransferLine::Begin { .. } | TransferLine::Ruleset { .. } => {}
                TransferLine::Pico { pico } => {
                    self.flush(&mut take)?;
                    self.pico(&pico, &mut take)?;
                }
                TransferLine::Change { change } => self.change(change),
                TransferLine::Waiting { mut waiting } => {
                    let old = self.levels.last().map(|level| level.old).unwrap_or_default();
                    waiting.incoming.via = self.names.via(old, waiting.incoming.via);
                    // The answers came from the other engine, so the requests are made again here.
                    waiting.incoming.answers = None;
                    self.portion.waiting.push(waiting);
                }
                TransferLine::End { .. } => {
                    self.flush(&mut take)?;
                    while let Some(level) = self.levels.pop() {
                        level.close(&mut take)?;
                    }
                    return Ok(());
                }
            }
            self.size = (self.size.0 + 1, self.size.1 + self.lines.bytes);
            if self.size.0 >= PORTION_LINES || self.size.1 >= PORTION_BYTES {
                self.flush(&mut take)?;
            }
        }
    }

    fn change(&mut self, change: Change) {
        let old = self.levels.last().map(|level| level.old).unwrap_or_default();
        // The console gets the first channel with its tags, so this engine's comes first.
        self.portion.changes.extend(self.names.console(old, &change));
        let Some(mut change) = self.names.change(old, change) else {
            return;
        };
        if let Change::Ruleset(ruleset) = &mut change
            && let Some(url) = self.urls.get(&ruleset.url)
        {
            ruleset.url = url.clone();
        }
        self.portion.changes.push(change);
    }

    fn pico(&mut self, old: &Body, take: &mut impl FnMut(ImportStep) -> Result<(), String>) -> Result<(), String> {
        let parent = old.parent.map(|parent| parent.pico);
        while let Some(level) = self.levels.pop_if(|level| Some(level.old) != parent) {
            level.close(take)?;
        }
        let mut body = self.names.body(old);
        if let Some(level) = self.levels.last_mut() {
            level.add(old.number, body.id, take)?;
        }
        self.levels.push(Level {
            old: old.id,
            new: body.id,
            made: old.children.next_number(),
            sealed: old.children.sealed(),
            count: 0,
            page: 0,
            here: Vec::new(),
        });
        body.children = Children::default();
        self.body = Some(body);
        Ok(())
    }

    /// Passes on the part of the pico read so far.
    fn flush(&mut self, take: &mut impl FnMut(ImportStep) -> Result<(), String>) -> Result<(), String> {
        self.size = (0, 0);
        let portion = std::mem::take(&mut self.portion);
        let replaces = self.replaces;
        match self.body.take() {
            Some(body) => take(ImportStep::Pico(Box::new(Imported {
                body,
                replaces,
                portion,
            }))),
            None if portion.changes.is_empty() && portion.waiting.is_empty() => Ok(()),
            None => {
                let pico = self.levels.last().map(|level| level.new).unwrap_or_default();
                take(ImportStep::More(pico, portion))
            }
        }
    }
}

impl Level {
    fn add(
        &mut self,
        number: u32,
        pico: PicoId,
        take: &mut impl FnMut(ImportStep) -> Result<(), String>,
    ) -> Result<(), String> {
        self.pages_before((number / PAGE_CHILDREN).min(self.sealed), take)?;
        self.count += 1;
        self.here.push(Child { number, pico });
        Ok(())
    }

    /// Makes the missing pages before this one.
    fn pages_before(
        &mut self,
        page: u32,
        take: &mut impl FnMut(ImportStep) -> Result<(), String>,
    ) -> Result<(), String> {
        while self.page < page {
            let id = PageId {
                parent: self.new,
                page: self.page,
            };
            take(ImportStep::Page(id, std::mem::take(&mut self.here)))?;
            self.page += 1;
        }
        Ok(())
    }

    /// Ends a level: all children were read.
    fn close(mut self, take: &mut impl FnMut(ImportStep) -> Result<(), String>) -> Result<(), String> {
        if self.made == 0 {
            return Ok(());
        }
        self.pages_before(self.sealed, take)?;
        let children = Children::of(self.made, self.count, self.sealed, self.here);
        let changes = vec![Change::Children(children)];
        let waiting = Vec::new();
        take(ImportStep::More(self.new, Portion { changes, waiting }))
    }
}
