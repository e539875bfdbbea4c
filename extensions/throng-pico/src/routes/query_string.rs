//! Query strings and forms as pico-engine parses them. A repeated key has a list of values. Brackets in the keys of a query string nest: `a[x]=1`,
//! `a[]=1`, `a[0]=1`.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};
use throng_krl::Value;

/// The most pairs of a query string. The rest is ignored.
const PAIRS_MAX: usize = 1_000;
/// The most nested brackets of a key. The rest is one name.
const BRACKETS_MAX: usize = 5;
/// The first index that counts as a name.
const INDICES: usize = 1_000;

/// Returns the pairs of a form by name, in order.
pub(super) fn of_form(text: &[u8]) -> Vec<(String, Value)> {
    let mut pairs = Entries::default();
    for (name, value) in form_urlencoded::parse(text) {
        pairs.add(name.into_owned(), Node::Text(value.into_owned()), Node::and);
    }
    pairs.into_values().collect()
}

/// Returns the pairs of a query string by name, with brackets nested.
pub(super) fn of_query(text: &[u8]) -> Vec<(String, Value)> {
    let mut pairs = Entries::default();
    for (name, value) in form_urlencoded::parse(text).take(PAIRS_MAX) {
        pairs.add(name.into_owned(), Node::Text(value.into_owned()), Node::and);
    }
    let mut nested = Entries::default();
    for (key, value) in pairs.nodes {
        let (name, brackets) = split(&key);
        if !name.is_empty() {
            let value = brackets.into_iter().rev().fold(value, Node::below);
            nested.add(name.to_owned(), value, Node::merge);
        }
    }
    nested.into_values().collect()
}

/// A bracket of a key.
enum Bracket<'a> {
    /// `[]`: appends to a list.
    Next,
    Index(usize),
    Name(&'a str),
}

/// Splits a key into its name and its brackets. Text between brackets is ignored.
fn split(key: &str) -> (&str, Vec<Bracket<'_>>) {
    let Some(open) = key.find('[') else {
        return (key, Vec::new());
    };
    let (name, mut rest) = key.split_at(open);
    let mut brackets = Vec::new();
    while let Some(open) = rest.find('[') {
        let closed = (brackets.len() < BRACKETS_MAX)
            .then(|| close_of(&rest[open..]))
            .flatten();
        let Some(length) = closed else {
            brackets.push(Bracket::Name(&rest[open..]));
            break;
        };
        let inner = &rest[open + 1..open + length - 1];
        let index = inner
            .parse()
            .ok()
            .filter(|index: &usize| *index < INDICES && index.to_string() == inner);
        brackets.push(match (inner, index) {
            ("", _) => Bracket::Next,
            (_, Some(index)) => Bracket::Index(index),
            (inner, None) => Bracket::Name(inner),
        });
        rest = &rest[open + length..];
    }
    match (name, brackets.first()) {
        // `[x]=1` means `x=1`.
        ("", Some(Bracket::Name(first))) => (first, brackets.drain(1..).collect()),
        _ => (name, brackets),
    }
}

/// Returns the length of the text up to the bracket that closes its first one.
fn close_of(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => open += 1,
            b']' if open == 1 => return Some(at + 1),
            b']' => open -= 1,
            _ => {}
        }
    }
    None
}

/// The value at a name.
enum Node {
    Text(String),
    /// Values by index. Gaps are removed at the end.
    List(BTreeMap<usize, Node>),
    Map(Entries),
}

/// Nodes by name, in the order of insertion.
#[derive(Default)]
struct Entries {
    nodes: Vec<(String, Node)>,
    places: HashMap<String, usize>,
}

impl Entries {
    /// Adds a node under a name. `together` joins it with an existing one.
    fn add(&mut self, name: String, node: Node, together: fn(Node, Node) -> Node) {
        if let Some(place) = self.places.get(&name) {
            let known = &mut self.nodes[*place].1;
            *known = together(mem::replace(known, Node::Text(String::new())), node);
        } else {
            self.places.insert(name.clone(), self.nodes.len());
            self.nodes.push((name, node));
        }
    }

    fn into_values(self) -> impl Iterator<Item = (String, Value)> {
        self.nodes.into_iter().map(|(name, node)| (name, node.into_value()))
    }
}

impl Node {
    fn list(nodes: impl IntoIterator<Item = Node>) -> Node {
        Node::List(nodes.into_iter().enumerate().collect())
    }

    /// Returns the node nested in a bracket.
    fn below(self, bracket: Bracket<'_>) -> Node {
        match (bracket, self) {
            (Bracket::Next, list @ Node::List(_)) => list,
            (Bracket::Next, node) => Node::list([node]),
            (Bracket::Index(index), node) => Node::List([(index, node)].into()),
            (Bracket::Name(name), node) => {
                let mut entries = Entries::default();
                entries.add(name.to_owned(), node, Node::merge);
                Node::Map(entries)
            }
        }
    }

    /// Joins two nodes to one list.
    fn and(self, node: Node) -> Node {
        let items = |node| match node {
            Node::List(items) => items.into_values().collect(),
            node => vec![node],
        };
        Node::list(items(self).into_iter().chain(items(node)))
    }

    /// Merges two nodes of one name: maps keep the entries of both, lists the items of both.
    fn merge(self, node: Node) -> Node {
        match (self, node) {
            (Node::Map(mut map), Node::Map(more)) => {
                for (name, node) in more.nodes {
                    map.add(name, node, Node::merge);
                }
                Node::Map(map)
            }
            (Node::List(items), map @ Node::Map(_)) => Node::Map(named(items)).merge(map),
            (map @ Node::Map(_), Node::List(items)) => map.merge(Node::Map(named(items))),
            (Node::List(mut items), Node::List(more)) => {
                for (index, node) in more {
                    match (items.remove(&index), node) {
                        (None, node) => {
                            items.insert(index, node);
                        }
                        (Some(known @ (Node::List(_) | Node::Map(_))), node @ (Node::List(_) | Node::Map(_))) => {
                            items.insert(index, known.merge(node));
                        }
                        (Some(known), node) => {
                            items.insert(index, known);
                            let last = items.last_key_value().map_or(0, |(last, _)| *last);
                            items.insert(last + 1, node);
                        }
                    }
                }
                Node::List(items)
            }
            (known, node) => known.and(node),
        }
    }

    fn into_value(self) -> Value {
        match self {
            Node::Text(text) => text.into(),
            Node::List(items) => items.into_values().map(Node::into_value).collect::<Vec<_>>().into(),
            Node::Map(entries) => Value::map(entries.into_values()),
        }
    }
}

/// Turns a list into entries named by their indices.
fn named(items: BTreeMap<usize, Node>) -> Entries {
    let mut entries = Entries::default();
    for (index, node) in items {
        entries.add(index.to_string(), node, Node::merge);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_a_query_string_nest_as_in_the_original() {
        for (query, json) in [
            ("a=1&b=2&a=3&a=4", r#"{"a":["1","3","4"],"b":"2"}"#),
            ("a[x]=1&a[y]=2", r#"{"a":{"x":"1","y":"2"}}"#),
            ("a%5Bx%5D=1", r#"{"a":{"x":"1"}}"#),
            ("a[]=1", r#"{"a":["1"]}"#),
            ("a[]=1&a[]=2", r#"{"a":["1","2"]}"#),
            ("a[0]=1&a[2]=3", r#"{"a":["1","3"]}"#),
            ("a[1]=x&a[0]=y", r#"{"a":["y","x"]}"#),
            ("a[5]=1&a[]=2", r#"{"a":["2","1"]}"#),
            ("a[0]=1&a[0]=2", r#"{"a":[["1","2"]]}"#),
            ("a[25]=1", r#"{"a":["1"]}"#),
            ("a[1000]=1", r#"{"a":{"1000":"1"}}"#),
            ("a[-1]=1&a[01]=2", r#"{"a":{"-1":"1","01":"2"}}"#),
            ("a[x][y]=1", r#"{"a":{"x":{"y":"1"}}}"#),
            (
                "a[b][c][d][e][f][g][h]=1",
                r#"{"a":{"b":{"c":{"d":{"e":{"f":{"[g][h]":"1"}}}}}}}"#,
            ),
            ("a=1&a[x]=2", r#"{"a":["1",{"x":"2"}]}"#),
            ("a[x]=2&a=1", r#"{"a":[{"x":"2"},"1"]}"#),
            ("a[x]=1&a[x]=2", r#"{"a":{"x":["1","2"]}}"#),
            ("a=1&a=2&a[x]=3", r#"{"a":{"0":"1","1":"2","x":"3"}}"#),
            ("a[x]=1&a[]=2", r#"{"a":{"0":"2","x":"1"}}"#),
            ("a[]=1&a[x]=2", r#"{"a":{"0":"1","x":"2"}}"#),
            ("a=1&a[]=2", r#"{"a":["1","2"]}"#),
            ("a[]=1&a=2", r#"{"a":["1","2"]}"#),
            ("a[][b]=1&a[][b]=2", r#"{"a":[{"b":["1","2"]}]}"#),
            ("a[0][x]=1&a[0][y]=2", r#"{"a":[{"x":"1","y":"2"}]}"#),
            ("a[1]=b&a[0][x]=c", r#"{"a":[{"x":"c"},"b"]}"#),
            ("a[b]=1&a[b][c]=2", r#"{"a":{"b":["1",{"c":"2"}]}}"#),
            ("a[0][]=1", r#"{"a":[["1"]]}"#),
            ("a[][]=1", r#"{"a":["1"]}"#),
            ("a[x][]=1&a[x][]=2", r#"{"a":{"x":["1","2"]}}"#),
            ("a", r#"{"a":""}"#),
            ("=1&&a==", r#"{"a":"="}"#),
            ("a[x=1", r#"{"a":{"[x":"1"}}"#),
            ("a[[x]]=1", r#"{"a":{"[x]":"1"}}"#),
            ("a]=1&a.b=2", r#"{"a]":"1","a.b":"2"}"#),
            ("[x]=1", r#"{"x":"1"}"#),
            ("a[]b=1&c[b]c[d]=1", r#"{"a":["1"],"c":{"b":{"d":"1"}}}"#),
            ("a=%20+b&b=%zz", r#"{"a":"  b","b":"%zz"}"#),
        ] {
            assert_eq!(Value::map(of_query(query.as_bytes())).to_json(), json, "{query}");
        }
    }

    #[test]
    fn only_so_many_pairs_of_a_query_string_are_read() {
        let query: String = (0..PAIRS_MAX + 5).map(|number| format!("k{number}=1&")).collect();
        assert_eq!(of_query(query.as_bytes()).len(), PAIRS_MAX);
    }

    #[test]
    fn fields_of_a_form_that_stand_twice_are_lists() {
        for (form, json) in [
            ("a=1&a=2&a=3&b=", r#"{"a":["1","2","3"],"b":""}"#),
            ("a[x]=1&b=2", r#"{"a[x]":"1","b":"2"}"#),
            ("=5&a=1;b=2", r#"{"":"5","a":"1;b=2"}"#),
        ] {
            assert_eq!(Value::map(of_form(form.as_bytes())).to_json(), json, "{form}");
        }
    }
}
