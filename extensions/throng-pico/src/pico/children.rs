//! The children of a pico: the youngest in its state, the others in pages that are entities of their own.

use super::{Pico, PicoCommand};
use crate::id::PicoId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use throng::model::{CommandAnswer, Entity, Event, Moment, Query, Turn};

/// Children of one page. So many are in the parent's state at most.
pub const PAGE_CHILDREN: u32 = 256;

/// Most children of a pico, and as many as an export may hold.
pub(crate) const CHILDREN_MAX: u32 = 4_000_000;

/// A child and its number among all that its parent ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Child {
    /// The number, from 0.
    pub number: u32,
    /// The child's entity id.
    pub pico: PicoId,
}

/// The youngest here, the others in pages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Children {
    /// The number of all children there ever were: the next one's number.
    made: u32,
    /// The number of children.
    count: u32,
    /// Pages that are entities by now: those of the numbers below `sealed * PAGE_CHILDREN`.
    sealed: u32,
    /// The others, by number.
    young: Vec<Child>,
}

impl Children {
    /// Returns children by their numbers alone: those there ever were, and the pages that are entities.
    pub(crate) fn numbered(made: u32, sealed: u32) -> Self {
        Self::of(made, 0, sealed, Vec::new())
    }

    /// Returns children from those in no page, with the number that there ever were, that there are, and of pages that are entities.
    pub(crate) fn of(made: u32, count: u32, sealed: u32, young: Vec<Child>) -> Self {
        Self {
            made,
            count,
            sealed,
            young,
        }
    }

    /// The next child's number.
    pub(crate) fn next_number(&self) -> u32 {
        self.made
    }

    /// True if there is room for another child, and a number that none has had.
    pub(crate) fn has_room(&self) -> bool {
        self.count < CHILDREN_MAX && self.made < u32::MAX - PAGE_CHILDREN
    }

    /// Returns the number of children.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of pages that are entities.
    #[must_use]
    pub fn sealed(&self) -> u32 {
        self.sealed
    }

    /// Returns the children that stand in no page.
    #[must_use]
    pub fn young(&self) -> &[Child] {
        &self.young
    }

    pub(crate) fn add(&mut self, child: Child) {
        self.made = child.number + 1;
        self.count += 1;
        self.young.push(child);
    }

    pub(crate) fn remove(&mut self, number: u32) {
        self.count = self.count.saturating_sub(1);
        self.young.retain(|child| child.number != number);
    }

    /// Returns the page in which a child stands, if it stands in one.
    pub(crate) fn page_of(&self, number: u32) -> Option<u32> {
        let page = number / PAGE_CHILDREN;
        (page < self.sealed).then_some(page)
    }

    /// The page that is full, and who stands in it, if one is.
    pub(crate) fn full(&self) -> Option<(u32, Vec<Child>)> {
        let end = (self.sealed + 1) * PAGE_CHILDREN;
        let of_page = || self.young.iter().copied().take_while(|child| child.number < end);
        (self.made >= end).then(|| (self.sealed, of_page().collect()))
    }

    /// The next page is an entity from now on.
    pub(crate) fn seal(&mut self) {
        self.sealed += 1;
        let begin = self.sealed * PAGE_CHILDREN;
        self.young.retain(|child| child.number >= begin);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.young.capacity() * size_of::<Child>()
    }
}

/// A page's id: whose, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId {
    /// The pico whose children stand in it.
    pub parent: PicoId,
    /// Its number, from 0.
    pub page: u32,
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.parent, self.page)
    }
}

impl FromStr for PageId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(parent, page)| {
            Some(Self {
                parent: parent.parse().ok()?,
                page: page.parse().ok()?,
            })
        });
        parts.ok_or_else(|| format!("expected a pico's id, `-` and a number, found {text:?}"))
    }
}

/// A page of a pico's children.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Page {
    children: Vec<Child>,
}

/// A command of a page, from its parent alone.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageCommand {
    /// Fills the page, once and for all.
    Seal {
        /// The children in the order of their numbers.
        children: Vec<Child>,
    },
    /// A child is gone.
    Remove {
        /// The child's, among all of its parent's.
        number: u32,
    },
    /// The parent has ended: so do these, and those in the pages after this one.
    End {
        /// The number of pages.
        pages: u32,
    },
}

/// An event of a page.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub enum PageEvent {
    /// The page is full and takes no more children.
    Sealed {
        /// The children in the order of their numbers.
        children: Vec<Child>,
    },
    /// A child is gone.
    Removed {
        /// The child's, among all of its parent's.
        number: u32,
    },
    /// The parent has ended.
    Ended {},
}

impl Event for PageEvent {}

/// A page answers nothing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Done {}

/// A page refuses nothing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("a page refuses nothing")]
pub struct Never {}

impl throng::model::Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

impl Entity for Page {
    const KIND: &'static str = "pico-children";
    type Id = PageId;
    type Command = PageCommand;
    type Event = PageEvent;
    type Reply = Done;
    type Rejection = Never;

    fn creates(command: &PageCommand) -> bool {
        matches!(command, PageCommand::Seal { .. })
    }

    fn decide(&self, command: PageCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            PageCommand::Seal { children } => turn.emit(PageEvent::Sealed { children }),
            PageCommand::Remove { number } if self.children.iter().any(|child| child.number == number) => {
                turn.emit(PageEvent::Removed { number });
            }
            PageCommand::Remove { .. } => {}
            PageCommand::End { pages } => {
                for child in &self.children {
                    turn.send::<Pico>(child.pico, PicoCommand::Delete {});
                }
                let PageId { parent, page } = *turn.id();
                if page + 1 < pages {
                    turn.send::<Self>(PageId { parent, page: page + 1 }, PageCommand::End { pages });
                }
                turn.emit(PageEvent::Ended {});
                turn.end();
            }
        }
        Ok(CommandAnswer::Now(Done {}))
    }

    fn evolve(&mut self, event: &PageEvent) {
        match event {
            PageEvent::Sealed { children } => self.children.clone_from(children),
            PageEvent::Removed { number } => self.children.retain(|child| child.number != *number),
            PageEvent::Ended {} => {}
        }
    }

    fn heap_bytes(&self) -> usize {
        self.children.capacity() * size_of::<Child>()
    }
}

/// The query for the children in a page.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetPage {}

impl Query<Page> for GetPage {
    const NAME: &'static str = "view";
    type Answer = Vec<Child>;

    fn answer(self, page: &Page, _: &Moment<'_, Page>) -> Result<Vec<Child>, Never> {
        Ok(page.children.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_page_leaves_the_state_and_its_children_are_found() {
        let mut children = Children::default();
        for number in 0..PAGE_CHILDREN {
            assert!(children.full().is_none());
            let pico = PicoId(u64::from(number) + 1);
            children.add(Child { number, pico });
        }
        children.remove(3);
        let (page, of_page) = children.full().unwrap();
        assert_eq!((page, of_page.len()), (0, PAGE_CHILDREN as usize - 1));
        children.seal();
        assert!(children.young().is_empty() && children.full().is_none());
        assert_eq!((children.page_of(7), children.page_of(PAGE_CHILDREN)), (Some(0), None));
        assert_eq!(
            (children.count(), children.next_number()),
            (PAGE_CHILDREN - 1, PAGE_CHILDREN)
        );
    }
}
