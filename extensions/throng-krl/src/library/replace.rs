use super::text::searched;
use super::{Given, Result};
use crate::Value;
use crate::run::Run;
use crate::value::Regex;
use std::sync::Arc;

/// Replaces the first match, or all matches of a global regular expression. The replacement is a text or a function's result.
pub(super) fn replace(run: &mut Run<'_>, mut given: Given) -> Result<Value> {
    if given.count() < 2 {
        return Ok(given.take(0));
    }
    let text = given.get(0).to_text();
    searched(run, &text)?;
    let replacement = given.take(2);
    if replacement.as_function().is_some() {
        let regex = match given.get(1) {
            Value::Regex(regex) => Arc::clone(regex),
            other => run.regex(&Value::String(other.to_text()))?,
        };
        return by_function(run, &text, &regex, &replacement);
    }
    let template = if replacement.is_null() {
        Arc::from("")
    } else {
        replacement.to_text()
    };
    match given.get(1) {
        Value::Regex(regex) => by_template(run, &text, regex, &template),
        other => {
            let wanted = other.text();
            let Some(at) = text.find(&*wanted) else {
                return Ok(Value::String(text));
            };
            let found = Match {
                text: &text,
                groups: vec![Some((at, at + wanted.len()))],
            };
            let mut replaced = text[..at].to_owned();
            found.expand(&template, &mut replaced);
            replaced.push_str(&text[at + wanted.len()..]);
            Ok(Value::from(replaced))
        }
    }
}

fn by_template(run: &mut Run<'_>, text: &str, regex: &Regex, template: &str) -> Result<Value> {
    let mut replaced = String::new();
    let mut from = 0;
    for captures in regex.engine().captures_iter(text) {
        let found = Match {
            text,
            groups: captures
                .iter()
                .map(|group| group.map(|group| (group.start(), group.end())))
                .collect(),
        };
        let (start, end) = found.whole();
        let before = replaced.len();
        replaced.push_str(&text[from..start]);
        found.expand(template, &mut replaced);
        // Charged while it grows, not at the end: a template may repeat the text that it replaces many times.
        run.budget().allocate((replaced.len() - before) as u64)?;
        run.budget().step(1)?;
        from = end;
        if !regex.is_global() {
            break;
        }
    }
    replaced.push_str(&text[from..]);
    Ok(Value::from(replaced))
}

fn by_function(run: &mut Run<'_>, text: &Arc<str>, regex: &Regex, function: &Value) -> Result<Value> {
    let mut replaced = String::new();
    let mut from = 0;
    for captures in regex.engine().captures_iter(text) {
        let Some(whole) = captures.get(0) else { continue };
        let groups = captures
            .iter()
            .map(|group| group.map_or(Value::Undefined, |group| Value::from(group.as_str())));
        let mut arguments: Vec<Value> = groups.collect();
        let place = text[..whole.start()].encode_utf16().count();
        run.budget().step(place as u64 / 8)?;
        arguments.push(Value::Number(place as f64));
        arguments.push(Value::String(Arc::clone(text)));
        let part = run.call_function(function, &arguments)?;
        let part = part.text();
        run.budget().allocate((whole.start() - from + part.len()) as u64)?;
        replaced.push_str(&text[from..whole.start()]);
        replaced.push_str(&part);
        from = whole.end();
        if !regex.is_global() {
            break;
        }
    }
    replaced.push_str(&text[from..]);
    Ok(Value::from(replaced))
}

/// A match of a pattern in a text, with its groups.
struct Match<'a> {
    text: &'a str,
    groups: Vec<Option<(usize, usize)>>,
}

impl Match<'_> {
    fn whole(&self) -> (usize, usize) {
        self.groups.first().copied().flatten().unwrap_or((0, 0))
    }

    /// Appends a template. Replaces `$1`, `$&`, `` $` ``, `$'` and `$$` as JavaScript does.
    fn expand(&self, template: &str, output: &mut String) {
        let (start, end) = self.whole();
        let mut rest = template;
        while let Some(at) = rest.find('$') {
            output.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let (part, length) = match rest.as_bytes().first() {
                Some(b'$') => (Some("$"), 1),
                Some(b'&') => (self.text.get(start..end), 1),
                Some(b'`') => (self.text.get(..start), 1),
                Some(b'\'') => (self.text.get(end..), 1),
                Some(b'0'..=b'9') => self.group(rest),
                _ => (None, 0),
            };
            output.push_str(part.unwrap_or("$"));
            rest = &rest[length..];
        }
        output.push_str(rest);
    }

    /// Returns the group whose number is the first one or two digits, and the number of digits used.
    fn group(&self, digits: &str) -> (Option<&str>, usize) {
        for length in [2, 1] {
            let number = digits.get(..length).and_then(|digits| digits.parse::<usize>().ok());
            let Some(number) = number.filter(|number| (1..self.groups.len()).contains(number)) else {
                continue;
            };
            let part = self.groups[number].and_then(|(start, end)| self.text.get(start..end));
            return (Some(part.unwrap_or_default()), length);
        }
        (None, 0)
    }
}
