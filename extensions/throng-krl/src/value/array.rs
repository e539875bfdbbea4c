use super::{Cost, Value};
use std::ops::Deref;

/// An array. It is copied only if it is changed while it has several owners.
#[derive(Clone, Debug)]
pub struct Array {
    items: Vec<Value>,
    /// The cost of the items. Every method that changes them updates it.
    cost: Cost,
}

impl Array {
    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// Appends a value.
    pub fn push(&mut self, value: Value) {
        self.cost.add(0, &value);
        self.items.push(value);
    }

    /// Sets the value at an index. An index beyond the end first appends nulls.
    pub(crate) fn set(&mut self, index: usize, value: Value) {
        while self.items.len() <= index {
            self.push(Value::Null);
        }
        self.cost.subtract(0, &self.items[index]);
        self.cost.add(0, &value);
        self.items[index] = value;
    }

    /// Takes out the value at an index, so that it can be changed and `set` again. Leaves null.
    pub(crate) fn take(&mut self, index: usize) -> Value {
        let Some(item) = self.items.get_mut(index) else {
            return Value::Null;
        };
        let value = std::mem::take(item);
        self.cost.subtract(0, &value);
        self.cost.add(0, &Value::Null);
        value
    }
}

impl Default for Array {
    fn default() -> Array {
        Array {
            items: Vec::new(),
            cost: Cost::EMPTY,
        }
    }
}

impl From<Vec<Value>> for Array {
    fn from(items: Vec<Value>) -> Array {
        let mut cost = Cost::EMPTY;
        for item in &items {
            cost.add(0, item);
        }
        Array { items, cost }
    }
}

impl Deref for Array {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.items
    }
}
