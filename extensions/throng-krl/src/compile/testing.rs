//! The value of `__testing`: a ruleset's queries with their parameters, and its events with the attributes asked for.

use crate::Value;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Testing {
    events: Vec<TestedEvent>,
    /// The index of the first event of the rule being compiled.
    rule: usize,
}

#[derive(Debug)]
struct TestedEvent {
    domain: Arc<str>,
    name: Arc<str>,
    attributes: Vec<Arc<str>>,
}

impl Testing {
    pub(super) fn begin_rule(&mut self) {
        self.rule = self.events.len();
    }

    pub(super) fn event(&mut self, domain: &Arc<str>, name: &Arc<str>) {
        if self.events[self.rule..]
            .iter()
            .any(|event| event.domain == *domain && event.name == *name)
        {
            return;
        }
        self.events.push(TestedEvent {
            domain: Arc::clone(domain),
            name: Arc::clone(name),
            attributes: Vec::new(),
        });
    }

    /// Notes that the rule asks for an attribute. It counts for all events of the rule.
    pub(super) fn attribute(&mut self, key: &Arc<str>) {
        for event in &mut self.events[self.rule..] {
            if !event.attributes.contains(key) {
                event.attributes.push(Arc::clone(key));
            }
        }
    }

    pub(super) fn value(&self, queries: &[(Arc<str>, Vec<Arc<str>>)]) -> Value {
        let texts = |texts: &[Arc<str>]| Value::array(texts.iter().cloned().map(Value::String).collect());
        let queries = queries.iter().map(|(name, parameters)| {
            Value::map([("name", Value::String(Arc::clone(name))), ("args", texts(parameters))])
        });
        let events = self.events.iter().map(|event| {
            Value::map([
                ("domain", Value::String(Arc::clone(&event.domain))),
                ("name", Value::String(Arc::clone(&event.name))),
                ("attrs", texts(&event.attributes)),
            ])
        });
        Value::map([
            ("queries", Value::array(queries.collect())),
            ("events", Value::array(events.collect())),
        ])
    }
}
