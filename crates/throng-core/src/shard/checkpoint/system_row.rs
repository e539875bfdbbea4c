//! System rows of the store about one entity.

use throng_journal::Address;

/// A system row of the store: key and value, or key and `None` to remove it.
pub type SystemRow = (Vec<u8>, Option<Vec<u8>>);

/// Returns the key of the row for an entity that has ended. The value is the number of its last event then, eight bytes, most significant
/// first.
#[must_use]
pub fn ended_row(address: &Address) -> Vec<u8> {
    [b"e", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// The system row of an entity's family.
#[must_use]
pub fn family_row(address: &Address) -> Vec<u8> {
    [b"f", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// Returns the key of the row for an entity's recorded state. The value is the number of its last event then and the record's commit, each
/// eight bytes, most significant first (writer, number).
#[must_use]
pub fn base_row(address: &Address) -> Vec<u8> {
    [b"b", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// The system row of an entity's indexed fields; without an id, what those of its kind begin with.
#[must_use]
pub fn index_row(address: &Address) -> Vec<u8> {
    [b"i", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// The kind and the id of a row of one entity that begins with this.
pub(crate) fn read_entity_row(begin: u8, row: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(row.strip_prefix(&[begin])?).ok()?.split_once('\0')
}
