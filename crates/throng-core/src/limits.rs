//! Limits of the model. Each is tested at its edge.

/// Longest idempotency key, timer name, event name and command name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of an entity's id.
pub const ID_BYTES_MAX: usize = throng_journal::Address::ID_BYTES_MAX;
/// Largest command as JSON, in bytes.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// The most events that one command may emit, and the most values it may publish.
pub const EVENTS_MAX: usize = 1_000;
/// The most bytes of events and messages that one command may record.
pub const RECORD_BYTES_MAX: usize = 4 << 20;
/// The most bytes that one call stages: the command's records, its family, the end of the message or timer, and the outcome. The engine
/// begins the next commit before the open one has less room than this.
pub const STAGED_BYTES_MAX: usize = 4 * RECORD_BYTES_MAX;
const _: () = assert!(STAGED_BYTES_MAX <= throng_journal::COMMIT_BYTES_MAX / 4);
/// The longest stored reason of a refused or dead message, in bytes. The rest is cut off.
pub const REASON_BYTES_MAX: usize = 4 << 10;
/// The largest encoded state that is stored, in bytes. A larger entity is loaded from its events.
pub const STATE_BYTES_MAX: usize = 16 << 20;
/// Largest answer kept under an idempotency key, in bytes.
pub const KEPT_REPLY_BYTES_MAX: usize = 64 << 10;
/// An entity's state is stored after this many events, if it is small.
pub(crate) const EVENTS_PER_STATE: u64 = 100;
/// However large its state, it is stored after this many events.
pub(crate) const EVENTS_PER_STATE_MAX: u64 = 1_000;
/// The bytes of a state for which storing it waits one event longer, so that the cost of writing states per event is bounded.
const STATE_BYTES_PER_EVENT: u64 = 64;
/// The time that an idempotency key is remembered, in microseconds: one hour.
pub(crate) const KEY_MICROS: i64 = 3_600_000_000;
/// The number of timers above which an entity is quarantined if it sets several more whenever a timer or message executes it.
pub const TIMERS_CREDIT: usize = 32_768;
/// Most [fields](crate::model::Entity::INDEXED) by which the entities of a kind are filtered.
pub const INDEXED_FIELDS_MAX: usize = 16;
/// Bytes of a text in such a field that count.
pub const INDEXED_BYTES_MAX: usize = 256;
/// Bytes of the fields of one entity beyond which its lists are not known to a filter.
pub const INDEXED_ROW_BYTES_MAX: usize = 16 << 10;
/// The number of shards of a new engine.
pub const SHARDS: u16 = 256;

/// Returns the number of events after which a state of `state_bytes` bytes in memory is stored.
///
/// The entity's hash varies the number by half in both directions. Otherwise entities that grow alike would all be stored at once, and
/// every command would wait for that.
pub(crate) fn events_per_state(state_bytes: u32, hash: u64) -> u64 {
    let usual = (EVENTS_PER_STATE + u64::from(state_bytes) / STATE_BYTES_PER_EVENT).min(EVENTS_PER_STATE_MAX);
    usual / 2 + (hash >> 32) % usual
}

/// True if this is a valid name of a kind: 1 to 64 of `[a-z0-9-]`.
#[must_use]
pub fn is_kind(name: &str) -> bool {
    (1..=throng_journal::Address::KIND_BYTES_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns true if this can be an entity's id: 1 to 256 bytes.
#[must_use]
pub fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len())
}

/// Returns the hash of an entity. Its low bits choose the shard, the others the place within it.
///
/// `xxh3_64(kind ++ 0x00 ++ id)`. The test vectors below must never change: they decide where data is stored.
#[must_use]
pub fn hash(kind: &str, id: &str) -> u64 {
    // Most are short, and clearing a buffer for the longest takes longer than hashing them.
    const SHORT: usize = 64;
    let length = kind.len() + 1 + id.len();
    if length > SHORT {
        let long = [kind.as_bytes(), &[0], id.as_bytes()].concat();
        return xxhash_rust::xxh3::xxh3_64(&long);
    }
    let mut buffer = [0u8; SHORT];
    buffer[..kind.len()].copy_from_slice(kind.as_bytes());
    buffer[kind.len() + 1..length].copy_from_slice(id.as_bytes());
    xxhash_rust::xxh3::xxh3_64(&buffer[..length])
}

/// The shard of a hash.
#[must_use]
pub fn shard_of(hash: u64, shards: u16) -> throng_journal::ShardId {
    throng_journal::ShardId((hash % u64::from(shards)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_stay_in_their_shards_for_ever() {
        let at = |kind, id| (hash(kind, id), shard_of(hash(kind, id), SHARDS).0);
        for (kind, id, expected) in VECTORS {
            assert_eq!(at(kind, id), expected, "{kind}/{id}");
        }
    }

    #[test]
    fn entities_that_grow_alike_are_not_stored_at_once() {
        let mut storing = vec![0; EVENTS_PER_STATE as usize * 2];
        for id in 0..1_000 {
            storing[events_per_state(0, hash("section", &id.to_string())) as usize] += 1;
        }
        assert!(storing.iter().all(|together| *together < 40), "{storing:?}");
        let (first, last) = (
            storing.iter().position(|at| *at > 0),
            storing.iter().rposition(|at| *at > 0),
        );
        assert!(first >= Some(50) && last < Some(150), "{storing:?}");
        assert!((500..1_500).contains(&events_per_state(u32::MAX, hash("section", "S1"))));
    }

    /// Computed with the reference implementation of xxh3.
    const VECTORS: [(&str, &str, (u64, u16)); 3] = [
        ("section", "C S 142-1", (17_362_366_126_877_957_700, 68)),
        ("show", "1", (14_763_064_816_379_599_442, 82)),
        ("resort-day", "1:2022:1", (4_256_530_396_622_246_676, 20)),
    ];

    #[test]
    fn kinds_are_lower_case_words() {
        assert!(is_kind("section") && is_kind("resort-day") && is_kind(&"a".repeat(64)));
        assert!(!is_kind("") && !is_kind("Section") && !is_kind("a/b") && !is_kind(&"a".repeat(65)));
    }
}
