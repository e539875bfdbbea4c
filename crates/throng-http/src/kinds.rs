//! The names a path may have: kinds, their commands, their queries.

use crate::problem::Problem;
use std::borrow::Cow;

/// The kinds of an engine, in its order.
#[derive(Debug, Default)]
pub(crate) struct Kinds(pub(crate) Vec<Names>);

/// The names of a kind.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) kind: &'static str,
    /// The commands that clients may send, by their serde names.
    pub(crate) commands: Vec<String>,
    /// The commands that clients may not ask.
    pub(crate) internal: Vec<String>,
    pub(crate) queries: Vec<&'static str>,
    /// The rejections of the kind, as far as its schema shows them.
    pub(crate) rejections: Vec<Refusal>,
    /// The kind has no generic routes.
    pub(crate) is_hidden: bool,
    /// True if it has only commands: no events, no queries, no list.
    pub(crate) is_actor: bool,
}

/// A rejection of a kind.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The last part of the problem's `type`.
    pub(crate) code: String,
    pub(crate) description: Option<String>,
}

impl Kinds {
    /// Returns the first kind with this rejection code, and the rejection.
    pub(crate) fn rejection(&self, code: &str) -> Option<(&'static str, &Refusal)> {
        self.0.iter().find_map(|names| {
            let found = names.rejections.iter().find(|rejection| rejection.code == code)?;
            Some((names.kind, found))
        })
    }

    /// A kind and its index.
    pub(crate) fn find(&self, kind: &str) -> Option<(usize, &Names)> {
        let mut shown = self.0.iter().enumerate().filter(|(_, names)| !names.is_hidden);
        shown.find(|(_, names)| names.kind == kind)
    }

    /// The kinds' names.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let shown = self.0.iter().filter(|names| !names.is_hidden);
        shown.map(|names| names.kind).collect()
    }
}

impl Names {
    /// Returns the public command for a name in a path: the same, or its words joined by hyphens.
    pub(crate) fn command(&self, given: &str) -> Option<&str> {
        named(&self.commands, given)
    }

    /// Returns the problem for a command that does not exist, or is not public.
    pub(crate) fn no_command(&self, given: &str) -> Problem {
        match named(&self.internal, given) {
            Some(command) => Problem::not_public(self.kind, command),
            None => Problem::unknown_command(self.kind, given, self.commands.iter().map(String::as_str)),
        }
    }

    pub(crate) fn has_query(&self, name: &str) -> bool {
        self.queries.contains(&name)
    }
}

/// Returns the matching name, as it is or with its words joined by hyphens.
fn named<'a>(names: &'a [String], given: &str) -> Option<&'a str> {
    let exact = names.iter().find(|name| *name == given);
    exact
        .or_else(|| names.iter().find(|name| kebab(name) == given))
        .map(String::as_str)
}

/// `add_student`, `addStudent`, `AddStudent` → `add-student`.
pub(crate) fn kebab(name: &str) -> Cow<'_, str> {
    if name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    {
        return Cow::Borrowed(name);
    }
    let mut kebab = String::with_capacity(name.len() + 4);
    let mut before = '-';
    for letter in name.chars() {
        if letter.is_uppercase() && before != '-' && !before.is_uppercase() {
            kebab.push('-');
        }
        before = if letter == '_' { '-' } else { letter };
        kebab.extend(before.to_lowercase());
    }
    Cow::Owned(kebab)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_by_name_or_hyphenated_words() {
        let commands = ["open", "add_student", "DropStudent", "setURL"]
            .map(str::to_owned)
            .to_vec();
        let names = Names {
            kind: "section",
            commands,
            internal: vec!["settle_all".to_owned()],
            queries: vec!["view"],
            rejections: Vec::new(),
            is_actor: false,
            is_hidden: false,
        };
        assert_eq!(names.command("open"), Some("open"));
        assert_eq!(names.command("add_student"), Some("add_student"));
        assert_eq!(names.command("add-student"), Some("add_student"));
        assert_eq!(names.command("drop-student"), Some("DropStudent"));
        assert_eq!(names.command("set-url"), Some("setURL"));
        assert_eq!(names.command("close"), None);
        assert_eq!(names.command("settle_all"), None);
        assert_eq!(names.no_command("settle-all").slug(), "not-public");
        assert_eq!(names.no_command("close").slug(), "unknown-command");
        assert_eq!(names.command("Open"), None);
    }
}
