//! The children of a pico. The youngest are in its state, the others in pages, which are separate entities.

use super::{Pico, PicoCommand};
use crate::id::PicoId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use throng::model::{CommandAnswer, Entity, Event, Moment, Query, Turn};

/// The number of children of a page, and the most children in the parent's state.
pub const PAGE_CHILDREN: u32 = 256;

/// The most children of a pico, and the most picos of an export.
pub(crate) const CHILDREN_MAX: u32 = 4_000_000;

/// A child, with its number among all children that its parent ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Child {
    /// The number, from 0.
    pub number: u32,
    /// The child's entity id.
    pub pico: PicoId,
}

/// The children: the youngest in full, the others as a number of pages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Children {
    /// The number of children ever made, which is the next child's number.
    made: u32,
    /// The number of living children.
    count: u32,
    /// The number of pages in separate entities. They have the numbers below `sealed * PAGE_CHILDREN`.
    sealed: u32,
    /// The children in no page, by number.
    young: Vec<Child>,
}

impl Children {
    /// Returns children by their counts alone: all ever made, and the pages in separate entities.
    pub(crate) fn numbered(made: u32, sealed: u32) -> Self {
        Self::of(made, 0, sealed, Vec::new())
    }

    /// Returns children from their counts and from those in no page.
    pub(crate) fn of(made: u32, count: u32, sealed: u32, young: Vec<Child>) -> Self {
        Self {
            made,
            count,
            sealed,
            young,
        }
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.made
    }

    /// True if there is room for another child, and an unused number.
    pub(crate) fn has_room(&self) -> bool {
        self.count < CHILDREN_MAX && self.made < u32::MAX - PAGE_CHILDREN
    }

    /// Returns the number of children.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of pages in separate entities.
    #[must_use]
    pub fn sealed(&self) -> u32 {
        self.sealed
    }

    /// Returns the children in no page.
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

    /// Returns the page of a child, if it is in one.
    pub(crate) fn page_of(&self, number: u32) -> Option<u32> {
        let page = number / PAGE_CHILDREN;
        (page < self.sealed).then_some(page)
    }

    /// Returns the full page that is not sealed yet and its children, if there is one.
    pub(crate) fn full(&self) -> Option<(u32, Vec<Child>)> {
        let end = (self.sealed + 1) * PAGE_CHILDREN;
        let of_page = || self.young.iter().copied().take_while(|child| child.number < end);
        (self.made >= end).then(|| (self.sealed, of_page().collect()))
    }

    /// Notes that the next page is a separate entity now.
    pub(crate) fn seal(&mut self) {
        self.sealed += 1;
        let begin = self.sealed * PAGE_CHILDREN;
        self.young.retain(|child| child.number >= begin);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.young.capacity() * size_of::<Child>()
    }
}

/// The id of a page: its parent and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId {
    /// The pico whose children are in the page.
    pub parent: PicoId,
    /// The page's number, from 0.
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

/// A command of a page. Only its parent sends it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageCommand {
    /// Fills the page, once.
    Seal {
        /// The children in the order of their numbers.
        children: Vec<Child>,
    },
    /// Removes a child.
    Remove {
        /// The child's number.
        number: u32,
    },
    /// Ends the children in this page and in the later ones, because the parent has ended.
    End {
        /// The number of pages.
        pages: u32,
    },
}

/// An event of a page.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub enum PageEvent {
    /// The page was filled. It takes no more children.
    Sealed {
        /// The children in the order of their numbers.
        children: Vec<Child>,
    },
    /// A child was removed.
    Removed {
        /// The child's number.
        number: u32,
    },
    /// The parent has ended.
    Ended {},
}

impl Event for PageEvent {}

/// The empty reply of a page.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Done {}

/// The rejection of a page, which has no variant.
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
