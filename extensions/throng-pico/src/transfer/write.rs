//! The export of a pico and all picos below it.

use super::line::{End, FORM, Sum, TransferLine};
use crate::{
    id::PicoId,
    outside::{Failure, LEVELS_MAX, Picos},
    pico::{Body, Change, Child, Children, Everything, GetPage, Page, PageId, Pico, PicoRejection, Variable},
};
use futures_util::{Stream, stream};
use std::{collections::BTreeSet, sync::Arc, vec};
use throng::model::Error;
use throng_krl::Value;

/// The size in bytes from which a map is written entry by entry.
const VALUE_BYTES: u64 = 256 << 10;
/// The bytes of a piece of output. It may exceed this by one pico.
const PIECE_BYTES: usize = 64 << 10;

pub(crate) struct Export {
    picos: Picos,
    sum: Sum,
    written: End,
    /// The URLs of the rulesets written so far.
    urls: BTreeSet<Arc<str>>,
    /// The top pico, until it is written.
    top: Option<PicoId>,
    /// The picos whose children are being written, outermost first.
    levels: Vec<Level>,
    is_over: bool,
}

/// The children of a pico, one page at a time.
struct Level {
    parent: PicoId,
    pages: std::ops::Range<u32>,
    here: vec::IntoIter<Child>,
    young: Vec<Child>,
}

impl Picos {
    /// Exports a pico and all picos below it, as lines. Each pico is written in its state at that moment. A broken export has no last line.
    pub(crate) fn export(&self, top: PicoId) -> impl Stream<Item = Result<Vec<u8>, Failure>> + use<> {
        let export = Export {
            picos: self.clone(),
            sum: Sum::default(),
            written: End::default(),
            urls: BTreeSet::new(),
            top: Some(top),
            levels: Vec::new(),
            is_over: false,
        };
        stream::unfold(export, async |mut export| {
            let piece = export.piece().await.transpose()?;
            export.is_over |= piece.is_err();
            Some((piece, export))
        })
    }
}

impl Export {
    async fn piece(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if self.is_over {
            return Ok(None);
        }
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        if let Some(top) = self.top.take() {
            let throng_picos = FORM;
            self.line(&mut piece, &TransferLine::Begin { throng_picos, top })?;
            self.pico(&mut piece, top).await?;
        }
        while piece.len() < PIECE_BYTES {
            match self.next_child().await? {
                Some(child) => self.pico(&mut piece, child.pico).await?,
                None => {
                    let end = self.written;
                    self.line(&mut piece, &TransferLine::End { end })?;
                    self.is_over = true;
                    break;
                }
            }
        }
        Ok(Some(piece))
    }

    async fn next_child(&mut self) -> Result<Option<Child>, Failure> {
        while let Some(level) = self.levels.last_mut() {
            if let Some(child) = level.here.next() {
                return Ok(Some(child));
            }
            let parent = level.parent;
            match level.pages.next() {
                Some(page) => {
                    let page = self.picos.engine().entity::<Page>(PageId { parent, page });
                    let children = page.read(GetPage {}).await.map_err(|error| failed(&error))?;
                    level.here = children.into_iter();
                }
                None if level.young.is_empty() => drop(self.levels.pop()),
                None => level.here = std::mem::take(&mut level.young).into_iter(),
            }
        }
        Ok(None)
    }

    async fn pico(&mut self, piece: &mut Vec<u8>, id: PicoId) -> Result<(), Failure> {
        let Pico { body, variables } = match self.picos.engine().entity::<Pico>(id).read(Everything {}).await {
            // It was deleted during the export.
            Err(Error::Ended { .. } | Error::Rejected(PicoRejection::Deleted {})) if self.written.picos > 0 => {
                return Ok(());
            }
            pico => pico?,
        };
        if self.levels.len() >= LEVELS_MAX {
            return Err(failed(&format!(
                "there are more than {LEVELS_MAX} picos one above the other"
            )));
        }
        self.written.picos += 1;
        self.line(
            piece,
            &TransferLine::Pico {
                pico: Box::new(head(&body)),
            },
        )?;
        self.levels.push(Level {
            parent: id,
            pages: 0..body.children.sealed(),
            here: Vec::new().into_iter(),
            young: body.children.young().to_vec(),
        });
        for ruleset in body.rulesets {
            self.ruleset(piece, &ruleset.url).await?;
            self.change(piece, Change::Ruleset(ruleset))?;
        }
        for variable in variables.iter() {
            self.variable(piece, variable)?;
        }
        for scheduled in body.schedules.iter() {
            self.change(piece, Change::Schedule(scheduled.clone()))?;
        }
        for waiting in body.waiting {
            self.line(piece, &TransferLine::Waiting { waiting })?;
        }
        for channel in body.channels {
            self.change(piece, Change::Channel(channel))?;
        }
        Ok(())
    }

    /// Writes a ruleset, unless it was written already.
    async fn ruleset(&mut self, piece: &mut Vec<u8>, url: &Arc<str>) -> Result<(), Failure> {
        if !self.urls.insert(url.clone()) {
            return Ok(());
        }
        let ruleset = self.picos.recorded(url).await.map_err(|why| failed(&why))?;
        self.line(piece, &TransferLine::Ruleset { ruleset })
    }

    fn variable(&mut self, piece: &mut Vec<u8>, variable: &Variable) -> Result<(), Failure> {
        self.put(piece, variable, &mut Vec::new(), &variable.value)
    }

    fn put(
        &mut self,
        piece: &mut Vec<u8>,
        variable: &Variable,
        path: &mut Vec<Arc<str>>,
        value: &Value,
    ) -> Result<(), Failure> {
        let long = value
            .as_map()
            .filter(|map| value.bytes() > VALUE_BYTES && !map.is_empty());
        self.change(
            piece,
            Change::Put {
                rid: variable.rid.clone(),
                name: variable.name.clone(),
                path: path.clone(),
                value: match long {
                    Some(_) => Value::map::<&str>([]),
                    None => value.clone(),
                },
            },
        )?;
        for (key, value) in long.into_iter().flatten() {
            path.push(key.clone());
            self.put(piece, variable, path, value)?;
            path.pop();
        }
        Ok(())
    }

    fn change(&mut self, piece: &mut Vec<u8>, change: Change) -> Result<(), Failure> {
        self.line(piece, &TransferLine::Change { change })
    }

    fn line(&mut self, piece: &mut Vec<u8>, line: &TransferLine) -> Result<(), Failure> {
        let begin = piece.len();
        serde_json::to_writer(&mut *piece, line).map_err(|error| failed(&error))?;
        self.sum.seal(piece, begin);
        self.written.lines += 1;
        match piece.len() - begin > super::LINE_BYTES_MAX {
            true => Err(failed(&"a value is too long to be exported")),
            false => Ok(()),
        }
    }
}

/// Returns a pico without the parts that have lines of their own.
fn head(body: &Body) -> Body {
    Body {
        id: body.id,
        realm: body.realm,
        key: body.key,
        parent: body.parent,
        number: body.number,
        waited: body.waited,
        children: Children::numbered(body.children.next_number(), body.children.sealed()),
        ..Body::default()
    }
}

fn failed(why: &impl ToString) -> Failure {
    Error::Rejected(PicoRejection::Failed {
        error: why.to_string().into(),
    })
}
