//! The names a path may have: kinds, their commands, their queries.

use std::borrow::Cow;

/// The kinds of an engine, in its order.
#[derive(Debug, Default)]
pub(crate) struct Kinds(pub(crate) Vec<Names>);

/// The names of a kind.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) kind: &'static str,
    /// As serde says them.
    pub(crate) commands: Vec<String>,
    pub(crate) queries: Vec<&'static str>,
    /// How it says no, as far as its schema tells.
    pub(crate) rejections: Vec<Refusal>,
    /// Its members have commands and nothing else: no events, no queries, no list.
    pub(crate) is_actor: bool,
}

/// A way in which a kind says no.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The last part of the problem's `type`.
    pub(crate) code: String,
    pub(crate) description: Option<String>,
}

impl Kinds {
    /// The first kind that says no by this code, and what that means.
    pub(crate) fn rejection(&self, code: &str) -> Option<(&'static str, &Refusal)> {
        self.0.iter().find_map(|names| {
            let found = names.rejections.iter().find(|rejection| rejection.code == code)?;
            Some((names.kind, found))
        })
    }

    /// A kind and its index.
    pub(crate) fn find(&self, kind: &str) -> Option<(usize, &Names)> {
        self.0.iter().enumerate().find(|(_, names)| names.kind == kind)
    }

    /// The kinds' names.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|names| names.kind).collect()
    }
}

impl Names {
    /// The command's own name for one in a path: the same, or its words joined by hyphens.
    pub(crate) fn command<'a>(&'a self, given: &'a str) -> Option<&'a str> {
        if self.commands.is_empty() {
            // The type hides its commands from its schema: the engine will know.
            return Some(given);
        }
        let exact = self.commands.iter().find(|command| *command == given);
        exact
            .or_else(|| self.commands.iter().find(|command| kebab(command) == given))
            .map(String::as_str)
    }

    pub(crate) fn has_query(&self, name: &str) -> bool {
        self.queries.contains(&name)
    }
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
    fn a_command_is_found_by_its_name_or_its_words_joined_by_hyphens() {
        let commands = ["open", "add_student", "DropStudent", "setURL"]
            .map(str::to_owned)
            .to_vec();
        let names = Names {
            kind: "section",
            commands,
            queries: vec!["view"],
            rejections: Vec::new(),
            is_actor: false,
        };
        assert_eq!(names.command("open"), Some("open"));
        assert_eq!(names.command("add_student"), Some("add_student"));
        assert_eq!(names.command("add-student"), Some("add_student"));
        assert_eq!(names.command("drop-student"), Some("DropStudent"));
        assert_eq!(names.command("set-url"), Some("setURL"));
        assert_eq!(names.command("close"), None);
        assert_eq!(names.command("Open"), None);
    }
}
